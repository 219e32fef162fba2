"""Seeded results of runs that never happened: material for statistics, tables and the report."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from data.fleet.types import Fleet, GpuPool, Link, Model, Placed, ReplicaConfig, Site, Tenant, WorkloadClass
from data.plan import Move, PlanDocument, PlannedReplicas, PlanStatus, UnmetDemand
from data.types import Slo
from planner.arm import Arm
from planner.compare import Comparison, compare
from planner.report.data import ModelQuality, ReportData
from planner.sim.result import Distribution, GroupResult, RunResult, Timeline
from planner.trace_source import TraceFacts

QUALITY = {"least_request": 1.0, "round_robin": 0.86, "tokenpilot": 1.18, "cache_aware": 0.97}
"""How good each made-up policy is against least_request."""


def made_group(offered: int, strength: float, rng: np.random.Generator) -> GroupResult:
    met_share = min(0.99, 0.7 * strength)
    completed = int(offered * 0.97)
    met = int(offered * met_share)
    ttft = Distribution(completed, 0.6 / strength, 0.4 / strength, 1.2 / strength, 2.0 / strength, 4.5 / strength)
    tpot = Distribution(completed, 0.032, 0.030, 0.041, 0.046, 0.06)
    e2e = Distribution(completed, 9.0, 8.0, 15.0, 18.0, 25.0)
    return GroupResult(
        offered=offered,
        completed=completed,
        met=met,
        failed=int(offered * 0.01),
        cancelled=int(offered * 0.015),
        rejected=offered - completed - int(offered * 0.01) - int(offered * 0.015),
        running=0,
        repeats=int(rng.integers(0, 9)),
        input_tokens=offered * 4000,
        output_tokens=completed * 210,
        good_output_tokens=met * 210,
        goodput_tokens_per_s=met * 210 / 600.0,
        output_tokens_per_s=completed * 210 / 600.0,
        attainment_finished=met / completed,
        attainment_offered=met / offered,
        hit_rate=min(0.95, 0.35 * strength),
        ttft=ttft,
        tpot=tpot,
        e2e=e2e,
    )


def made_run(arm: Arm, seed: int, tenants: tuple[str, ...] = ("acme", "globex", "umbrella")) -> RunResult:
    """A run whose load depends on the seed alone and whose quality depends on the policy, plus a little noise."""
    load = np.random.default_rng(seed)
    own = np.random.default_rng([seed, *arm.policy.encode()])
    offered = int(load.normal(9000, 700))
    strength = QUALITY.get(arm.policy, 1.0) * float(own.normal(1.0, 0.01))
    points, sites = 120, ("B", "C", "D")
    wave = 1 + np.sin(np.linspace(0, 9, points))[:, None] * np.array([0.9, 0.5, 0.3])
    waiting = np.maximum(0.0, wave * 8 / strength + own.normal(0, 0.6, (points, 3)))
    edges = np.logspace(-2, 2, 81)
    samples = own.lognormal(np.log(0.4 / strength), 0.9, offered)
    counts, _ = np.histogram(np.clip(samples, edges[0], edges[-1]), edges)
    shares = {"interactive": 0.6, "long_context": 0.15, "batch": 0.25}
    classes = {name: made_group(int(offered * part), strength, own) for name, part in shares.items()}
    groups = {name: made_group(offered // len(tenants), strength, own) for name in tenants}
    return RunResult(
        policy=arm.policy,
        seed=seed,
        fleet="four-sites",
        duration_s=600.0,
        total=made_group(offered, strength, own),
        by_class=classes,
        by_tenant=groups,
        gpu_hours=10.7,
        preemptions=int(own.integers(0, 40)),
        residency_breaches=0,
        timeline=Timeline(5.0, sites, waiting, waiting * 2, np.clip(wave / 2.2, 0, 1), waiting[:, 0] * 100),
        ttft_histogram=(edges, counts.astype(float)),
        endpoint_requests=own.poisson(offered / 20, 20).astype(float),
    )


def made_fleet(hostile: str = "acme") -> Fleet:
    return Fleet(
        name="four-sites",
        sites=(
            Site("A", "entry", "eu-west"),
            Site("B", "compute", "eu-west"),
            Site("C", "compute", "eu-north"),
            Site("D", "compute", "us-east"),
        ),
        links=(
            Link("A", "B", 0.002, 100.0),
            Link("A", "C", 0.018, 40.0),
            Link("A", "D", 0.085, 10.0, 0.02),
            Link("B", "C", 0.016, 40.0),
            Link("B", "D", 0.083, 10.0, 0.02),
            Link("C", "D", 0.095, 10.0, 0.02),
        ),
        pools=(
            GpuPool("B", "H100", 16, 2),
            GpuPool("B", "L40S", 8),
            GpuPool("C", "A100", 16),
            GpuPool("D", "H100", 8, 1),
            GpuPool("D", "RTX PRO 6000", 4),
        ),
        models=(Model("llama-3.1-8b", "1", "llama-3.1-8b", 131072), Model("qwen3-32b", "2", "qwen3-32b", 40960)),
        configs=(
            ReplicaConfig("llama-8b-h100", "llama-3.1-8b@1", "H100", 1),
            ReplicaConfig("qwen-32b-h100x2", "qwen3-32b@2", "H100", 2),
            ReplicaConfig("llama-8b-a100", "llama-3.1-8b@1", "A100", 1),
        ),
        classes=(
            WorkloadClass("interactive", Slo(ttft_s=1.0, tpot_s=0.05)),
            WorkloadClass("long_context", Slo(ttft_s=8.0, tpot_s=0.08)),
            WorkloadClass("batch", Slo(deadline_s=600.0)),
        ),
        tenants=(Tenant(hostile, "guaranteed"), Tenant("globex"), Tenant("umbrella", "best_effort")),
        placement=(
            Placed("B", "llama-8b-h100", 6),
            Placed("B", "qwen-32b-h100x2", 3, 1),
            Placed("C", "llama-8b-a100", 9),
            Placed("D", "llama-8b-h100", 2),
        ),
    )


def made_plan() -> PlanDocument:
    return PlanDocument(
        plan_id="plan-0007",
        parent_id="plan-0006",
        made_at="2026-11-29T15:00:00Z",
        valid_from="2026-11-29T15:10:00Z",
        valid_until="2026-11-29T15:40:00Z",
        fleet="four-sites",
        input_digests={"fleet": "ab12"},
        status=PlanStatus.FEASIBLE_LIMIT,
        objective=11840.0,
        goodput_tokens_per_s=12010.0,
        bound=11990.0,
        bound_name="linked LP",
        replicas=(
            PlannedReplicas("B", "llama-8b-h100", "llama-3.1-8b@1", "H100", 1, 4),
            PlannedReplicas("B", "qwen-32b-h100x2", "qwen3-32b@2", "H100", 2, 5),
            PlannedReplicas("C", "llama-8b-a100", "llama-3.1-8b@1", "A100", 1, 12, 2),
            PlannedReplicas("D", "llama-8b-h100", "llama-3.1-8b@1", "H100", 1, 5),
        ),
        moves=(
            Move("B", "llama-8b-h100", -2, 1200.0, "demand moved to C"),
            Move("C", "llama-8b-a100", 3, 5400.0, "cheapest free capacity"),
        ),
        unmet=(
            UnmetDemand(
                "demand", "qwen3-32b@2", "batch", "umbrella", 310.0, "tokens/s", "no free H100 pair in zone"
            ),
        ),
        solver="HiGHS",
        solve_s=3.2,
    )


def made_quality() -> tuple[ModelQuality, ...]:
    rng = np.random.default_rng(3)
    observed = rng.lognormal(-1, 0.9, 900)
    predicted = observed * rng.lognormal(0, 0.25, 900)
    return (
        ModelQuality("TTFT", predicted, observed, ((0.5, 0.51), (0.9, 0.887)), 0.17, 0.29, "20261129-1"),
        ModelQuality("TPOT", predicted / 12, observed / 12, ((0.5, 0.49), (0.9, 0.905)), 0.06, 0.11, "20261129-1"),
    )


def made_comparison(
    policies: tuple[str, ...] = ("least_request", "round_robin", "tokenpilot", "cache_aware"),
    seeds: int = 5,
    make_run: Callable[[Arm, int], RunResult] = made_run,
) -> Comparison:
    arms = [Arm(name, name) for name in policies]
    return compare(arms, make_run, range(seeds), reference=policies[0], workers=1)


def made_report(comparison: Comparison, *, plan: bool = True, hostile: str = "acme") -> ReportData:
    return ReportData(
        title="TokenPilot beside three baselines on four sites",
        comparison=comparison,
        fleet=made_fleet(hostile),
        trace=TraceFacts(
            "synthetic conversation, 15 requests/s for 600 s", 9000, 600.0, 36_000_000, 1_890_000, 1.4
        ),
        settings=(("Scrape period", "0.25 s"), ("Step noise", "2 %")),
        plan=made_plan() if plan else None,
        quality=made_quality() if plan else (),
        command="tokenfleet compare --fleet four-sites --policies least_request,tokenpilot",
        made_at="2026-11-29 15:00 UTC",
        versions=(("TokenFleet", "0.1.0"), ("Python", "3.11.2")),
    )


@pytest.fixture
def run_maker() -> Callable[..., RunResult]:
    return made_run


@pytest.fixture
def comparison_maker() -> Callable[..., Comparison]:
    return made_comparison


@pytest.fixture
def report_maker() -> Callable[..., ReportData]:
    return made_report
