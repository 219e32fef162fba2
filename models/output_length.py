"""Predicts how long an answer will be, from what a router may know; the budget is a bound, not a length.

The distribution of lengths is learned along a chain of groups, from all requests to ever narrower ones: all,
class, class and prompt band, tenant, tenant and prompt band, tenant and nearly equal prompt length, session. (Many
prompts are one template with something filled in: their length tells the template.) Each group keeps a fading
histogram ``h`` of weight ``n`` and leans on the group before it as if that had given ``k`` further observations
(Dirichlet shrinkage):

(1)  ``p_group = (h + k·p_before) / (n + k)``

So a new tenant answers like its class, and one with many requests like itself; what fades makes room for change.
Quantiles and the mean are those of ``min(length, budget)``.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from data.errors import SettingError
from data.types import FloatArray
from models.length_histogram import FIRST, MOST_TOKENS, LengthHistogram, bin_of, mean, quantiles


@dataclass(frozen=True, slots=True)
class LengthQuery:
    """What a router knows of a request before it is sent; never its output length.

    Attributes:
        workload_class: Name of the class.
        tenant: Name of the tenant, "" = unknown.
        model: Key ``name@version``.
        input_tokens: Prompt length, at least 1.
        output_budget: Bound of the caller, at least 1.
        session_id: Session, "" = none.
        turn: Turns of the session before this one.
        now_s: The clock; it must not run backwards.
    """

    workload_class: str
    tenant: str
    model: str
    input_tokens: int
    output_budget: int
    session_id: str = ""
    turn: int = 0
    now_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LengthForecast:
    """Predicted output length, tokens: quantiles at ``levels`` in ascending order and the mean, in [1, budget]."""

    levels: tuple[float, ...]
    quantiles: tuple[float, ...]
    mean: float


class OutputLengthPredictor(Protocol):
    """Predicts output lengths and learns from those of requests that have ended."""

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of the quantiles, ascending."""
        ...

    def predict(self, query: LengthQuery) -> LengthForecast:
        """Forecast for one request; changes nothing."""
        ...

    def observe(self, query: LengthQuery, output_tokens: int) -> None:
        """A request that was asked about has completed with this length."""
        ...


@dataclass(frozen=True, slots=True)
class LengthSettings:
    """Settings of the streaming predictor.

    Attributes:
        levels: Quantiles, ascending, within (0, 1).
        wide_half_life: Observations after which one counts half, in groups of all tenants (> 0).
        tenant_half_life: ... in groups of one tenant.
        prompt_half_life: ... in a group of nearly equal prompts.
        session_half_life: ... in a session.
        class_strength, band_strength, tenant_strength, tenant_band_strength, prompt_strength, session_strength:
            ``k`` of (1), in observations (> 0).
        prompt_edges: Prompt lengths that part the prompt bands, ascending.
        prompts_per_octave: Groups of nearly equal prompts between a length and twice that length (1 to 1,024).
        max_groups: Groups that are remembered; the least recently used go first
            (16 or more). A group takes 1.8 kB.
        first_guess_tokens: Typical length before anything is known (1 or more).
    """

    levels: tuple[float, ...] = (0.1, 0.5, 0.9)
    wide_half_life: float = 10_000.0
    tenant_half_life: float = 1_000.0
    prompt_half_life: float = 300.0
    session_half_life: float = 50.0
    class_strength: float = 20.0
    band_strength: float = 20.0
    tenant_strength: float = 20.0
    tenant_band_strength: float = 20.0
    prompt_strength: float = 10.0
    session_strength: float = 10.0
    prompt_edges: tuple[float, ...] = (256, 1024, 4096, 16384, 65536)
    prompts_per_octave: float = 16.0
    max_groups: int = 20_000
    first_guess_tokens: float = 256.0

    def __post_init__(self) -> None:
        positive = (
            "wide_half_life", "tenant_half_life", "prompt_half_life", "session_half_life", "class_strength",
            "band_strength", "tenant_strength", "tenant_band_strength", "prompt_strength", "session_strength",
        )  # fmt: skip
        checks = [(name, getattr(self, name) > 0, "above 0") for name in positive]
        rising = all(a < b for a, b in pairwise(self.levels)) and len(self.levels) > 0
        checks += [
            ("levels", rising and all(0 < level < 1 for level in self.levels), "ascending, within (0, 1)"),
            ("prompt_edges", all(a < b for a, b in pairwise(self.prompt_edges)), "ascending"),
            ("prompts_per_octave", 1 <= self.prompts_per_octave <= 1024, "1 to 1,024"),
            ("max_groups", self.max_groups >= 16, "16 or more"),
            ("first_guess_tokens", 1 <= self.first_guess_tokens <= MOST_TOKENS, f"1 to {MOST_TOKENS}"),
        ]
        for name, ok, expected in checks:
            if not ok:
                value = getattr(self, name)
                raise SettingError("setting out of range", field=name, value=value, expected=expected)


