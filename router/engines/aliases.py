"""How the metrics of an engine are described: for each quantity of ours, the series that may hold it.

Engines rename metrics between releases. A table lists, for one quantity, every name it has had; the first alias
that has a sample on the page counts. A quantity without any sample is *missing*: NaN, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import Literal

Combine = Literal["sum", "max"]
PageForm = Literal["text", "json"]
Group = tuple[tuple[str, str], ...]
"""Labels that tell the ranks of one metric apart."""

RUNNING = "running"
WAITING = "waiting"
KV_USE = "kv_use"
KV_BLOCKS = "kv_blocks"
BLOCK_TOKENS = "block_tokens"
KV_TOKENS = "kv_tokens"
CACHE_HITS = "cache_hits"
CACHE_QUERIES = "cache_queries"
PROMPT_TOKENS = "prompt_tokens"
COMPUTED_PROMPT_TOKENS = "computed_prompt_tokens"
GENERATION_TOKENS = "generation_tokens"
PREEMPTIONS = "preemptions"
STARTED_AT_S = "started_at_s"

QUANTITIES: dict[str, str] = {
    RUNNING: "requests in the batch",
    WAITING: "requests in the engine's queue",
    KV_USE: "share of KV memory that live requests hold, 0 to 1",
    KV_BLOCKS: "KV blocks of one rank",
    BLOCK_TOKENS: "tokens of a KV block",
    KV_TOKENS: "KV capacity in tokens, of all ranks",
    CACHE_HITS: "prompt tokens (blocks in some old releases) found in the prefix cache since the start",
    CACHE_QUERIES: "those looked up, in the same unit",
    PROMPT_TOKENS: "prompt tokens since the start",
    COMPUTED_PROMPT_TOKENS: "prompt tokens that were really computed: prefill work since the start",
    GENERATION_TOKENS: "output tokens since the start",
    PREEMPTIONS: "requests preempted or retracted since the start",
    STARTED_AT_S: "when the engine's process started, Unix seconds",
}
"""All quantities and what they mean."""

COUNTERS: tuple[str, ...] = (PROMPT_TOKENS, GENERATION_TOKENS, COMPUTED_PROMPT_TOKENS)
"""Quantities that only rise while an engine lives; a fall means that it restarted."""


@dataclass(frozen=True, slots=True)
class Series:
    """One metric, or the part of it with certain labels.

    Attributes:
        name: Metric name, or the dotted path of a field in JSON statistics.
        labels: Labels a sample must have, as ``("label", "value")`` pairs.
        value_label: Read the number from this label instead of from the sample (metrics of kind *info*).
    """

    name: str
    labels: tuple[tuple[str, str], ...] = ()
    value_label: str = ""


@dataclass(frozen=True, slots=True)
class Alias:
    """One way in which some releases tell a quantity.

    Attributes:
        of: The series.
        versions: Which releases have it, in words.
        over: Divide by this series, rank by rank; a rank without it has no sample.
        factor: Multiplies the engine's number into our unit.
    """

    of: Series
    versions: str
    over: Series | None = None
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """All aliases of one quantity.

    Attributes:
        quantity: Name, one of ``QUANTITIES``.
        combine: How several ranks become one number: ``sum`` for queues and counters, ``max`` for shares.
        aliases: In order of preference.
        required: Whether the endpoint's state is ``missing`` without it.
        at_most: Greatest possible value; a sample above it is a bad one. No quantity is below 0.
    """

    quantity: str
    combine: Combine
    aliases: tuple[Alias, ...]
    required: bool = False
    at_most: float = inf


@dataclass(frozen=True, slots=True)
class EngineAdapter:
    """How one kind of engine tells its load.

    Attributes:
        kind: Name in fleet files.
        path: Where the page is by default.
        form: ``text`` = Prometheus exposition format; ``json`` = a list of statistics, newest last.
        rows: The alias table.
        shard_labels: Labels of ranks that share one queue (tensor or pipeline parallel): such series repeat each
            other, so the greatest counts once.
        part_labels: A sample with a value in one of these labels is part of a total that is on the page too.
        source: Where the names were looked up, and when.
    """

    kind: str
    path: str
    form: PageForm
    rows: tuple[Row, ...]
    source: str
    shard_labels: tuple[str, ...] = ()
    part_labels: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """Quantities without which a page says too little."""
        return tuple(row.quantity for row in self.rows if row.required)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one page said.

    Attributes:
        values: Number of each quantity that had a sample.
        missing: Required quantities without one.
        bad_samples: Samples that were dropped: NaN, infinite, negative, above their limit or not a number.
    """

    values: Mapping[str, float]
    missing: tuple[str, ...]
    bad_samples: int

    def get(self, quantity: str) -> float:
        """The number, or NaN when the page had none."""
        return self.values.get(quantity, nan)


Samples = Mapping[Series, Mapping[Group, float]]
"""Good samples of each series, by rank."""


def combine(adapter: EngineAdapter, samples: Samples, bad_samples: int) -> Reading:
    """From samples to quantities, by the rules of the table."""
    values: dict[str, float] = {}
    for row in adapter.rows:
        for alias in row.aliases:
            ranks = _ranks(alias, samples)
            good = [value for value in ranks if 0.0 <= value <= row.at_most]
            bad_samples += len(ranks) - len(good)
            if good:
                values[row.quantity] = sum(good) if row.combine == "sum" else max(good)
                break
    missing = tuple(quantity for quantity in adapter.required if quantity not in values)
    return Reading(values, missing, bad_samples)


def _ranks(alias: Alias, samples: Samples) -> list[float]:
    above = samples.get(alias.of)
    if not above:
        return []
    if alias.over is None:
        return [value * alias.factor for value in above.values()]
    below = samples.get(alias.over, {})
    return [value * alias.factor / below[rank] for rank, value in above.items() if below.get(rank, 0.0) > 0.0]
