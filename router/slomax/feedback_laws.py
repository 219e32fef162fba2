"""The four control laws of the feedback. Each is a small state that one call moves by one bounded step.

(1) Admission: below the band the share is cut in proportion to the attainment, above it is raised by steps that
    grow while they succeed and stay small near the share at which one failed. A raise that failed is taken back,
    and the next one waits twice as long, so that under a constant load the changes die out instead of going back
    and forth.
(2) Capacity: an average of measured over planned Goodput, published with a dead band and a largest step.
(3) Debt: guarantee less delivered, forgotten exponentially, never below 0 nor above its full effect.
(4) Repeats: limited to a budget once they come in floods *and* targets are missed; released when the flood is
    over, not when the targets are met again: else the release would bring it back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from router.slomax.feedback_settings import FeedbackSettings

Judgement = Literal["changed", "judged", "unclear"]
"""The share changed; nothing to change; or the evidence says neither and is kept until there is more."""
RAISE_GROWTH = 1.5
NO_CEILING = 2.0
LOAD_FELL = 0.85
"""A load below this share of the load at the last cut ends the wait for the next raise."""


def toward(value: float, target: float, most_step: float, band: float) -> float:
    """One step from ``value`` to ``target``: none within the band, never longer than ``most_step``."""
    difference = target - value
    if abs(difference) <= band:
        return value
    return value + min(max(difference, -most_step), most_step)


def blend(value: float, sample: float, dt_s: float, tau_s: float) -> float:
    """Exponential average after ``dt_s`` seconds of ``sample``."""
    if dt_s <= 0.0:
        return value
    return sample + (value - sample) * math.exp(-dt_s / tau_s)


@dataclass(slots=True)
class Admission:
    """Law (1).

    Attributes:
        share: Of the arrivals that may be let in.
        raise_by: The next raise.
        wait: Judgements above the band until it.
        backoff: What a failed raise sets ``wait`` to.
        raised: Whether the last change was a raise.
        before: Share before the last raise.
        ceiling: Share at which a raise last failed; near it raises are small. ``NO_CEILING`` if none did.
        load_at_cut: Offered tokens/s at the last cut.
    """

    share: float = 1.0
    raise_by: float = 0.0
    wait: int = 0
    backoff: int = 1
    raised: bool = False
    before: float = 1.0
    ceiling: float = NO_CEILING
    load_at_cut: float = 0.0

    def step(self, attainment: float, load: float, settings: FeedbackSettings, margin: float = 0.0) -> Judgement:
        """Judge one window.

        Args:
            attainment: Share of the ended requests that met their targets.
            load: Offered tokens/s, refused ones included.
            settings: Bands and steps.
            margin: Uncertainty of the attainment: it must be outside the band by more than this.
        """
        if attainment + margin < settings.attain_low:
            return "changed" if self._cut(attainment, load, settings) else "judged"
        if attainment - margin < settings.attain_high:
            return "unclear"
        if self.share >= 1.0:
            return "judged"
        if load < LOAD_FELL * self.load_at_cut:
            self.wait, self.backoff, self.ceiling = 0, 1, NO_CEILING
        if self.wait > 0:
            self.wait -= 1
            return "judged"
        if self.share >= self.ceiling:
            self.ceiling = NO_CEILING
        step = max(self.raise_by, settings.least_raise)
        if self.share + step >= self.ceiling:
            step = settings.least_raise
        self.before, self.share = self.share, min(self.share + step, 1.0)
        self.raise_by = min(step * RAISE_GROWTH, settings.most_raise)
        self.raised = True
        if self.share >= 1.0:
            self.backoff = 1
        return "changed"

    def _cut(self, attainment: float, load: float, settings: FeedbackSettings) -> bool:
        lowest = max(self.share * (1.0 - settings.most_cut), settings.admission_floor)
        if self.raised:
            self.backoff = min(2 * self.backoff, settings.most_backoff)
            self.ceiling = self.share
            # A large raise has left a queue behind: the share goes below what was good before, until it is served.
            beyond = max(self.share - self.before - settings.least_raise, 0.0)
            cut = max(self.before - beyond, lowest)
        else:
            cut = max(self.share * attainment / settings.attain_high, lowest)
        changed = cut != self.share
        self.share, self.raise_by, self.raised = cut, settings.least_raise, False
        self.wait, self.load_at_cut = self.backoff, load
        return changed


@dataclass(slots=True)
class Capacity:
    """Law (2): ``average`` of the samples, ``factor`` published."""

    average: float = 1.0
    factor: float = 1.0

    def step(self, sample: float | None, dt_s: float, settings: FeedbackSettings) -> None:
        """Take in measured over planned Goodput; ``None`` = nothing was learned, the factor goes back to 1."""
        low, high = settings.capacity_low, settings.capacity_high
        if sample is None:
            self.average = blend(self.average, 1.0, dt_s, settings.forget_s)
        else:
            self.average = blend(self.average, min(max(sample, low), high), dt_s, settings.capacity_tau_s)
        self.factor = toward(self.factor, self.average, settings.capacity_step, settings.capacity_band)


@dataclass(slots=True)
class Debt:
    """Law (3): ``seconds`` of the guarantee that were not delivered."""

    seconds: float = 0.0

    def step(self, share: float, dt_s: float, settings: FeedbackSettings) -> None:
        """After ``dt_s`` in which ``share`` of what was due came; more than 1 repays."""
        kept = self.seconds * math.exp(-dt_s / settings.debt_tau_s)
        self.seconds = min(max(kept + (1.0 - share) * dt_s, 0.0), settings.debt_full_s)

    def factor(self, settings: FeedbackSettings) -> float:
        """Factor on the tenant's weight, from 1 to 1 plus the gain."""
        return 1.0 + settings.debt_gain * self.seconds / settings.debt_full_s


@dataclass(slots=True)
class Repeats:
    """Law (4): ``share`` of the further attempts that may be let in; ``flood`` = it is limiting."""

    share: float = 1.0
    flood: bool = False

    def step(self, ratio: float, attainment: float | None, settings: FeedbackSettings) -> None:
        """Judge one window: further attempts for each first one, and the attainment if it is known."""
        if ratio <= settings.repeat_budget:
            self.flood = False
        elif attainment is not None and attainment < settings.attain_low:
            self.flood = True
        target = settings.repeat_budget / ratio if self.flood else 1.0
        self.share = toward(self.share, target, settings.repeat_step, 0.0)
