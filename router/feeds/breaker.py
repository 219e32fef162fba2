"""Circuit breaker of one endpoint: how much new traffic it may take, from what became of the traffic before.

Three kinds of evidence. *Failures* (5xx, refused or lost connections, time-outs after the first token) count in a
row. *Silence*: requests wait longer than they ever should and nothing at all comes back, or clients give up on
them. *Life*: a first token or a completed request. What clients did wrong (4xx) says nothing, and 429 is load, not
illness.

An endpoint in trouble comes back step by step: one probe, then twice as many, until it is trusted again.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from math import inf, nan

from data.errors import SettingError


class Phase(enum.Enum):
    """What an endpoint may take."""

    CLOSED = "closed"
    """Everything."""
    SUSPECT = "suspect"
    """Nothing new until one of its waiting requests shows whether it lives."""
    OPEN = "open"
    """Nothing until the pause is over."""
    HALF_OPEN = "half_open"
    """One probe at a time."""
    RAMP = "ramp"
    """A few requests at a time, more with each sign of life."""


class Ending(enum.Enum):
    """How an attempt ended, as far as the health of its endpoint goes."""

    COMPLETED = "completed"
    SERVER_ERROR = "server_error"
    """5xx, or an error inside the stream."""
    CONNECT_ERROR = "connect_error"
    """Refused, reset or lost connection."""
    TIMEOUT = "timeout"
    """The caller's time-out."""
    CANCELLED = "cancelled"
    """By the client."""
    CLIENT_ERROR = "client_error"
    """4xx but 429: the request was wrong."""
    THROTTLED = "throttled"
    """429: the engine is full."""
    UNTOLD = "untold"
    """Nobody told: the lease expired, or the endpoint or the router has gone."""


def ending_of_status(status: int) -> Ending:
    """What an HTTP status before the first token says; 2xx counts as completed."""
    if status == 429:
        return Ending.THROTTLED
    if 400 <= status < 500:
        return Ending.CLIENT_ERROR
    return Ending.SERVER_ERROR if status >= 500 else Ending.COMPLETED


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """When an endpoint is no longer trusted, and how it comes back.

    Attributes:
        failures_to_open: Failures in a row that open the breaker (1 or more).
        silent_to_open: Requests in a row given up before their first token that open it, once the silence has
            lasted as long as a single one would have to (1 or more).
        pause_s: First pause of an open breaker (above 0); each further one is twice as long.
        silent_pause_factor: A pause for silence is at least this many times what the request that opened the
            breaker had waited (0 or more): the next probe may cost its caller as long again.
        longest_pause_s: Longest pause (at least ``pause_s``).
        patience_factor: A request without a first token after this many times its predicted P99 TTFT is overdue
            (1 or more).
        least_patience_s: No request is overdue before this (above 0).
        doubt_factor: A request without a first token after this many times its predicted P99 TTFT, while nothing
            came from its endpoint, makes the endpoint a second choice (0 or more, at most ``patience_factor``).
        unpredicted_p99_s: P99 TTFT of requests that come without a prediction, until first tokens were seen
            (above 0).
        trusted_after: Signs of life at a time that end the ramp (1 or more).
        most_suspected: Share of a model's ready endpoints that silence may take out (0 to 1). Where more are
            silent, the whole pool is slow, and taking endpoints out would make it slower.
        rescue_share: Requests that may be moved off a silent endpoint, as a share of all dispatches (0 to 1).
        rescue_burst: As many may be moved at once after a quiet time (0 or more).
    """

    failures_to_open: int = 3
    silent_to_open: int = 3
    pause_s: float = 5.0
    silent_pause_factor: float = 5.0
    longest_pause_s: float = 60.0
    patience_factor: float = 3.0
    least_patience_s: float = 0.25
    doubt_factor: float = 1.0
    unpredicted_p99_s: float = 5.0
    trusted_after: int = 16
    most_suspected: float = 0.5
    rescue_share: float = 0.1
    rescue_burst: float = 16.0

    def __post_init__(self) -> None:
        for name in ("failures_to_open", "silent_to_open", "patience_factor", "trusted_after"):
            self._check(name, getattr(self, name) >= 1, "1 or more")
        for name in ("pause_s", "least_patience_s", "unpredicted_p99_s"):
            self._check(name, 0 < getattr(self, name) < inf, "above 0")
        self._check("longest_pause_s", self.longest_pause_s >= self.pause_s, "at least pause_s")
        for name in ("most_suspected", "rescue_share"):
            self._check(name, 0 <= getattr(self, name) <= 1, "0 to 1")
        self._check("doubt_factor", 0 <= self.doubt_factor <= self.patience_factor, "0 to patience_factor")
        for name in ("rescue_burst", "silent_pause_factor"):
            self._check(name, 0 <= getattr(self, name) < inf, "0 or more")

    def _check(self, name: str, good: bool, expected: str) -> None:
        if not good:
            value = getattr(self, name)
            raise SettingError("setting out of range", field=name, value=value, expected=expected)


