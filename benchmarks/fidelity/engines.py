"""Three recorded runs of a real engine, request by request, beside the simulator with known step times.

Step times are the catalog's as it ships, or sums of operators measured one by one on the same card with the
catalog's host overhead. Two constants of the catalog come from these very runs: the host overhead (between what
the two runs on one card ask for) and the link of two cards (the third run). So each run is also replayed without
them, with its own best constant, and with the constant that another run asks for (``left_out``). Operators hold
nothing of a link: the run on two cards is judged with the bandwidth that fits its own E2E, and with three others
beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.fidelity.engine_replay import RecordedRun, recorded_run, replayed
from benchmarks.fidelity.operator_times import fitted_times
from benchmarks.fidelity.rows import Row, error_row, table_row
from data.catalog.calibration_inputs import RTX_PRO_6000_ENGINE
from data.catalog.link import Shape, link_times
from data.catalog.load import load_catalog
from data.catalog.priced import priced_times
from data.catalog.types import ServiceTimes

TTFT_TARGET, E2E_TARGET = 0.15, 0.06
TARGETS = (("ttft", TTFT_TARGET), ("e2e", E2E_TARGET), ("tpot", None))
HOST_S, LINK = RTX_PRO_6000_ENGINE.host_overhead_s, RTX_PRO_6000_ENGINE.link_bytes_per_s
PRICED_LINK, MEASURED_LINK = 18.3e9, 7.6e9
"""Bytes/s of one all-reduce on two such cards in the catalog source's tables: vLLM 0.24 (what the catalog's steps
hold) and vLLM 0.19 (the runs' version), each measured on another host."""
MOST_OVERHEAD_S, MOST_LINK = 0.02, 200e9


@dataclass(frozen=True, slots=True)
class SetUp:
    """One recorded run.

    Attributes:
        name: Short name in the table.
        run, profile: Folders below the recordings.
        shape: Of the model.
        catalog: Model, card and cards of the catalog; its memory stands in where the recording tells none.
    """

    name: str
    run: str
    profile: str
    shape: Shape
    catalog: tuple[str, str, int] | None


LLAMA, QWEN = Shape(32, 4096), Shape(64, 5120)
SET_UPS = (
    SetUp(
        "rtxpro6000-8b",
        "RTXPRO6000/Llama-3.1-8B",
        "RTXPRO6000/meta-llama/Llama-3.1-8B/tp1",
        LLAMA,
        ("llama-3.1-8b", "RTX-PRO-6000", 1),
    ),
    SetUp("rtx4090-8b", "RTX4090/Llama-3.1-8B", "RTX4090/meta-llama/Llama-3.1-8B/tp1", LLAMA, None),
    SetUp(
        "rtxpro6000-32b-tp2",
        "RTXPRO6000/Qwen3-32B",
        "RTXPRO6000/Qwen/Qwen3-32B/tp2",
        QWEN,
        ("qwen3-32b", "RTX-PRO-6000", 2),
    ),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A run and its step times.

    Attributes:
        kv_tokens: Of the recording, else of the catalog.
        operators: From operators alone.
        catalog, shipped: The catalog's without its two constants, and as it ships, where it has the card.
    """

    setup: SetUp
    run: RecordedRun
    kv_tokens: int
    operators: ServiceTimes
    catalog: ServiceTimes | None
    shipped: ServiceTimes | None

    @property
    def cards(self) -> int:
        """Cards of the run."""
        return 1 if self.setup.catalog is None else self.setup.catalog[2]

    @property
    def known_times(self) -> ServiceTimes:
        """The shipped catalog's; where it lacks the card, operators with the catalog's host overhead."""
        return self.operators_with(HOST_S) if self.shipped is None else self.shipped

    def sources(self) -> list[tuple[str, ServiceTimes]]:
        """Step times without constants."""
        known = [("operators", self.operators)]
        return known if self.catalog is None else [*known, ("catalog", self.catalog)]

    def operators_with(self, overhead_s: float) -> ServiceTimes:
        """Operators with so much host overhead a step."""
        return _slower(self.operators, overhead_s)

    def errors(self, name: str, times: ServiceTimes, judged: bool = False) -> Iterator[Row]:
        """Errors of TTFT, E2E and TPOT with these step times."""
        ratio = replayed(self.run, times, self.kv_tokens) / self.run.times - 1.0
        for column, (what, target) in enumerate(TARGETS):
            known = ratio[:, column]
            yield error_row(f"engine/{self.setup.name}/{name}/{what}", known, target if judged else None)

    def fitted(self, times: Callable[[float], ServiceTimes], low: float, high: float) -> float:
        """The value between these at which the median signed error of E2E is 0, by halving."""
        for _ in range(14):
            middle = (low + high) / 2
            made = replayed(self.run, times(middle), self.kv_tokens)
            signed = np.median(made[:, 1] / self.run.times[:, 1] - 1.0)
            low, high = (middle, high) if signed < 0 else (low, middle)
        return (low + high) / 2


def engine_rows(folder: Path) -> Iterator[Row]:
    """Errors of all runs below the folder of recordings; none if there are none."""
    if not (folder / "vllm_runs").is_dir():
        return
    first, second, two_cards = (case_of(folder, setup) for setup in SET_UPS)
    yield from _judged((first, second, two_cards))
    yield from _one_card(first, second)
    yield from _two_cards(two_cards)


def case_of(folder: Path, setup: SetUp) -> Case:
    """The run and its step times."""
    run = recorded_run(folder / "vllm_runs" / setup.run)
    operators = fitted_times(folder / "op_profiles" / setup.profile, setup.shape).times
    if setup.catalog is None:
        return Case(setup, run, run.kv_tokens, operators, None, None)
    facts = load_catalog().facts(*setup.catalog)
    kv_tokens = run.kv_tokens or facts.kv_capacity_tokens
    return Case(setup, run, kv_tokens, operators, priced_times(facts), facts.times)


def _judged(cases: tuple[Case, ...]) -> Iterator[Row]:
    """The catalog alone, operators with the catalog's host overhead, and both without any constant."""
    for case in cases:
        if case.shipped is not None and case.catalog is not None:
            yield from case.errors("catalog", case.shipped, judged=True)
            yield from case.errors("catalog-bare", case.catalog)
        yield from case.errors("operators-bare", case.operators)
        if case.cards == 1:
            yield from case.errors("operators+host", _slower(case.operators, HOST_S), judged=True)


def _one_card(first: Case, second: Case) -> Iterator[Row]:
    """Each run's own host overhead, and each run with that of the other's operators."""
    own: dict[tuple[str, str], float] = {}
    for case in (first, second):
        for source, times in case.sources():
            value = case.fitted(partial(_slower, times), 0.0, MOST_OVERHEAD_S)
            own[case.setup.name, source] = value
            yield table_row(f"engine/{case.setup.name}/{source}/own_host", value, "s", None, None)
            yield from case.errors(f"{source}+own_host", _slower(times, value))
    for case, other in ((first, second), (second, first)):
        for source, times in case.sources():
            left_out = _slower(times, own[other.setup.name, "operators"])
            yield from case.errors(f"{source}+left_out_host", left_out)


def _two_cards(case: Case) -> Iterator[Row]:
    """The link that each source of step times asks for, and what a link known from elsewhere gives."""
    extra = {"operators": MEASURED_LINK, "catalog": 1.0 / (1.0 / MEASURED_LINK - 1.0 / PRICED_LINK)}
    for source, times in case.sources():
        linked = partial(_linked, _slower(times, HOST_S), case.setup.shape)
        slowness = case.fitted(linked, 1.0 / MOST_LINK, 1e-9)
        yield table_row(f"engine/{case.setup.name}/{source}/own_link", 1e-9 / slowness, "GB/s", None, None)
        judged = source == "operators"
        yield from case.errors(f"{source}+host+own_link", linked(slowness), judged=judged)
        yield from case.errors(f"{source}+host+no_link", linked(0.0))
        yield from case.errors(f"{source}+host+measured_link", linked(1.0 / extra[source]))
    whole = _linked(_slower(case.operators, HOST_S), case.setup.shape, 1.0 / PRICED_LINK + 1.0 / LINK)
    yield from case.errors("operators+host+catalog_link", whole)


def _slower(times: ServiceTimes, overhead_s: float) -> ServiceTimes:
    return replace(times, host_overhead=overhead_s)


def _linked(times: ServiceTimes, shape: Shape, s_per_byte: float) -> ServiceTimes:
    return times if s_per_byte == 0.0 else link_times(times, shape, 2, 1.0 / s_per_byte)
