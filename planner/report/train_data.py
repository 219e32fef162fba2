"""What the page about a training shows besides the model card: answers and outcomes of the newest window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from models.base import LatencyPredictor
from models.card import ModelCard
from models.samples import Samples

TITLES = {"ttft_s": "TTFT", "tpot_s": "TPOT"}


@dataclass(frozen=True, slots=True)
class TargetView:
    """Rows of the newest window with a known time of one target.

    Attributes:
        target: ``ttft_s`` or ``tpot_s``.
        decided_s: Decision, on the clock of its run.
        run: Number of the run.
        observed_s, predicted_s: The time that came, and the predicted median.
    """

    target: str
    decided_s: FloatArray
    run: IntArray
    observed_s: FloatArray
    predicted_s: FloatArray

    @property
    def title(self) -> str:
        """TTFT or TPOT."""
        return TITLES[self.target]


@dataclass(frozen=True, slots=True)
class TrainReport:
    """Input of the page.

    Attributes:
        card: The published card, with the reports of model, prior and peers' recipe, and the gate's verdict.
        promoted: Whether it serves now.
        views: One a target that has rows.
        sources: Where the rows came from, as text.
        skipped: (what, why) of files that could not be used.
        command: Command line that makes it again.
    """

    card: ModelCard
    promoted: bool
    views: tuple[TargetView, ...]
    sources: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    command: str = ""


def target_views(predictor: LatencyPredictor, test: Samples) -> tuple[TargetView, ...]:
    """The predicted median beside what came, for each target with a known time on ``test``."""
    prediction = predictor.predict(test.features)
    middle = prediction.median_column
    views = []
    for target in TITLES:
        observed = getattr(test, target)
        rows = np.flatnonzero(observed > 0)
        if len(rows):
            predicted = getattr(prediction, target)[rows, middle]
            views.append(TargetView(target, test.decided_s[rows], test.run[rows], observed[rows], predicted))
    return tuple(views)
