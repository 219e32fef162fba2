"""Output lengths by LightGBM quantile regression on top of the streaming predictor.

The streaming quantiles are the prior; trees learn ``log(length / prior quantile)`` for each level from what the
chain of groups cannot hold: exact prompt length and budget, turn, pause, the tenant's and the session's newest
lengths. The newest part of the rows gives each level an offset (split conformal), so that it covers its share.
Serving needs no LightGBM: the forests are compiled.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from data.errors import ModelError, SettingError
from data.types import FloatArray
from models.compiled import Forest
from models.forest_text import forest_from_text
from models.length_replay import LengthRow, replay
from models.output_length import LengthForecast, LengthQuery, LengthSettings, StreamingLengths

NAMES = (
    "log_input_tokens",
    "log_output_budget",
    "log_turn",
    "log_pause_s",
    "tenant_weight",
    "tenant_last",
    "tenant_recent",
    "session_last",
    "stream_mean",
)
"""Features in front of the logarithms of the streaming quantiles; NaN where nothing is known."""
LEAST_ROWS = 200
_PACE = 0.2


@dataclass(frozen=True, slots=True)
class LengthBoostSettings:
    """Size and pace of the forests, and how the rows are cut in time.

    Attributes:
        stream: Settings of the streaming predictor underneath; its levels are those of the answer.
        warm_share: Oldest share of the rows that only warms the streaming predictor (0 to 0.5).
        calibrate_share: Newest share, for the offsets (0.05 to 0.5).
        trees, leaves, least_rows: Of each level's forest (1 to 5,000; 2 to 1,024; 1 or more).
        learning_rate: Share of each tree's answer that is taken (above 0, to 1).
        threads: OpenMP threads (1 or more); the result does not depend on it.
        seed: For LightGBM's own draws.
    """

    stream: LengthSettings = field(default_factory=LengthSettings)
    warm_share: float = 0.1
    calibrate_share: float = 0.2
    trees: int = 80
    leaves: int = 15
    least_rows: int = 60
    learning_rate: float = 0.08
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        ranges = (
            ("warm_share", 0.0, 0.5),
            ("calibrate_share", 0.05, 0.5),
            ("trees", 1, 5000),
            ("leaves", 2, 1024),
            ("least_rows", 1, 10**9),
            ("learning_rate", 1e-4, 1.0),
            ("threads", 1, 1024),
            ("seed", 0, 2**31 - 1),
        )
        for name, low, high in ranges:
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingError("setting out of range", field=name, value=value, expected=f"{low} to {high}")


@dataclass(slots=True)
class _Recent:
    """Newest lengths of one tenant or session, as logarithms."""

    at_s: float
    last: float
    mean: float


class _Memory:
    """Streaming predictor and newest lengths: everything that changes while serving. Bounded as the former."""

    def __init__(self, settings: LengthSettings) -> None:
        self.stream = StreamingLengths(settings)
        self._recent: OrderedDict[Hashable, _Recent] = OrderedDict()
        self._most = settings.max_groups

    def __len__(self) -> int:
        return len(self.stream) + len(self._recent)

    def row(self, query: LengthQuery) -> tuple[FloatArray, LengthForecast]:
        """Features of a request, and the streaming forecast among them."""
        forecast = self.stream.predict(query)
        tenant = self._recent.get(("tenant", query.workload_class, query.tenant))
        session = self._recent.get(("session", query.tenant, query.session_id))
        values = [
            math.log(max(query.input_tokens, 1)),
            math.log(max(query.output_budget, 1)),
            math.log1p(max(query.turn, 0)),
            math.nan if tenant is None else math.log1p(max(query.now_s - tenant.at_s, 0.0)),
            self.stream.tenant_weight(query),
            math.nan if tenant is None else tenant.last,
            math.nan if tenant is None else tenant.mean,
            math.nan if session is None else session.last,
            math.log(forecast.mean),
        ]
        return np.array(values + [math.log(one) for one in forecast.quantiles]), forecast

    def observe(self, query: LengthQuery, output_tokens: int) -> None:
        """A request has completed with this length."""
        self.stream.observe(query, output_tokens)
        length = math.log(max(output_tokens, 1))
        self._note(("tenant", query.workload_class, query.tenant), query.now_s, length)
        if query.session_id:
            self._note(("session", query.tenant, query.session_id), query.now_s, length)
        while len(self._recent) > self._most:
            self._recent.popitem(last=False)

    def _note(self, key: Hashable, at_s: float, length: float) -> None:
        recent = self._recent.get(key)
        if recent is None:
            self._recent[key] = _Recent(at_s, length, length)
            return
        recent.at_s, recent.last = max(recent.at_s, at_s), length
        recent.mean += _PACE * (length - recent.mean)
        self._recent.move_to_end(key)


class BoostedLengths:
    """Output-length predictor of fitted forests; goes on learning through the streaming predictor beneath.

    Args:
        settings: Those it was fitted with.
        memory: Warmed by the rows it was fitted on.
        forest: One output a level.
        offsets: Added to the logarithm of each level, shape (levels,).
    """

    def __init__(
        self, settings: LengthBoostSettings, memory: _Memory, forest: Forest, offsets: FloatArray
    ) -> None:
        self.settings = settings
        self._memory = memory
        self._forest = forest
        self._offsets = offsets

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of the quantiles, ascending."""
        return self.settings.stream.levels

    def __len__(self) -> int:
        """Groups in memory."""
        return len(self._memory)

    def predict(self, query: LengthQuery) -> LengthForecast:
        """Forecast for one request; changes nothing. The mean is the streaming one, moved as the median moves."""
        row, stream = self._memory.row(query)
        logs = row[-len(self.levels) :] + self._forest.predict(row[None, :])[:, 0] + self._offsets
        most = float(max(query.output_budget, 1))
        found = np.sort(np.minimum(np.maximum(np.exp(np.minimum(logs, 30.0)), 1.0), most))
        middle = len(self.levels) // 2
        mean = stream.mean * float(found[middle]) / stream.quantiles[middle]
        return LengthForecast(self.levels, tuple(found.tolist()), min(max(mean, 1.0), most))

    def observe(self, query: LengthQuery, output_tokens: int) -> None:
        """A request has completed with this length."""
        self._memory.observe(query, output_tokens)


