"""Tells another program about each new version of the plan: a signed POST with a deadline and retries.

The body is JSON; ``X-TokenFleet-Signature`` is ``sha256=`` and the HMAC of ``TIME.BODY`` under the shared secret,
where TIME is the text of ``X-TokenFleet-Time``. The receiver checks both, and may see a version more than once:
the ``X-TokenFleet-Delivery`` of a repeat is the same. A receiver that missed one finds everything in the store.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from data.errors import SettingError
from data.plan_rules import PLAN_BOOK
from data.strict.encode import to_plain
from planner.plan_store.entry import entry_to_dict
from planner.plan_store.layout import Published

LOG = logging.getLogger("tokenfleet.planner")
MOST_WAITING = 100
CLIENT_FAULTS = (408, 425, 429)
"""Answers of 4xx that may be different the next time; after the others a repeat is no use."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where to and how.

    Attributes:
        url: Receiver.
        secret: Shared secret, 16 bytes or more; empty = not signed.
        timeout_s: Deadline of one attempt (above 0).
        attempts: Attempts of one delivery (1 to 20).
        backoff_s: Pause before the second attempt, doubled before each further one (0 or more).
    """

    url: str
    secret: bytes = b""
    timeout_s: float = 5.0
    attempts: int = 5
    backoff_s: float = 1.0

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise SettingError("not an address", field="webhook", value=self.url, expected="http:// or https://")
        if self.secret and len(self.secret) < 16:
            raise SettingError("too short", field="webhook secret", expected="16 bytes or more")
        if not self.timeout_s > 0:
            raise SettingError("out of range", field="timeout_s", value=self.timeout_s, expected="above 0")
        if not 1 <= self.attempts <= 20:
            raise SettingError("out of range", field="attempts", value=self.attempts, expected="1 to 20")
        if not self.backoff_s >= 0:
            raise SettingError("out of range", field="backoff_s", value=self.backoff_s, expected="0 or more")


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of one: whether it was taken, after how many attempts, and the last answer or error."""

    taken: bool
    attempts: int
    answer: str


class Webhook:
    """Delivers in the background, in order.

    Args:
        settings: Where to and how.
        sleep: Waits between attempts.
        clock: Seconds since the epoch.

    Attributes:
        taken, failed: Deliveries so far.
    """

    def __init__(
        self,
        settings: WebhookSettings,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._sleep, self._clock = sleep, clock
        self._waiting: queue.Queue[Published | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name="tokenfleet-webhook", daemon=True)
        self.taken = self.failed = 0

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def tell(self, published: Published) -> None:
        """Deliver soon. While a hundred wait, the oldest makes room: the newest version matters."""
        while True:
            try:
                self._waiting.put_nowait(published)
                return
            except queue.Full:
                try:
                    self._waiting.get_nowait()
                    self.failed += 1
                except queue.Empty:
                    continue

    def close(self, wait_s: float) -> None:
        """Deliver what waits, for at most so long."""
        try:
            self._waiting.put(None, timeout=wait_s)
        except queue.Full:
            return
        self._thread.join(wait_s)

    def deliver(self, published: Published) -> Delivery:
        """Deliver now, with all attempts."""
        body = message(published)
        pause_s, answer = self._settings.backoff_s, ""
        for attempt in range(1, self._settings.attempts + 1):
            status, answer = asyncio.run(self._post(body, published))
            if 200 <= status < 300:
                return Delivery(True, attempt, answer)
            if 400 <= status < 500 and status not in CLIENT_FAULTS:
                return Delivery(False, attempt, answer)
            if attempt < self._settings.attempts:
                self._sleep(pause_s)
                pause_s *= 2.0
        return Delivery(False, self._settings.attempts, answer)

    async def _post(self, body: bytes, published: Published) -> tuple[int, str]:
        at = f"{self._clock():.0f}"
        headers = {
            "Content-Type": "application/json",
            "X-TokenFleet-Time": at,
            "X-TokenFleet-Delivery": f"{published.entry.epoch}-{published.entry.version}",
        }
        if self._settings.secret:
            headers["X-TokenFleet-Signature"] = signature(self._settings.secret, at, body)
        limit = aiohttp.ClientTimeout(total=self._settings.timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit) as session,
                session.post(self._settings.url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                return answer.status, f"{answer.status} {answer.reason}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return 0, f"{type(error).__name__}: {error}"

    def _work(self) -> None:
        while (published := self._waiting.get()) is not None:
            done = self.deliver(published)
            if done.taken:
                self.taken += 1
            else:
                self.failed += 1
                version = published.entry.version
                LOG.warning("webhook missed version %d: %s", version, done.answer)


def message(published: Published) -> bytes:
    """Body of a delivery: the store's entry and the whole plan."""
    content: dict[str, Any] = {
        "event": published.entry.kind.value,
        "entry": entry_to_dict(published.entry),
        "plan": to_plain(published.plan, PLAN_BOOK),
    }
    return json.dumps(content, ensure_ascii=False).encode()


def signature(secret: bytes, time_text: str, body: bytes) -> str:
    """Value of the signature header."""
    return "sha256=" + hmac.new(secret, time_text.encode() + b"." + body, hashlib.sha256).hexdigest()
