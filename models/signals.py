"""What the router knows of each endpoint's load: reports reconciled with its own accounting.

A report is late and misses what was sent after its sample; local counts are exact but see only this router's own
requests. So the load of *others* is what a report says beyond what was ours at its sample time, and it counts less
as the report ages: an old report fades to "unknown", never to "full".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Protocol, TypeAlias

import numpy as np

from data.errors import SettingError
from data.types import FloatArray, IntArray
from models.jit import compiled

PREFILL_LOAD_HALF_LIFE_S = 20.0
"""Half-life of the memory of prefill work sent to an endpoint; see ``prefill_load``."""
UNREPORTED_AGE_S = 60.0
"""Age that stands for "never reported", and the largest age a feature shows."""
LoadColumns: TypeAlias = tuple[FloatArray, ...]
"""The columns of ``EndpointColumns``, in its order."""
Fading: TypeAlias = tuple[float, float, float, float, float]
"""What the compiled code needs of the settings: see :func:`fading`."""


class EndpointColumns(Protocol):
    """The columns of an endpoint table that signals are made of; see ``router.endpoints.EndpointTable``."""

    reported_at_s: FloatArray
    running: FloatArray
    waiting: FloatArray
    kv_use: FloatArray
    kv_capacity_tokens: FloatArray
    inflight: FloatArray
    inflight_uncached_tokens: FloatArray
    waiting_prefill_s: FloatArray
    prefill_since_s: FloatArray
    inflight_tokens: FloatArray
    decoding: FloatArray
    sent_since_report: FloatArray
    sent_uncached_since_report: FloatArray
    recent_prefill_s: FloatArray
    recent_prefill_at_s: FloatArray


@dataclass(frozen=True, slots=True)
class SignalSettings:
    """How reports fade.

    Attributes:
        fresh_s: Reports up to this age count in full (> 0).
        half_life_s: Beyond it their weight halves this often (> 0).
        foreign_prompt_tokens: Uncached tokens assumed for a waiting request of another router (>= 0).
    """

    fresh_s: float = 1.0
    half_life_s: float = 1.0
    foreign_prompt_tokens: float = 1024.0

    def __post_init__(self) -> None:
        for name, least in (("fresh_s", 0.0), ("half_life_s", 0.0)):
            if not getattr(self, name) > least:
                raise SettingError(
                    "setting out of range", field=name, value=getattr(self, name), expected="above 0"
                )
        if not self.foreign_prompt_tokens >= 0:
            value = self.foreign_prompt_tokens
            raise SettingError(
                "setting out of range", field="foreign_prompt_tokens", value=value, expected="0 or more"
            )


@dataclass(frozen=True, slots=True)
class Signals:
    """Load of each endpoint at a decision, shape (rows,) each; the same names stand in the decision log.

    Attributes:
        queue_depth: Requests without a first token.
        waiting_prefill_tokens: Their uncached prompt tokens.
        waiting_prefill_s: Variable prefill time of those tokens; NaN = unknown.
        prefill_elapsed_s: How long the head of that queue has been worked on; 0 with an empty queue.
        running: Requests that generate.
        inflight_tokens: Prompt plus expected output tokens of this router's requests.
        kv_use: Share of KV memory in use, 0 to 1.
        kv_tokens: Tokens of KV memory in use.
        metrics_age_s: Age of the report, at most ``UNREPORTED_AGE_S``.
        prefill_load: Prefill seconds that this router lately sent there each second, by an exponentially weighted
            mean: what will go on arriving while a request generates. ``None`` or NaN = unknown.
    """

    queue_depth: FloatArray
    waiting_prefill_tokens: FloatArray
    waiting_prefill_s: FloatArray
    prefill_elapsed_s: FloatArray
    running: FloatArray
    inflight_tokens: FloatArray
    kv_use: FloatArray
    kv_tokens: FloatArray
    metrics_age_s: FloatArray
    prefill_load: FloatArray | None = None

    def take(self, rows: IntArray) -> Signals:
        """The chosen rows."""
        columns: dict[str, FloatArray] = {
            field.name: values[rows] for field in fields(self) if (values := getattr(self, field.name)) is not None
        }
        return Signals(**columns)

    def load(self) -> tuple[FloatArray, ...]:
        """All but the age, in the order of the feature matrix."""
        return (
            self.queue_depth,
            self.waiting_prefill_tokens,
            self.waiting_prefill_s,
            self.prefill_elapsed_s,
            self.running,
            self.inflight_tokens,
            self.kv_use,
            self.kv_tokens,
            np.full(len(self.kv_tokens), np.nan) if self.prefill_load is None else self.prefill_load,
        )


def load_columns(table: EndpointColumns) -> LoadColumns:
    """The columns that signals are made of, for compiled code."""
    return (
        table.reported_at_s,
        table.running,
        table.waiting,
        table.kv_use,
        table.kv_capacity_tokens,
        table.inflight,
        table.inflight_uncached_tokens,
        table.waiting_prefill_s,
        table.prefill_since_s,
        table.inflight_tokens,
        table.decoding,
        table.sent_since_report,
        table.sent_uncached_since_report,
        table.recent_prefill_s,
        table.recent_prefill_at_s,
    )


def fading(settings: SignalSettings) -> Fading:
    """The settings and constants as compiled code takes them."""
    return (
        settings.fresh_s,
        settings.half_life_s,
        settings.foreign_prompt_tokens,
        UNREPORTED_AGE_S,
        PREFILL_LOAD_HALF_LIFE_S,
    )


def observe(table: EndpointColumns, rows: IntArray, now_s: float, settings: SignalSettings) -> Signals:
    """Signals of the endpoints ``rows`` at ``now_s``; every value is finite and not negative."""
    out = np.empty((len(rows), len(_IN_ORDER)))
    put_signals(rows, now_s, fading(settings), load_columns(table), _IN_ORDER, out)
    return Signals(*out.T)


_IN_ORDER = np.arange(len(fields(Signals)))


@compiled
def put_signals(
    rows: IntArray, now_s: float, fades: Fading, columns: LoadColumns, places: IntArray, out: FloatArray
) -> None:
    """Write the signals of ``rows``, in the order of ``Signals``, into the columns ``places`` of ``out``."""
    fresh_s, half_life_s, foreign_prompt_tokens, unreported_age_s, load_half_life_s = fades
    reported_at_s, running, waiting, kv_use, kv_capacity = columns[:5]
    inflight, own_tokens, own_seconds, prefill_since_s, inflight_tokens, decoding = columns[5:11]
    sent, sent_tokens, recent_s, recent_at_s = columns[11:]
    for place in range(len(rows)):
        row, values = rows[place], out[place]
        age = now_s - reported_at_s[row]
        age = min(max(age, 0.0), unreported_age_s) if age == age else unreported_age_s
        weight = np.exp2(-(age - fresh_s) / half_life_s) if age > fresh_s else 1.0
        own_waiting = max(inflight[row] - decoding[row], 0.0)
        reported_waiting = _known(waiting[row])
        reported = reported_waiting + _known(running[row])
        # What was ours when the report was sampled: in flight now, less what was sent after the sample.
        ours_then = max(inflight[row] - sent[row], 0.0)
        foreign = max(reported - ours_then, 0.0) * weight
        foreign_waiting = foreign * reported_waiting / max(reported, 1.0)
        foreign_tokens = foreign_waiting * foreign_prompt_tokens
        per_token_s = own_seconds[row] / max(own_tokens[row], 1.0)
        elapsed_s = max(_known(now_s - prefill_since_s[row]), 0.0) if own_tokens[row] > 0.0 else 0.0
        # Reported KV use plus what was sent since; it fades to what this router itself has there.
        capacity = kv_capacity[row]
        own_share = inflight_tokens[row] / capacity
        fresh = (kv_use[row] if kv_use[row] == kv_use[row] else own_share) + sent_tokens[row] / capacity
        share = min(max(weight * fresh + (1.0 - weight) * own_share, 0.0), 1.0)
        load = recent_s[row] * np.exp2(-max(now_s - recent_at_s[row], 0.0) / load_half_life_s)
        values[places[0]] = own_waiting + foreign_waiting
        values[places[1]] = own_tokens[row] + foreign_tokens
        values[places[2]] = own_seconds[row] + foreign_tokens * per_token_s
        values[places[3]] = elapsed_s
        values[places[4]] = decoding[row] + (foreign - foreign_waiting)
        values[places[5]] = inflight_tokens[row]
        values[places[6]] = share
        values[places[7]] = share * capacity
        values[places[8]] = age
        values[places[9]] = load * (math.log(2.0) / load_half_life_s)


@compiled
def _known(value: float) -> float:
    """The value with "never reported" (NaN) as 0."""
    return value if value == value else 0.0
