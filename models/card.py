"""The model card: all that a saved model needs besides its trees, and all that a reader wants to know of it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from data.errors import ModelError

CARD_SCHEMA_VERSION = 1
TARGETS = ("ttft_s", "tpot_s")


@dataclass(frozen=True, slots=True)
class Probe:
    """Rows with the answers that a healthy copy of the model gives; checked at every load."""

    features: tuple[tuple[float, ...], ...]
    ttft_s: tuple[tuple[float, ...], ...]
    tpot_s: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One trained model. Mappings by target have the keys of ``TARGETS``.

    Attributes:
        version: Name in the store; empty until published.
        created_at: UTC, ISO 8601.
        features, units, schema_hash: The feature schema it was trained on.
        gpu_types, models: Categories, in code order.
        roles: Role codes that occurred in training.
        quantiles: Levels, ascending.
        base: Constant of each quantile's log-ratio.
        low, high: Trained range of each learned feature.
        clamp: Least and greatest log-ratio that is served.
        offsets: Calibration, nested as (GPU types + 1, load bands, quantiles).
        prior: Settings of the prior that the log-ratio is relative to.
        data: Rows, censored rows, runs, time window, rows left out by reason.
        boost: Settings of the fit.
        libraries: Library versions at training.
        report: Errors and coverage on the newest window.
        checks: Release checks, name to measured value.
        importance: Share of split gain by target and feature.
        probe: Rows with known answers.
    """

    version: str
    created_at: str
    features: tuple[str, ...]
    units: tuple[str, ...]
    schema_hash: str
    gpu_types: tuple[str, ...]
    models: tuple[str, ...]
    roles: tuple[float, ...]
    quantiles: tuple[float, ...]
    base: dict[str, tuple[float, ...]]
    low: tuple[float, ...]
    high: tuple[float, ...]
    clamp: dict[str, tuple[float, float]]
    offsets: dict[str, Any]
    prior: dict[str, float]
    data: dict[str, Any]
    boost: dict[str, Any]
    libraries: dict[str, str]
    report: dict[str, Any] = field(default_factory=dict)
    checks: dict[str, Any] = field(default_factory=dict)
    importance: dict[str, dict[str, float]] = field(default_factory=dict)
    probe: Probe = field(default_factory=lambda: Probe((), (), ()))
    schema_version: int = CARD_SCHEMA_VERSION

    def to_json(self) -> str:
        """The card as JSON, keys sorted; a missing number (NaN) is null."""
        return json.dumps(_finite(asdict(self)), indent=1, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ModelCard:
        """Read a card back; ``ModelError`` (reason ``format`` or ``schema``) if it is none of ours."""
        try:
            raw = json.loads(text)
            version = raw["schema_version"]
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(f"not a model card: {error!r}", reason="format") from error
        if version != CARD_SCHEMA_VERSION:
            raise ModelError(f"model card of version {version}, expected {CARD_SCHEMA_VERSION}", reason="schema")
        known = {item.name for item in fields(cls)}
        if set(raw) != known:
            odd = sorted(set(raw) ^ known)
            raise ModelError(f"model card with missing or unknown fields: {', '.join(odd)}", reason="format")
        try:
            probe = Probe(**{name: _rows(rows) for name, rows in raw.pop("probe").items()})
            return cls(**{name: _tupled(value) for name, value in raw.items()}, probe=probe)
        except (TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"damaged model card: {error}", reason="format") from error


def _finite(value: Any) -> Any:
    """The value with NaN and infinities as null: JSON has none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _tupled(value: Any) -> Any:
    """Lists as tuples, also as values of mappings."""
    if isinstance(value, list):
        return tuple(_tupled(item) for item in value)
    if isinstance(value, dict):
        return {key: _tupled(item) for key, item in value.items()}
    return value


def _rows(rows: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(math.nan if x is None else float(x) for x in row) for row in rows)