_Link = tuple[Hashable, float, float]
"""Key of a group, its half-life, and how strongly it leans on the one before."""


class StreamingLengths:
    """Hierarchical empirical quantiles (1), learned request by request. Needs no training and no file.

    Args:
        settings: Half-lives, strengths, bounds.
    """

    def __init__(self, settings: LengthSettings | None = None) -> None:
        self.settings = settings or LengthSettings()
        self._levels = np.array(self.settings.levels)
        self._edges = np.array(self.settings.prompt_edges)
        self._groups: OrderedDict[Hashable, LengthHistogram] = OrderedDict()
        self._start = _first_guess(self.settings.first_guess_tokens)
        self.forgotten = 0
        """Groups that had to make room for others so far."""

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of the quantiles, ascending."""
        return self.settings.levels

    def __len__(self) -> int:
        """Groups in memory."""
        return len(self._groups)

    def predict(self, query: LengthQuery) -> LengthForecast:
        """Forecast for one request; changes nothing."""
        return self.forecast(self.shares(query), query.output_budget)

    def shares(self, query: LengthQuery) -> FloatArray:
        """Probability of each bin of ``models.length_histogram`` for this request, before its budget cuts it."""
        shares = self._start
        for key, _, strength in self._chain(query):
            group = self._groups.get(key)
            if group is not None:
                shares = group.mixed(shares, strength)
        return shares

    def forecast(self, shares: FloatArray, budget: int) -> LengthForecast:
        """Quantiles and mean of a distribution over bins, cut at the budget."""
        most = max(float(budget), 1.0)
        cut = np.minimum(quantiles(shares, self._levels), most)
        return LengthForecast(self.levels, tuple(cut.tolist()), min(max(mean(shares, most), 1.0), most))

    def observe(self, query: LengthQuery, output_tokens: int) -> None:
        """A request has completed with this length; O(log bins) a group."""
        place = bin_of(min(max(output_tokens, 1), MOST_TOKENS))
        groups = self._groups
        for key, half_life, _ in self._chain(query):
            group = groups.get(key)
            if group is None:
                group = groups[key] = LengthHistogram(half_life)
            else:
                groups.move_to_end(key)
            group.add(place)
        while len(groups) > self.settings.max_groups:
            groups.popitem(last=False)
            self.forgotten += 1

    def tenant_weight(self, query: LengthQuery) -> float:
        """Observations of the query's tenant and class that still count."""
        group = self._groups.get(("tenant", query.workload_class, query.model, query.tenant))
        return 0.0 if group is None else group.weight

    def _chain(self, query: LengthQuery) -> list[_Link]:
        """Groups that the request belongs to, widest first."""
        settings = self.settings
        wide, own = settings.wide_half_life, settings.tenant_half_life
        kind, model, tenant = query.workload_class, query.model, query.tenant
        band = int(self._edges.searchsorted(query.input_tokens, side="right"))
        chain: list[_Link] = [
            ("all", wide, settings.class_strength),
            (("class", kind, model), wide, settings.class_strength),
            (("band", kind, model, band), wide, settings.band_strength),
        ]
        if tenant:
            chain.append((("tenant", kind, model, tenant), own, settings.tenant_strength))
            chain.append((("tenant band", kind, model, tenant, band), own, settings.tenant_band_strength))
        near = int(settings.prompts_per_octave * math.log2(max(query.input_tokens, 1)))
        chain.append((("prompt", kind, model, tenant, near), settings.prompt_half_life, settings.prompt_strength))
        if query.session_id:
            session = ("session", tenant, query.session_id)
            chain.append((session, settings.session_half_life, settings.session_strength))
        return chain


def _first_guess(typical_tokens: float) -> FloatArray:
    """Log-normal shares around a typical length, wide enough to be outvoted at once."""
    edges = np.log(np.append(FIRST, MOST_TOKENS).astype(np.float64))
    middle = 0.5 * (edges[1:] + edges[:-1])
    weight = np.exp(-0.5 * ((middle - math.log(typical_tokens)) / 1.5) ** 2) * np.diff(edges)
    shares: FloatArray = weight / weight.sum()
    return shares
