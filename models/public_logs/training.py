"""Public logs for the ordinary training: merged, with step times fitted on the part that the trees learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from data.errors import ModelError
from models.base import BoolArray
from models.physics import PriorSettings
from models.public_logs.log import PublicLog, merge_logs
from models.public_logs.prior_refine import fitted_prior
from models.samples import Samples
from models.splits import SplitSettings, split_samples

RUN_ORDER_SEED = 0


def training_samples(logs: Sequence[PublicLog], prior: PriorSettings, split: SplitSettings) -> Samples:
    """Samples that ``models.training.train`` takes, their runs in a drawn order.

    The order of sources and of their runs says nothing of time, and the last runs are what a model is judged on:
    unmixed, these would be all of one source.

    Raises:
        ModelError: Too few rows, or none with a TPOT (reason ``data``).
    """
    samples = merge_logs(logs)
    if not (samples.tpot_s > 0).any():
        raise ModelError("the public logs hold no TPOT; add one that does, such as llmservingsim", reason="data")
    order = np.random.default_rng(RUN_ORDER_SEED).permutation(int(samples.run.max()) + 1)
    samples = replace(samples, run=order[samples.run])
    return fitted_prior(samples, fit_rows(samples, split), prior)


def fit_rows(samples: Samples, split: SplitSettings) -> BoolArray:
    """Which rows the trees will learn from: the prior must not see the others."""
    numbered = replace(samples, gaps=np.arange(len(samples), dtype=np.float64))
    rows = np.zeros(len(samples), dtype=bool)
    rows[split_samples(numbered, split).fit.gaps.astype(np.int64)] = True
    return rows
