"""Who may publish into a plan store: one planner at a time, each with a fencing token of its own.

The file ``LEADER`` names the epoch of the planner that may publish. A planner takes over under the next epoch when
the one before it is gone (the lock that it held is free: it ended or was killed), or has not renewed its lease
in time (it hangs, or its machine is paused). From then on the old one is refused: the epoch is compared under the
same lock under which a plan is written, so a planner that was paused in between cannot publish when it wakes.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from data.atomic_file import write_text_atomic
from data.errors import TokenFleetError
from planner.plan_store.file_lock import FileLock, locked

LEADER = "LEADER"
WAIT_S = 10.0
"""A step that holds the store's lock takes milliseconds; longer than this something hangs."""


class NotLeaderError(TokenFleetError):
    """Another planner may publish, this one may not (any more)."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """Content of the file.

    Attributes:
        epoch: Fencing token, 1 or more.
        holder: Host and process, for people.
        renewed_s: When it was last renewed, seconds since the epoch.
        lease_s: How long it holds without renewal.
    """

    epoch: int
    holder: str
    renewed_s: float
    lease_s: float


class Leader:
    """This process' right to publish. Close it to hand over at once.

    Args:
        root: Folder of the store.
        lease_s: It may be taken over by another planner when it was not renewed for so long (above 0).
    """

    def __init__(self, root: Path, lease_s: float) -> None:
        self.root = root
        self.lease_s = lease_s
        self.epoch = 0
        self._alive: FileLock | None = None

    def take(self, now_s: float) -> bool:
        """Become the leader, or renew; whether this process leads now.

        Raises:
            TimeoutError: Another process holds the store's lock and hangs.
            OSError: The store cannot be written.
        """
        with locked(self.root / "locks" / "store", WAIT_S):
            found = read_leadership(self.root)
            if self.epoch and found is not None and found.epoch == self.epoch:
                self._write(self.epoch, now_s)
                return True
            self.close()
            if found is not None and not self._may_follow(found, now_s):
                return False
            epoch = 1 if found is None else found.epoch + 1
            alive = FileLock(self._lock_path(epoch))
            if not alive.try_take():
                return False
            self._alive, self.epoch = alive, epoch
            self._write(epoch, now_s)
            self._forget_old_locks(epoch)
            return True

    def check(self) -> None:
        """Raise ``NotLeaderError`` unless this process leads. Call it while holding the store's lock."""
        found = read_leadership(self.root)
        if not self.epoch or found is None or found.epoch != self.epoch:
            who = "nobody" if found is None else f"{found.holder} (epoch {found.epoch})"
            raise NotLeaderError(f"{who} leads this plan store, not this planner (epoch {self.epoch})")

    def close(self) -> None:
        """Give the leadership up; another planner may take over at once."""
        if self._alive is not None:
            self._alive.free()
        self._alive, self.epoch = None, 0

    def _may_follow(self, found: Leadership, now_s: float) -> bool:
        """Whether the leader on file is dead or has let its lease run out."""
        if now_s >= found.renewed_s + found.lease_s:
            return True
        probe = FileLock(self._lock_path(found.epoch))
        gone = probe.try_take()
        probe.free()
        return gone

    def _write(self, epoch: int, now_s: float) -> None:
        value = Leadership(epoch, f"{socket.gethostname()}:{os.getpid()}", now_s, self.lease_s)
        write_text_atomic(self.root / LEADER, json.dumps(asdict(value)) + "\n")

    def _lock_path(self, epoch: int) -> Path:
        return self.root / "locks" / f"leader-{epoch}"

    def _forget_old_locks(self, epoch: int) -> None:
        for path in (self.root / "locks").glob("leader-*"):
            if path != self._lock_path(epoch):
                path.unlink(missing_ok=True)


def read_leadership(root: Path) -> Leadership | None:
    """Who leads; ``None`` = nobody ever did.

    Raises:
        NotLeaderError: The file is damaged: to guess an epoch could let two planners publish.
    """
    path = root / LEADER
    try:
        return Leadership(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise NotLeaderError(f"{path} is damaged ({error}); remove it once no planner runs") from error