class Breaker:
    """State of one endpoint; the owner tells it the time and decides what silence means."""

    def __init__(self, settings: HealthSettings) -> None:
        self._settings = settings
        self.phase = Phase.CLOSED
        self.reason = ""
        """Why it is not closed: ``failures`` or ``silence``."""
        self.until_s = nan
        """End of the pause; an absolute time, so nothing that happens meanwhile makes it longer."""
        self.opened = 0
        """How often it has opened."""
        self._pause_s = settings.pause_s
        self._failures = 0
        self._cap = inf
        self._probes: set[int] = set()
        self.silent = 0
        """Requests given up without a first token since the last sign of life."""
        self.silent_since_s = nan
        """Dispatch of the first request since the last sign of life."""
        self.silence_patience_s = 0.0
        """Longest patience among the requests since then."""

    def admits(self) -> bool:
        """Whether one more request may be sent."""
        if self.phase is Phase.CLOSED:
            return True
        return self.phase in (Phase.HALF_OPEN, Phase.RAMP) and len(self._probes) < self._cap

    def dispatched(self, lease: int, now_s: float, patience_s: float) -> None:
        """A request was sent."""
        if self.silent_since_s != self.silent_since_s:
            self.silent_since_s = now_s
        self.silence_patience_s = max(self.silence_patience_s, patience_s)
        if self.phase is not Phase.CLOSED:
            self._probes.add(lease)

    def alive(self) -> None:
        """A first token or a completed answer came."""
        self._heard()
        if self.phase in (Phase.SUSPECT, Phase.HALF_OPEN):
            self.phase, self._cap = Phase.RAMP, 2
        elif self.phase is Phase.RAMP:
            self._cap += 1
            if self._cap >= self._settings.trusted_after:
                self._trust()
        elif self.phase is Phase.OPEN and self.reason == "silence":
            # It was slow, not hung.
            self.phase, self._cap = Phase.RAMP, 1

    def answered(self) -> None:
        """The endpoint refused a request: that is no sign of health, but it is not silent either."""
        self._heard()
        if self.phase is Phase.SUSPECT:
            self.phase, self._cap = Phase.HALF_OPEN, 1

    def _heard(self) -> None:
        self.silent = 0
        self.silent_since_s = nan
        self.silence_patience_s = 0.0

    def completed(self) -> None:
        """A request ended well."""
        self._failures = 0

    def failed(self, now_s: float) -> bool:
        """A request failed by the endpoint's fault; whether that opened the breaker."""
        self._failures += 1
        trusted = self.phase is Phase.CLOSED
        if self.phase is Phase.OPEN or (trusted and self._failures < self._settings.failures_to_open):
            return False
        self.open(now_s, "failures")
        return True

    def ended(self, lease: int) -> None:
        """A request is no longer in flight here."""
        self._probes.discard(lease)

    def suspect(self) -> None:
        """Requests are overdue and nothing has come: take nothing new for now."""
        if self.phase is not Phase.OPEN:
            self.phase, self.reason = Phase.SUSPECT, "silence"

    def open(self, now_s: float, reason: str, least_s: float = 0.0) -> None:
        """Pause, for ``least_s`` at least; each pause until the endpoint is trusted again is twice as long as the
        one before."""
        self.phase, self.reason = Phase.OPEN, reason
        pause_s = min(max(self._pause_s, least_s), self._settings.longest_pause_s)
        self.until_s = now_s + pause_s
        self._pause_s = min(2 * pause_s, self._settings.longest_pause_s)
        self.opened += 1
        self._failures = 0
        self._probes.clear()
        self._heard()

    def refresh(self, now_s: float) -> bool:
        """Let the pause end if its time has come; whether it did."""
        if self.phase is not Phase.OPEN or now_s < self.until_s:
            return False
        self.phase, self._cap = Phase.HALF_OPEN, 1
        return True

    def _trust(self) -> None:
        self.phase, self.reason, self._cap = Phase.CLOSED, "", inf
        self._pause_s = self._settings.pause_s
        self._probes.clear()
