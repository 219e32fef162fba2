"""What experience says of each way to a site: failures shut it, silence shuts it, and it comes back step by step.

A way is a pair (origin, site): a cut link is no fault of the site for others. Its states:

``open``     no limit.
``shunned``  nothing is sent for a dwell time, which doubles with each relapse.
``trial``    a few requests at a time; each first token lets in one more, a failure shuts the way again. Once
             ``FULL_TRIAL`` would be let in the way is open.

A way is shut by failures that are frequent among what ended lately, by several in a row without a sign of life
between them, or by silence: it owes first tokens and has sent no sign of life for too long. Clients' time-outs
before the first token count as failures. Slowness is no failure: it is a factor on predicted times, learned from
observed ones, and relative to the fastest way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

State = Literal["open", "shunned", "trial"]
End = Literal["good", "bad", "given_up", "other"]
FULL_TRIAL = 64
MOST_RELAPSES = 4
RATE_HALF_LIFE_S = 10.0
LEAST_BAD, BAD_SHARE = 3.0, 0.5
"""A way is shut when so many of what ended lately were failures, and so large a share."""
QUIET_S = 1.0
"""Failures in a row shut a way if the last sign of life is older than this; one crash ends many at once."""
LEARNING = 0.05
"""Weight of one observed time in the learned slowness."""
MOST_SLOW = 8.0
CLIP = math.log(4.0)
"""One observation counts as at most four times, or at least a quarter of, what was predicted."""
SLOW_SAMPLES = 20
LEAST_LATE_S = 1.0
RELAPSE_S = 120.0
"""A way that has been open this long starts again with the shortest dwell time."""
Key = tuple[int, int]
"""Request id and attempt."""


@dataclass(slots=True)
class Way:
    """Experience with one way."""

    state: State = "open"
    until_s: float = 0.0
    relapses: int = 0
    opened_s: float = -math.inf
    allowed: int = 0
    good: float = 0.0
    bad: float = 0.0
    rated_s: float = 0.0
    sign_s: float = -math.inf
    in_a_row: int = 0
    log_ratio: float = 0.0
    samples: int = 0
    judged: set[Key] = field(default_factory=set)
    """Attempts in flight, sent since the way was last shut: those before say nothing about the time after."""
    waiting: dict[Key, tuple[float, float]] = field(default_factory=dict)
    """Those of them without a first token: when sent, and the predicted time to it; oldest first."""


class Trust:
    """All ways of one router.

    Args:
        dwell_s: Shortest time that a way stays shut.
        silence_s: Shortest silence that shuts it.
        trial: Requests at a time when it comes back.
    """

    def __init__(self, dwell_s: float, silence_s: float, trial: int) -> None:
        self._dwell_s = dwell_s
        self._silence_s = silence_s
        self._trial = trial
        self._ways: dict[tuple[str, str], Way] = {}
        # Where callers tell of no first tokens, their absence says nothing.
        self._told = False

    def way(self, origin: str, site: str) -> Way:
        """Experience with a way; a new one is trusted."""
        found = self._ways.get((origin, site))
        if found is None:
            found = self._ways[origin, site] = Way()
        return found

    def state(self, origin: str, site: str, now_s: float) -> State:
        """The state now: the passing of time shuts a silent way, and lets one that was shut try again."""
        way = self.way(origin, site)
        if self._told and way.waiting and way.state != "shunned":
            sent_s, predicted_s = next(iter(way.waiting.values()))
            if now_s - max(sent_s, way.sign_s) > max(self._silence_s, 3.0 * predicted_s):
                self._shut(way, now_s)
        if way.state == "shunned" and now_s >= way.until_s:
            way.state, way.allowed = "trial", self._trial
        return way.state

    def may_send(self, origin: str, site: str, now_s: float) -> bool:
        """Whether the way takes one more request now."""
        state = self.state(origin, site, now_s)
        way = self.way(origin, site)
        return state == "open" or (state == "trial" and len(way.judged) < way.allowed)

    def slowness(self, origin: str, sites: list[str]) -> list[float]:
        """How many times longer than predicted each way takes, beside the fastest of them; 1 to ``MOST_SLOW``."""
        ways = [self._ways.get((origin, site)) for site in sites]
        known = [way.log_ratio for way in ways if way is not None and way.samples >= SLOW_SAMPLES]
        if len(known) < 2:
            return [1.0] * len(sites)
        least = min(known)
        return [
            min(math.exp(way.log_ratio - least), MOST_SLOW)
            if way is not None and way.samples >= SLOW_SAMPLES
            else 1.0
            for way in ways
        ]

    def sent(self, key: Key, origin: str, site: str, now_s: float, predicted_s: float) -> None:
        """A request was sent, and its first token is expected after ``predicted_s``."""
        way = self.way(origin, site)
        way.judged.add(key)
        way.waiting[key] = (now_s, predicted_s)

    def first_token(self, key: Key, origin: str, site: str, now_s: float, ttft_s: float) -> None:
        """Its first token came: a sign of life, and one more measured time."""
        way = self.way(origin, site)
        way.sign_s, way.in_a_row, self._told = now_s, 0, True
        held = way.waiting.pop(key, None)
        if held is not None and held[1] > 0.0:
            observed = min(max(math.log(max(ttft_s, 1e-6) / held[1]), -CLIP), CLIP)
            way.samples += 1
            way.log_ratio += max(LEARNING, 1.0 / way.samples) * (observed - way.log_ratio)
        if key in way.judged:
            self._let_in(way, now_s)

    def ended(self, key: Key, origin: str, site: str, now_s: float, end: End) -> None:
        """An attempt ended: ``given_up`` = by its client without a first token, ``other`` = nobody's fault.

        A client that gives up counts as a failure only if it has waited far longer than predicted.
        """
        way = self.way(origin, site)
        held = way.waiting.pop(key, None)
        if key not in way.judged:
            return
        way.judged.remove(key)
        if end == "good":
            way.sign_s, way.in_a_row = now_s, 0
            if held is not None:  # its caller told of no first token
                self._let_in(way, now_s)
        late = end == "given_up" and held is not None and now_s - held[0] > max(LEAST_LATE_S, 3.0 * held[1])
        if late or end in ("good", "bad"):
            self._rate(way, now_s, end != "good")

    def failed(self, site: str, now_s: float, origin: str = "") -> None:
        """The site, or the way from one origin to it, is known to be broken: shut it at once."""
        ways = [way for (start, end), way in self._ways.items() if end == site and origin in ("", start)]
        if origin and not ways:
            ways = [self.way(origin, site)]
        for way in ways:
            if way.state != "shunned":
                self._shut(way, now_s)

    def _let_in(self, way: Way, now_s: float) -> None:
        """One more at a time, if the way is on trial."""
        if way.state == "trial":
            way.allowed += 1
            if way.allowed >= FULL_TRIAL:
                way.state, way.opened_s = "open", now_s

    def _rate(self, way: Way, now_s: float, bad: bool) -> None:
        fade = 0.5 ** (max(now_s - way.rated_s, 0.0) / RATE_HALF_LIFE_S)
        way.good, way.bad, way.rated_s = way.good * fade, way.bad * fade, now_s
        if not bad:
            way.good += 1.0
            return
        way.bad += 1.0
        way.in_a_row += 1
        many = way.bad >= LEAST_BAD and way.bad >= BAD_SHARE * (way.good + way.bad)
        dead = way.in_a_row >= LEAST_BAD and now_s - way.sign_s > QUIET_S
        if way.state == "trial" or (way.state == "open" and (many or dead)):
            self._shut(way, now_s)

    def _shut(self, way: Way, now_s: float) -> None:
        if way.state == "open" and now_s - way.opened_s > RELAPSE_S:
            way.relapses = 0
        way.state, way.until_s = "shunned", now_s + self._dwell_s * 2.0**way.relapses
        way.relapses = min(way.relapses + 1, MOST_RELAPSES)
        way.good = way.bad = 0.0
        way.in_a_row = 0
        way.judged.clear()
        way.waiting.clear()
