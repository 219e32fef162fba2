"""The knobs of the feedback; docs/feedback.md tells how to set them."""

from __future__ import annotations

from dataclasses import dataclass

from data.errors import SettingError
from router.policies.settings import Checked, above, at_least, between, whole


@dataclass(frozen=True, slots=True)
class FeedbackSettings(Checked):
    """Periods, bands and steps.

    Attributes:
        step_s: Corrections change this often at most, seconds.
        least_requests: Ended requests that one judgement needs.
        attain_low: Below this attainment less is let in.
        attain_high: From this attainment on more is let in. Between the two nothing changes.
        most_cut: Share of the admitted load that one step takes away at most.
        least_raise, most_raise: Share of the arrivals that the first and the largest step gives back.
        most_backoff: After failed raises the next one waits for up to this many judgements.
        admission_floor: At least this share of the arrivals is let in.
        settle_s: Longest wait for the effect of a change, seconds; else the mean response time.
        capacity_low, capacity_high: Range of the factor on planned rates.
        capacity_tau_s: Time constant of measured over planned Goodput, seconds.
        capacity_step: Largest change of the factor in one step.
        capacity_band: Differences up to this are left alone.
        forget_s: Time constant with which a factor without evidence returns to 1, seconds.
        debt_tau_s: Time constant with which a tenant's debt is forgotten, seconds.
        debt_full_s: A debt of this many seconds of the guarantee has its full effect.
        debt_gain: The factor of a tenant with a full debt is 1 plus this.
        repeat_budget: Further attempts for each first one that are never limited.
        repeat_step: Largest change of the share of further attempts in one step.
    """

    step_s: float = above(0.0, 5.0)
    least_requests: int = whole(1, 20)
    attain_low: float = between(0.0, 1.0, 0.85)
    attain_high: float = between(0.0, 1.0, 0.93)
    most_cut: float = between(0.01, 0.9, 0.3)
    least_raise: float = between(0.001, 0.5, 0.02)
    most_raise: float = between(0.001, 0.5, 0.1)
    most_backoff: int = whole(1, 32)
    admission_floor: float = between(0.01, 1.0, 0.1)
    settle_s: float = above(0.0, 30.0)
    capacity_low: float = between(0.05, 1.0, 0.6)
    capacity_high: float = between(1.0, 2.0, 1.1)
    capacity_tau_s: float = above(0.0, 120.0)
    capacity_step: float = between(0.001, 1.0, 0.05)
    capacity_band: float = between(0.0, 0.5, 0.02)
    forget_s: float = above(0.0, 1800.0)
    debt_tau_s: float = above(0.0, 300.0)
    debt_full_s: float = above(0.0, 30.0)
    debt_gain: float = at_least(0.0, 1.0)
    repeat_budget: float = at_least(0.01, 0.2)
    repeat_step: float = between(0.01, 1.0, 0.25)

    def __post_init__(self) -> None:
        # Named, because a dataclass with slots is made anew and the bare form would look at the one before.
        super(FeedbackSettings, self).__post_init__()
        if self.attain_low >= self.attain_high:
            raise SettingError(
                "the band is empty",
                field="attain_low",
                value=self.attain_low,
                expected=f"below attain_high, {self.attain_high:g}",
            )
        if self.least_raise > self.most_raise:
            raise SettingError(
                "setting out of range",
                field="least_raise",
                value=self.least_raise,
                expected=f"at most most_raise, {self.most_raise:g}",
            )
