"""Everything that a report shows, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from data.fleet.types import Fleet
from data.plan import PlanDocument
from data.types import FloatArray
from planner.compare import Comparison
from planner.trace_source import TraceFacts


@dataclass(frozen=True, slots=True)
class ModelQuality:
    """How well the latency model did on requests that it was not trained on.

    Attributes:
        target: What is predicted.
        predicted_s: Median predictions, seconds; a sample of some hundreds to thousands is enough.
        observed_s: What came, aligned with ``predicted_s``.
        coverage: (level, share of observations at or below that predicted quantile) for each quantile.
        median_error: Median of |predicted − observed| / observed of the model.
        prior_median_error: The same of the physics prior alone; ``None`` = not measured.
        model_version: Version in the model store.
    """

    target: Literal["TTFT", "TPOT"]
    predicted_s: FloatArray
    observed_s: FloatArray
    coverage: tuple[tuple[float, float], ...]
    median_error: float
    prior_median_error: float | None = None
    model_version: str = ""


@dataclass(frozen=True, slots=True)
class ReportData:
    """Input of the report.

    Attributes:
        title: Headline of the page.
        comparison: One arm or more; with one arm the sections about differences are left out.
        fleet: The fleet that was simulated.
        trace: What was offered.
        settings: (name, value) of the run settings, as text, in the order shown.
        plan: Plan that was compared or simulated, if any.
        quality: Latency model figures, if any.
        command: Command line that makes the report again.
        made_at: UTC time, ISO 8601; an argument so that the same input gives the same bytes.
        versions: (component, version).
        skipped: (what, why) of arms or steps that could not run; shown, never hidden.
    """

    title: str
    comparison: Comparison
    fleet: Fleet
    trace: TraceFacts
    settings: tuple[tuple[str, str], ...] = ()
    plan: PlanDocument | None = None
    quality: tuple[ModelQuality, ...] = ()
    command: str = ""
    made_at: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
