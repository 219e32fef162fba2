"""A roofline prior for measured serving points, so that one configuration tells something of another.

With ``g`` GPUs, ``c`` requests in flight, prompt ``n`` and output ``m``, and the data-sheet values below:

(1)  ``W = read(c)·bytes/(g·bandwidth)``          weights that a step reads; of a mixture of experts
     ``read(c) = active + (all − active)·(1 − exp(−c·active/all))``
(2)  ``K = kv·c·(n + m/2)/(g·bandwidth)``         KV memory that a step reads
(3)  ``F = 2·active/(g·flops)``                   compute of a token
(4)  ``TPOT ≈ a0 + a1·layers + a2·W + a3·K + c·F·(a4 + a5·n/m)``   in a closed loop each token of output brings
     ``n/m`` tokens of prefill into the same steps
(5)  ``TTFT ≈ b0 + b1·layers + b2·W + n·F·(b3 + b4·c)``

``a`` and ``b`` (at least 0) are fitted on the training rows by relative least squares, for all systems together.
They become each row's own step times: ``d0`` holds the first three terms of (4), ``d1`` the last, ``d2`` that of
``K``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from data.errors import LogError
from data.types import FloatArray
from models.base import BoolArray
from models.features import INDEX
from models.public_logs.log import PublicLog
from models.samples import Samples


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a roofline needs of a model.

    Attributes:
        parameters, active: In 10^9, all of them and those that a token uses.
        layers: Layers.
        cache_layers: Layers that keep the whole context (others keep a state of fixed size).
        cache_values: KV values of one token in one such layer.
    """

    parameters: float
    active: float
    layers: float
    cache_layers: float
    cache_values: float

    @property
    def kv_thousands(self) -> float:
        """Thousands of KV values of one token."""
        return self.cache_layers * self.cache_values / 1e3


def _heads(kv_heads: int, size: int) -> float:
    """Keys and values of each KV head."""
    return 2.0 * kv_heads * size


_LATENT = 512.0 + 64.0
"""Multi-head latent attention: the compressed vector and the rotary part, for all heads together."""
_FACTS = {
    "minimax-m2.5": ModelFacts(230, 10, 62, 62, _heads(8, 128)),
    "deepseek": ModelFacts(671, 37, 61, 61, _LATENT),
    "llama-3.1-70b": ModelFacts(70.6, 70.6, 80, 80, _heads(8, 128)),
    "llama-3.1-8b": ModelFacts(8.03, 8.03, 32, 32, _heads(8, 128)),
    "gpt-oss-120b": ModelFacts(117, 5.1, 36, 36, _heads(8, 64)),
    "qwen3-32b": ModelFacts(32.8, 32.8, 64, 64, _heads(8, 128)),
    "qwen3.5-397b": ModelFacts(397, 17, 60, 15, _heads(2, 256)),
    "qwen3-235b": ModelFacts(235, 22, 94, 94, _heads(4, 128)),
    "kimi-k2": ModelFacts(1040, 32, 61, 61, _LATENT),
    "glm-5": ModelFacts(744, 40, 78, 78, _LATENT),
}
"""By the start of the model's name. Layers, KV heads and sizes stand in each model's published ``config.json``
(as shipped with aiconfigurator-core 0.12.0); parameter counts in its name or model card."""
_SYSTEMS = {
    "h100_sxm": (3.35, 1978.0, 1978.0), "h200_sxm": (4.8, 1978.0, 1978.0), "b200_sxm": (7.7, 4500.0, 9000.0),
    "b300_sxm": (7.75, 4500.0, 14000.0), "gb200": (8.0, 5000.0, 10000.0), "gb300": (8.0, 5000.0, 15000.0),
}  # fmt: skip
"""Memory bandwidth in TB/s; dense TFLOPs at 8 and at 4 bits (no faster than 8 bits where not in hardware).
From the system files of aiconfigurator-core 0.12.0."""
_BYTES = {"fp8": 1.0, "fp4": 0.56, "int4": 0.56, "bf16": 2.0, "default": 2.0}


@dataclass(frozen=True, slots=True)
class Roofline:
    """Terms of the equations for each row, in seconds but for ``layers``."""

    layers: FloatArray
    weights_s: FloatArray
    kv_s: FloatArray
    token_s: FloatArray
    facts: dict[str, FloatArray]
    """Data-sheet and model-card values of each row."""


