"""What the router knows of each endpoint's load: reports reconciled with its own accounting.

A report is late and misses what was sent after its sample; local counts are exact but see only this router's own
requests. So the load of *others* is what a report says beyond what was ours at its sample time, and it counts less
as the report ages: an old report fades to "unknown", never to "full".
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np

from data.errors import SettingError
from data.types import FloatArray, IntArray

PREFILL_LOAD_HALF_LIFE_S = 20.0
"""Half-life of the memory of prefill work sent to an endpoint; see ``prefill_load``."""
_LN2 = float(np.log(2.0))
UNREPORTED_AGE_S = 60.0
"""Age that stands for "never reported", and the largest age a feature shows."""


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


def observe(table: EndpointColumns, rows: IntArray, now_s: float, settings: SignalSettings) -> Signals:
    """Signals of the endpoints ``rows`` at ``now_s``; every value is finite and not negative."""
    age = now_s - table.reported_at_s[rows]
    age = np.where(age >= 0, np.minimum(age, UNREPORTED_AGE_S), np.where(age < 0, 0.0, UNREPORTED_AGE_S))
    weight = np.exp2(-np.maximum(age - settings.fresh_s, 0.0) / settings.half_life_s)
    inflight, decoding = table.inflight[rows], table.decoding[rows]
    own_waiting = np.maximum(inflight - decoding, 0.0)
    waiting = _known(table.waiting[rows])
    running = _known(table.running[rows])
    # What was ours when the report was sampled: in flight now, less what was sent after the sample.
    ours_then = np.maximum(inflight - table.sent_since_report[rows], 0.0)
    reported = waiting + running
    foreign = np.maximum(reported - ours_then, 0.0) * weight
    foreign_waiting = foreign * waiting / np.maximum(reported, 1.0)
    own_tokens = table.inflight_uncached_tokens[rows]
    foreign_tokens = foreign_waiting * settings.foreign_prompt_tokens
    own_seconds = table.waiting_prefill_s[rows]
    per_token = own_seconds / np.maximum(own_tokens, 1.0)
    capacity = table.kv_capacity_tokens[rows]
    inflight_tokens = table.inflight_tokens[rows]
    kv_use = _kv_use(table, rows, weight, inflight_tokens, capacity)
    elapsed = np.where(own_tokens > 0, now_s - table.prefill_since_s[rows], 0.0)
    return Signals(
        queue_depth=own_waiting + foreign_waiting,
        waiting_prefill_tokens=own_tokens + foreign_tokens,
        waiting_prefill_s=own_seconds + foreign_tokens * per_token,
        prefill_elapsed_s=np.maximum(_known(elapsed), 0.0),
        running=decoding + (foreign - foreign_waiting),
        inflight_tokens=inflight_tokens,
        kv_use=kv_use,
        kv_tokens=kv_use * capacity,
        metrics_age_s=age,
        prefill_load=prefill_load(table.recent_prefill_s[rows], table.recent_prefill_at_s[rows], now_s),
    )


def prefill_load(recent_s: FloatArray, at_s: FloatArray, now_s: float) -> FloatArray:
    """Prefill seconds sent each second, from their fading sum ``recent_s`` as it stood at ``at_s``."""
    idle = np.maximum(now_s - at_s, 0.0)
    load: FloatArray = recent_s * np.exp2(-idle / PREFILL_LOAD_HALF_LIFE_S) * (_LN2 / PREFILL_LOAD_HALF_LIFE_S)
    return load


def _known(values: FloatArray) -> FloatArray:
    """The values with "never reported" as 0."""
    known: FloatArray = np.where(values == values, values, 0.0)  # only a NaN differs from itself
    return known


def _kv_use(
    table: EndpointColumns, rows: IntArray, weight: FloatArray, inflight_tokens: FloatArray, capacity: FloatArray
) -> FloatArray:
    """Reported KV use plus what was sent since; fades to what this router itself has there."""
    reported = table.kv_use[rows]
    own = inflight_tokens / capacity
    known = reported == reported
    fresh = np.where(known, reported, own) + table.sent_uncached_since_report[rows] / capacity
    share: FloatArray = np.minimum(np.maximum(weight * fresh + (1.0 - weight) * own, 0.0), 1.0)
    return share
