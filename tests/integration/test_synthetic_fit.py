"""Synthetic profiles beside the real traces they are fitted to, statistic by statistic.

``docs/synthetic-traces.md`` shows the table that ``table_lines`` makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from data.synth.mix import synthesise
from data.synth.profiles import PROFILES
from data.synth.sessions import mean_turns
from data.traces.registry import open_trace
from data.traces.stats import StatsCollector
from data.types import NO_PARENT, Request, TraceBatch

PAGE = Path(__file__).resolve().parents[2] / "docs" / "synthetic-traces.md"
SEEDS = range(5)


@dataclass(frozen=True, slots=True)
class Case:
    """A profile, the file it is fitted to, and the rate and length that make both comparable."""

    profile: str
    file: str
    rate_per_s: float
    duration_s: float


CASES = (
    Case("conversation", "mooncake/conversation_trace.jsonl", 3.4, 3540.0),
    Case("document", "mooncake/synthetic_trace.first613s.jsonl", 3.78, 613.0),
    Case("chat", "azure-llm-2023/AzureLLMInferenceTrace_conv.csv", 5.53, 3502.0),
    Case("code", "azure-llm-2023/AzureLLMInferenceTrace_code.csv", 2.567, 3436.0),
    Case("agentic", "agentic-coding/sessions.jsonl.gz", 0.3, 43_200.0),
)

LENGTHS = tuple(f"{what} tokens {q}" for what in ("input", "output") for q in ("p50", "p90", "p99"))
RELATIVE = {
    **dict.fromkeys(LENGTHS, 0.10),
    "gap CV": 0.10,
    "busiest minute over mean": 0.15,
    "seconds from turn to turn, p50": 0.15,
    "think time p50 (s)": 0.15,
    "calls of a session, mean": 0.10,
}
"""Largest relative difference from the real trace."""
ABSOLUTE = {"ideal hit (share of prompt tokens)": 0.04, "rows that go on from an earlier one": 0.05}
WIDER = {
    # Service and think times are drawn independently of each other, which lengthens the middle of their sum.
    ("agentic", "seconds from turn to turn, p50"): 0.25,
}


class FollowUps:
    """Finds, by block ids alone, the earlier request that each one goes on from (beyond the first block)."""

    def __init__(self) -> None:
        self._last_s: dict[int, float] = {}
        self.rows = 0
        self.gaps_s: list[float] = []

    def add(self, row: Request) -> None:
        known = 0
        for block in row.block_hashes:
            if block not in self._last_s:
                break
            known += 1
        self.rows += 1
        if known > 1:
            self.gaps_s.append(row.arrival_s - self._last_s[row.block_hashes[known - 1]])
        self._last_s.update(dict.fromkeys(row.block_hashes, row.arrival_s))


def measure(batches: Iterable[TraceBatch], closed_loop: bool, prefix_ids: bool) -> dict[str, float]:
    collector, follow_ups = StatsCollector(), FollowUps()
    arrivals: dict[int, float] = {}
    steps_s: list[float] = []
    for batch in batches:
        collector.add(batch)
        for row in batch.rows() if prefix_ids else ():
            if closed_loop:
                arrivals[row.request_id] = row.arrival_s
                if row.parent_id != NO_PARENT:
                    steps_s.append(row.arrival_s - arrivals[row.parent_id])
            else:
                follow_ups.add(row)
    stats = collector.result()
    found = {
        f"{what} tokens {q}": float(getattr(spread, q))
        for what, spread in (("input", stats.input_tokens), ("output", stats.output_tokens))
        for q in ("p50", "p90", "p99")
    }
    if stats.ideal_hit_share is not None:
        found["ideal hit (share of prompt tokens)"] = stats.ideal_hit_share
    if closed_loop:
        assert stats.think_time_p50_s is not None
        found["think time p50 (s)"] = stats.think_time_p50_s
        found["seconds from turn to turn, p50"] = float(np.median(steps_s))
        return found
    found["gap CV"] = stats.gap_cv
    found["busiest minute over mean"] = stats.busiest_minute_ratio
    if prefix_ids:
        found["rows that go on from an earlier one"] = len(follow_ups.gaps_s) / follow_ups.rows
        found["seconds from turn to turn, p50"] = float(np.median(follow_ups.gaps_s))
    return found


@lru_cache(maxsize=1)
def comparison(folder: Path) -> dict[tuple[str, str], tuple[float, float]]:
    """Real and synthetic value (mean of the seeds) by profile and statistic."""
    table: dict[tuple[str, str], tuple[float, float]] = {}
    for case in CASES:
        profile = PROFILES[case.profile]
        how = (profile.closed_loop, profile.prefix_ids)
        reader = open_trace(folder / case.file)
        real = measure(reader.batches(), *how)
        runs = [
            measure(synthesise(profile, rate_per_s=case.rate_per_s, duration_s=case.duration_s, seed=seed), *how)
            for seed in SEEDS
        ]
        for name, value in real.items():
            table[case.profile, name] = (value, float(np.mean([run[name] for run in runs])))
        if profile.closed_loop:
            names = {row.session_id for batch in open_trace(folder / case.file).batches() for row in batch.rows()}
            table[case.profile, "calls of a session, mean"] = (
                reader.report.accepted / len(names),
                mean_turns(profile),
            )
    return table


def table_lines(folder: Path) -> Iterator[str]:
    """The table of the docs."""
    for (profile, name), (real, made) in comparison(folder).items():
        digits = "{:.3f}" if name in ABSOLUTE else "{:,.0f}" if real >= 100 else "{:.2f}"
        off = f"{made - real:+.3f}" if name in ABSOLUTE else f"{made / real - 1:+.1%}"
        yield f"| {profile} | {name} | {digits.format(real)} | {digits.format(made)} | {off} |"


@pytest.mark.shared_data
@pytest.mark.parametrize("profile", [case.profile for case in CASES])
def test_synthetic_statistics_are_those_of_the_real_trace(profile: str, shared_data: Path) -> None:
    compared = 0
    for (name_of, name), (real, made) in comparison(shared_data).items():
        if name_of != profile:
            continue
        compared += 1
        if name in ABSOLUTE:
            assert made == pytest.approx(real, abs=ABSOLUTE[name]), name
        else:
            assert made == pytest.approx(real, rel=WIDER.get((profile, name), RELATIVE[name])), name
    assert compared >= 8


@pytest.mark.shared_data
def test_the_page_shows_the_table_as_measured(shared_data: Path) -> None:
    shown = [
        line for line in PAGE.read_text().splitlines() if line.startswith(tuple(f"| {n} |" for n in PROFILES))
    ]
    assert [line for line in shown if line.count("|") == 6] == list(table_lines(shared_data))
