"""Settings of a simulated run: what the router cannot see at once, what breaks, what clients do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from data.errors import SettingError


@dataclass(frozen=True, slots=True)
class FailureEvent:
    """Something that goes wrong with one endpoint at a moment.

    Attributes:
        at_s: When, seconds on the trace's clock; a moment before the first arrival counts as that.
        endpoint: Row number of the endpoint.
        kind: ``crash`` (in-flight work fails, cache lost, restarts after ``duration_s``), ``slow`` (steps take
            ``factor`` times as long for ``duration_s``), ``hang`` (accepts work, makes no progress).
    """

    at_s: float
    endpoint: int
    kind: Literal["crash", "slow", "hang"]
    duration_s: float
    factor: float = 2.0

    def __post_init__(self) -> None:
        checks = (
            ("at_s", self.at_s >= 0, "0 or more"),
            ("kind", self.kind in ("crash", "slow", "hang"), "crash, slow or hang"),
            ("duration_s", self.duration_s >= 0, "0 or more"),
            ("factor", self.factor > 0, "above 0"),
        )
        for name, ok, expected in checks:
            if not ok:
                value = getattr(self, name)
                raise SettingError("failure out of range", field=name, value=value, expected=expected)


@dataclass(frozen=True, slots=True)
class SiteFailure:
    """Something that goes wrong with a whole site, or with the link between two, at a moment.

    Attributes:
        at_s: When, seconds on the trace's clock; a moment before the first arrival counts as that.
        site: Name of the site.
        kind: ``loss`` (every engine crashes and restarts after ``duration_s``), ``slow`` (steps of every engine
            take ``factor`` times as long), ``link_cut`` (nothing passes between ``site`` and ``peer``, load
            reports included; nobody is told).
        duration_s: How long it lasts.
        factor: Of ``slow``.
        peer: Other end of a cut link.
        notice_s: A sender notices a dead connection after so long.
    """

    at_s: float
    site: str
    kind: Literal["loss", "slow", "link_cut"]
    duration_s: float
    factor: float = 2.0
    peer: str = ""
    notice_s: float = 2.0

    def __post_init__(self) -> None:
        checks = (
            ("at_s", self.at_s >= 0, "0 or more"),
            ("kind", self.kind in ("loss", "slow", "link_cut"), "loss, slow or link_cut"),
            ("duration_s", self.duration_s >= 0, "0 or more"),
            ("factor", self.factor > 0, "above 0"),
            ("peer", (self.kind == "link_cut") == bool(self.peer), "another site for link_cut, else nothing"),
            ("peer", self.peer != self.site, "another site"),
            ("notice_s", 0 <= self.notice_s < math.inf, "0 or more"),
        )
        for name, ok, expected in checks:
            if not ok:
                value = getattr(self, name)
                raise SettingError("failure out of range", field=name, value=value, expected=expected)


@dataclass(frozen=True, slots=True)
class SimSettings:
    """Settings of one run; every random draw comes from ``seed``.

    Attributes:
        scrape_period_s: Engines' load reports are sampled this often (0.001 to 1,000,000).
        scrape_delay_s: A report becomes visible this long after its sample (>= 0).
        kv_event_lag_s: A stored or removed block becomes visible in the prefix index this long after (>= 0).
        step_noise: Standard deviation of the relative step-time noise (0 to 0.5).
        client_timeout_s: A client cancels when it has waited this long; ``None`` = the class's own, if any.
        cancel_share: Share of requests whose client cancels at a random moment (0 to 1).
        retries: Attempts after a failure or refusal (>= 0); a cancel is never retried.
        retry_backoff_s: Wait before attempt k is ``retry_backoff_s * 2**(k-1)``.
        failures: Which endpoints break, and when.
        site_failures: Which sites and links do.
        time_limit_s: The run ends at this moment of the trace's clock; what still runs counts as running.
            ``None`` = drain.
        timeline_s: Initial width of one point of the timeline; it doubles when a run outgrows 512 points.
    """

    seed: int = 0
    scrape_period_s: float = 0.25
    scrape_delay_s: float = 0.05
    kv_event_lag_s: float = 0.01
    step_noise: float = 0.02
    client_timeout_s: float | None = None
    cancel_share: float = 0.0
    retries: int = 0
    retry_backoff_s: float = 0.5
    failures: tuple[FailureEvent, ...] = ()
    site_failures: tuple[SiteFailure, ...] = ()
    time_limit_s: float | None = None
    timeline_s: float = 5.0

    def __post_init__(self) -> None:
        checks = (
            ("scrape_period_s", 1e-3 <= self.scrape_period_s <= 1e6, "0.001 to 1,000,000"),
            ("scrape_delay_s", 0 <= self.scrape_delay_s < math.inf, "0 or more"),
            ("kv_event_lag_s", 0 <= self.kv_event_lag_s < math.inf, "0 or more"),
            ("step_noise", 0 <= self.step_noise <= 0.5, "0 to 0.5"),
            (
                "client_timeout_s",
                self.client_timeout_s is None or self.client_timeout_s > 0,
                "above 0, or none",
            ),
            ("cancel_share", 0 <= self.cancel_share <= 1, "0 to 1"),
            ("retries", self.retries >= 0, "0 or more"),
            ("retry_backoff_s", self.retry_backoff_s >= 0, "0 or more"),
            ("time_limit_s", self.time_limit_s is None or self.time_limit_s > 0, "above 0, or none"),
            ("timeline_s", self.timeline_s > 0, "above 0"),
        )
        for name, ok, expected in checks:
            if not ok:
                raise SettingError(
                    "setting out of range", field=name, value=getattr(self, name), expected=expected
                )


def endpoint_failures(failures: tuple[SiteFailure, ...], sites: Sequence[str]) -> tuple[FailureEvent, ...]:
    """What the failures of whole sites mean for their endpoints; cut links break no engine.

    Args:
        failures: Of sites and links.
        sites: Site of each endpoint.

    Raises:
        SettingError: A site has no endpoint.
    """
    kinds: dict[str, Literal["crash", "slow", "hang"]] = {"loss": "crash", "slow": "slow"}
    found = []
    for one in failures:
        if one.kind == "link_cut":
            continue
        rows = [row for row, site in enumerate(sites) if site == one.site]
        if not rows:
            expected = "one of " + ", ".join(sorted(set(sites)))
            raise SettingError("no endpoint at this site", field="site", value=one.site, expected=expected)
        found += [FailureEvent(one.at_s, row, kinds[one.kind], one.duration_s, one.factor) for row in rows]
    return tuple(found)
