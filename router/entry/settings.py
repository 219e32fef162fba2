"""How an entry router treats the routers of its sites: what it waits for, believes, tries again and keeps."""

from __future__ import annotations

from dataclasses import dataclass

from data.errors import SettingError
from router.policies.settings import Checked, above, between, whole


@dataclass(frozen=True, slots=True)
class EntrySettings(Checked):
    """Settings of an entry router.

    Attributes:
        period_s: Pause between two capacity reports of a site.
        stale_s: A site without a report for longer is uncertain: what it said counts, and less with its age.
        gone_s: ... and one without for longer than this is not used, and calls that wait there go elsewhere.
        fallbacks: Other sites that a request may be handed to after the first one failed it.
        call_s: Time limit of a question whose caller sets none.
        report_s: Time limit of one delivery of outcomes to a site.
        held_reports: Outcomes kept for each site that can't be reached; beyond it the oldest go, counted.
        held_s: How long they are kept.
        leases: Placements remembered, so that outcomes tell of the site and a question asked again gets the same
            answer; beyond it outcomes are handed on all the same.
    """

    period_s: float = between(0.05, 60.0, 0.25)
    stale_s: float = above(0.0, 1.0)
    gone_s: float = above(0.0, 2.0)
    fallbacks: int = whole(0, 2)
    call_s: float = above(0.0, 120.0)
    report_s: float = above(0.0, 5.0)
    held_reports: int = whole(1, 10_000)
    held_s: float = above(0.0, 60.0)
    leases: int = whole(1, 200_000)

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if not self.period_s < self.stale_s < self.gone_s:
            raise SettingError(
                "settings in a wrong order",
                field="period_s, stale_s, gone_s",
                value=f"{self.period_s:g}, {self.stale_s:g}, {self.gone_s:g}",
                expected="each above the one before",
            )