def fit_lengths(rows: Sequence[LengthRow], settings: LengthBoostSettings | None = None) -> BoostedLengths:
    """Fit on rows in order of decision; features are what a router would have known then.

    Raises:
        ModelError: Fewer than ``LEAST_ROWS`` rows to fit or to calibrate (reason ``data``).
    """
    settings = settings or LengthBoostSettings()
    memory = _Memory(settings.stream)
    first = int(len(rows) * settings.warm_share)
    cut = int(len(rows) * (1.0 - settings.calibrate_share))
    if min(cut - first, len(rows) - cut) < LEAST_ROWS:
        message = f"{len(rows)} rows with an output length, at least {LEAST_ROWS} needed to fit and to calibrate"
        raise ModelError(message, reason="data")
    asked = [memory.row(row.query)[0] for row in replay(rows, memory.observe)]
    features = np.array(asked)
    levels = len(settings.stream.levels)
    rest = np.log([max(row.output_tokens, 1) for row in rows])[:, None] - features[:, -levels:]
    texts = [
        _fit_level(features[first:cut], rest[first:cut, column], level, settings)
        for column, level in enumerate(settings.stream.levels)
    ]
    forest = forest_from_text(texts)
    left = rest[cut:] - forest.predict(features[cut:]).T
    offsets = [np.quantile(left[:, column], level) for column, level in enumerate(settings.stream.levels)]
    return BoostedLengths(settings, memory, forest, np.array(offsets))


def _fit_level(features: FloatArray, rest: FloatArray, level: float, settings: LengthBoostSettings) -> str:
    import lightgbm

    params = {
        "objective": "quantile",
        "alpha": level,
        "learning_rate": settings.learning_rate,
        "num_leaves": settings.leaves,
        "min_data_in_leaf": settings.least_rows,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": settings.threads,
        "seed": settings.seed,
        "verbosity": -1,
    }
    names = [*NAMES, *(f"stream_q{level:g}" for level in settings.stream.levels)]
    data = lightgbm.Dataset(features, label=rest, feature_name=names)
    text: str = lightgbm.train(params, data, num_boost_round=settings.trees).model_to_string()
    return text