def roofline(log: PublicLog) -> Roofline:
    """The terms of each row; ``LogError`` for a system, model or precision that is not in the tables."""
    samples = log.samples
    codes, features = samples.codes, samples.features
    model = [codes.models[int(code)] for code in features[:, INDEX["model"]]]
    facts = {name: _facts(name) for name in set(model)}
    total, active, layers, kv = np.array(
        [(one.parameters, one.active, one.layers, one.kv_thousands) for one in map(facts.__getitem__, model)]
    ).T
    size = np.array([_known(_BYTES, name.split("@")[1], "precision") for name in model])
    system = [_known(_SYSTEMS, codes.gpu_types[int(code)], "system") for code in features[:, INDEX["gpu_type"]]]
    bandwidth, eight, four = np.array(system).T
    flops = np.where(size < 1.0, four, np.where(size > 1.0, eight / 2.0, eight))
    gpus, requests = features[:, INDEX["gpus"]], features[:, INDEX["running"]] + 1.0
    read = active + (total - active) * -np.expm1(-requests * active / total)
    held = requests * (features[:, INDEX["input_tokens"]] + log.extra["output_tokens"] / 2.0)
    return Roofline(
        layers=layers,
        weights_s=read * size / (gpus * bandwidth * 1e3),
        kv_s=held * kv / (gpus * bandwidth * 1e9),
        token_s=2.0 * active / (gpus * flops * 1e3),
        facts={
            "parameters": total,
            "active": active,
            "layers": layers,
            "kv_thousands": kv,
            "bytes": size,
            "bandwidth": bandwidth,
            "flops": flops,
        },
    )


def silicon_prior(log: PublicLog, train: BoolArray) -> tuple[Samples, dict[str, FloatArray]]:
    """The samples with step times fitted on the rows ``train``; and the log's extra columns, terms added."""
    roof, samples = roofline(log), log.samples
    features = samples.features.copy()
    requests, prompt = features[:, INDEX["running"]] + 1.0, features[:, INDEX["input_tokens"]]
    ratio = prompt / log.extra["output_tokens"]
    one = np.ones(len(samples))
    load = requests * roof.token_s
    decode = np.column_stack([one, roof.layers, roof.weights_s, roof.kv_s, load, load * ratio])
    prefill = np.column_stack([
        one, roof.layers, roof.weights_s, prompt * roof.token_s, prompt * load,
    ])  # fmt: skip
    a = _relative_fit(decode, samples.tpot_s, train)
    b = _relative_fit(prefill, samples.ttft_s, train)
    tokens = features[:, INDEX["kv_tokens"]] + prompt
    fitted = {
        "p0": prefill[:, :3] @ b[:3],
        "p1": roof.token_s * (b[3] + b[4] * requests),
        "p2": 0.0 * one,
        "d0": decode[:, :3] @ a[:3],
        "d1": roof.token_s * (a[4] + a[5] * ratio),
        "d2": a[3] * roof.kv_s / tokens,
        "host_overhead": 0.0 * one,
        "d_sat": 0.0 * one,
        "sat_batch": one,
    }
    for name, values in fitted.items():
        features[:, INDEX[name]] = values
    extra = dict(log.extra) | roof.facts | {
        "weights_s": roof.weights_s, "kv_s": roof.kv_s, "token_s": roof.token_s, "requests": requests,
        "load_s": load, "prefill_load_s": load * ratio, "requests_per_gpu": requests / features[:, INDEX["gpus"]],
        "prefill_per_step": requests * ratio, "prefill_s": prompt * roof.token_s,
    }  # fmt: skip
    return replace(samples, features=features), extra


def _facts(model: str) -> ModelFacts:
    for name, facts in _FACTS.items():
        if model.startswith(name):
            return facts
    raise LogError("model without facts", source="silicon", value=model, expected=", ".join(_FACTS))


def _known(table: dict[str, float] | dict[str, tuple[float, float, float]], name: str, what: str) -> object:
    if name not in table:
        raise LogError(f"{what} without facts", source="silicon", value=name, expected=", ".join(table))
    return table[name]


def _relative_fit(design: FloatArray, seconds: FloatArray, train: BoolArray) -> FloatArray:
    from scipy.optimize import nnls

    rows = train & (seconds > 0)
    coefficients: FloatArray = nnls(design[rows] / seconds[rows, None], np.ones(int(rows.sum())))[0]
    return coefficients
