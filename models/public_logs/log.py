"""What an adapter makes of a public log: latency samples with the names of their runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from data.catalog.types import ServiceTimes
from data.errors import LogError, ModelError
from data.types import FloatArray, IntArray
from models.base import CategoryCodes
from models.features import EndpointKind, feature_matrix, hardware_rows
from models.samples import Samples, join_samples
from models.signals import Signals

NO_TIMES = ServiceTimes(*(float("nan"),) * 6)
"""Step times that no catalog knows: ``models.public_logs.prior_fit`` fills them from training rows."""


@dataclass(frozen=True, slots=True)
class PublicLog:
    """Samples of one source.

    Attributes:
        source: Name in the registry.
        samples: Its rows; ``samples.run`` counts ``runs``, the unit that a test leaves out as a whole.
        runs: Name of each run.
        extra: Further columns that only this source knows, shape (rows,) each; the router does not have them.
    """

    source: str
    samples: Samples
    runs: tuple[str, ...]
    extra: Mapping[str, FloatArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows as an adapter gives them, shape (rows,) each, in any order.

    Attributes:
        kind: Position of the row's hardware in the list of kinds.
        run: Position of its run in the list of names.
        decided_s: Start on the run's own clock.
        input_tokens, hit_tokens, output_budget: As in ``models.features``. Where no bound is logged the budget is
            the engine's limit, never the output length, which a router does not know.
        ttft_s, tpot_s: Seconds; NaN = not observed.
        ttft_bound_s: Lower bound where ``ttft_s`` is NaN.
        gaps: Output tokens less one of which the TPOT is the mean; 0 where there is none.
        signals: Load at the start.
        extra: Further columns.
    """

    kind: IntArray
    run: IntArray
    decided_s: FloatArray
    input_tokens: FloatArray
    hit_tokens: FloatArray
    output_budget: FloatArray
    ttft_s: FloatArray
    ttft_bound_s: FloatArray
    tpot_s: FloatArray
    gaps: FloatArray
    signals: Signals
    extra: Mapping[str, FloatArray] = field(default_factory=dict)


def public_log(
    source: str, columns: Columns, kinds: Sequence[EndpointKind], runs: Sequence[str], dropped: Mapping[str, int]
) -> PublicLog:
    """Samples from columns, ordered by run and start; ``LogError`` if there is no row."""
    if not len(columns.decided_s):
        raise LogError("no usable row", source=source, value=dict(dropped))
    codes = CategoryCodes(
        gpu_types=tuple(sorted({kind.gpu_type or "" for kind in kinds})),
        models=tuple(sorted({kind.model or "" for kind in kinds})),
    )
    order = np.lexsort((columns.decided_s, columns.run))
    features = feature_matrix(
        columns.input_tokens[order], columns.hit_tokens[order], columns.output_budget[order],
        columns.signals.take(order), hardware_rows(kinds, codes)[columns.kind[order]],
    )  # fmt: skip
    samples = Samples(
        features=features,
        decided_s=columns.decided_s[order],
        run=columns.run[order],
        ttft_s=columns.ttft_s[order],
        ttft_bound_s=columns.ttft_bound_s[order],
        tpot_s=columns.tpot_s[order],
        gaps=columns.gaps[order],
        codes=codes,
        dropped={reason: count for reason, count in dropped.items() if count},
    )
    return PublicLog(source, samples, tuple(runs), {name: one[order] for name, one in columns.extra.items()})


def merge_logs(logs: Sequence[PublicLog]) -> Samples:
    """Samples of several sources under common codes and run numbers; reasons are prefixed by the source."""
    if not logs:
        raise ModelError("no log to merge", reason="data")
    codes = CategoryCodes(
        gpu_types=tuple(sorted({name for log in logs for name in log.samples.codes.gpu_types})),
        models=tuple(sorted({name for log in logs for name in log.samples.codes.models})),
    )
    parts, first_run, dropped = [], 0, Counter[str]()
    for log in logs:
        recoded = log.samples.recoded(codes)
        parts.append(replace(recoded, run=recoded.run + first_run))
        first_run += len(log.runs)
        dropped.update({f"{log.source}:{reason}": count for reason, count in log.samples.dropped.items()})
    return join_samples(parts, codes, dict(dropped))
