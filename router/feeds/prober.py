"""Probe endpoints until each has answered a completion: beside scrapes and decisions, a bounded number at a time.

Every endpoint has a task of its own that ends with its first good answer, so a slow engine holds up nobody else as
long as fewer than ``concurrency`` are slow at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from router.feeds.completion_probe import CompletionProbe, ProbeError, ProbeTarget
from router.feeds.log_gate import LogGate
from router.feeds.probe_settings import ProbeSettings

LOG = logging.getLogger("tokenfleet.probe")
_JITTER = 0.2
PASSED = "passed"
"""Result of a good probe, beside the failures, in ``Prober.counts``."""


class Prober:
    """Probes targets until they pass or are removed. Belongs to one event loop.

    Args:
        settings: Bounds and pauses.
        probe: Asks an engine.
        on_passed: Told of an endpoint that has answered; nothing more is sent there.
        on_failed: Told of every failure with its reason.
        clock: Seconds, for the log.
        rng: Jitter of the pauses.
    """

    def __init__(
        self,
        settings: ProbeSettings,
        probe: CompletionProbe,
        on_passed: Callable[[str], None],
        on_failed: Callable[[str, str], None],
        clock: Callable[[], float],
        rng: np.random.Generator,
    ) -> None:
        self._settings = settings
        self._probe = probe
        self._on_passed = on_passed
        self._on_failed = on_failed
        self._clock = clock
        self._rng = rng
        self._places = asyncio.Semaphore(settings.concurrency)
        self.targets: dict[str, ProbeTarget] = {}
        """What is probed, proven or not, by endpoint id."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.counts: dict[str, Counter[str]] = {}
        """Probes of each endpoint since it was added, by result."""
        self._unasked: set[str] = set()
        self._all_asked = asyncio.Event()
        self._all_asked.set()

    def apply(self, targets: Mapping[str, ProbeTarget], unproven: Iterable[str]) -> None:
        """Make these the targets, by endpoint id, and probe those that are not proven.

        A probe under way goes on if its target is the same; that of a target that left or changed ends at once.
        """
        for name in [name for name, target in self.targets.items() if targets.get(name) != target]:
            self._stop(name)
            del self.counts[name]
        self.targets = dict(targets)
        for name in targets:
            self.counts.setdefault(name, Counter())
        begun = [name for name in unproven if name in targets and name not in self._tasks]
        for name in begun:
            self._start(name)
        if begun:
            LOG.info("probing %d endpoints with a completion of one token each", len(begun))

    def again(self, endpoint_id: str) -> None:
        """The process behind an endpoint is another one: what was asked of the old one counts no more."""
        if endpoint_id in self.targets:
            self._stop(endpoint_id)
            self._start(endpoint_id)

    async def all_asked(self, limit_s: float) -> None:
        """Wait until every endpoint that is being probed has been asked once, ``limit_s`` at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._all_asked.wait()

    async def close(self) -> None:
        """Stop everything and wait until it has stopped."""
        tasks = list(self._tasks.values())
        for name in list(self._tasks):
            self._stop(name)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._probe.close()

    def _start(self, name: str) -> None:
        self._unasked.add(name)
        self._all_asked.clear()
        task = self._run(self.targets[name])
        self._tasks[name] = asyncio.get_running_loop().create_task(task, name=f"probe {name}")

    def _stop(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
        self._asked(name)

    def _asked(self, name: str) -> None:
        self._unasked.discard(name)
        if not self._unasked:
            self._all_asked.set()

    async def _run(self, target: ProbeTarget) -> None:
        gate, began_s, name = LogGate(), self._clock(), target.endpoint_id
        pause_s = self._settings.first_pause_s
        while True:
            try:
                async with self._places:
                    await self._probe.ask(target)
                break
            except ProbeError as error:
                self._failed(target, error, gate)
            await asyncio.sleep(pause_s * (1.0 + _JITTER * (2.0 * self._rng.random() - 1.0)))
            pause_s = min(2.0 * pause_s, self._settings.longest_pause_s)
        self._tasks.pop(name, None)
        self.counts[name][PASSED] += 1
        text = "%s answers for %s after %.1f s and %d failed probes: it takes requests"
        LOG.info(text, name, target.model, self._clock() - began_s, gate.total)
        self._on_passed(name)
        self._asked(name)

    def _failed(self, target: ProbeTarget, error: ProbeError, gate: LogGate) -> None:
        self.counts[target.endpoint_id][error.reason] += 1
        if gate.failed(self._clock()):
            text = "%s at %s takes no requests, its probe failed (%s, %d in a row): %s"
            LOG.warning(text, target.endpoint_id, target.address, error.reason, gate.in_a_row, error)
        self._on_failed(target.endpoint_id, error.reason)
        self._asked(target.endpoint_id)
