"""Goodput of site choice on ``four-sites`` with a hot spell at B and the loss of C, and what a choice costs.

The demo's tenants send from A and B; from 200 s to 300 s sessions start at B two and a half times as often, and
from 250 s to 310 s (and a minute of loading more) site C is lost. Clients try three times more. The placement is a
plan made for the demand of another seed, or the fleet's own. *Local only* keeps each request at the nearest
permitted site where its model stands: for the entry A, which has no GPUs, that is mostly B. G1 is GORGO's cost
over all replicas of all sites; S1 is SkyWalker's rule between sites with TokenPilot inside each, which
serves it better than the longest prefix does.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_decision import prompts
from data.catalog.types import ServiceTimes
from data.fleet.reference import reference_fleet
from data.fleet.types import Fleet, Link, Model, Site, Tenant
from data.types import Outcome, Status
from planner.arm import Arm, parse_arm
from planner.compare import Comparison, compare
from planner.demo.settings import DemoSettings
from planner.demo.steps import demo_scenario, make_plan
from planner.intervals import Estimate, paired_relative_difference
from planner.measures import ATTAINMENT_OFFERED, GOODPUT
from planner.run_pool import RunPool
from planner.scenario import Scenario
from planner.sim.settings import FailureEvent, SimSettings, SiteFailure
from router.core import Decision, RouterCore
from router.endpoints import EndpointSpec, EndpointTable
from router.filters import FilterRules
from router.leases import LeaseBook
from router.prefix import EventPrefixIndex
from router.registry import make_policy
from router.sites.base import SiteContext
from router.sites.registry import site_rule_factory
from router.sites.stage import SiteStage
from router.types import FleetView, RouteRequest

Row = dict[str, Any]
SEEDS = range(1, 6)
TUNING_SEED = 11
SECONDS = 400.0
LOADS = (42.0, 56.0)
"""Requests/s at which local-only attains about 85 % and 65 %."""
QUICK_LOAD, QUICK_SECONDS, QUICK_SEEDS = 56.0, 120.0, range(1, 3)
LOSS = SiteFailure(250.0, "C", "loss", 60.0)
FAULT_SECONDS = 240.0
FAULTS = (
    SiteFailure(60.0, "C", "loss", 30.0),
    SiteFailure(100.0, "A", "link_cut", 20.0, peer="D"),
    SiteFailure(140.0, "B", "slow", 20.0, 3.0),
    SiteFailure(190.0, "A", "link_cut", 15.0, peer="B"),
)
CRASHES = tuple(FailureEvent(20.0 + 25.0 * number, number, "crash", 15.0) for number in range(8))
BATCH = 50
NOW = "as it stands"
"""Marks the arms on the fleet's own placement."""
GORGO = ("", "rtt_weight=0.5", "queue_weight=0.5", "queue_weight=2.0")
TIMES = ServiceTimes(p0=0.01, p1=5e-5, p2=1e-9, d0=0.008, d1=1e-5, d2=1e-8)


@dataclass(frozen=True, slots=True)
class Rival:
    """One arm to compare with: the text of the arm, and whether it runs on the plan."""

    id: str
    text: str
    planned: bool = True
    target: float | None = None


OWN = Rival("fleetmind", "tokenpilot@fleetmind")
RIVALS = (
    Rival("local_only", "tokenpilot@local_only", planned=False, target=0.15),
    Rival("local_only_on_plan", "tokenpilot@local_only"),
    Rival("g1", "rtt_aware_gorgo", target=0.05),
    Rival("s1", "tokenpilot@skywalker", target=0.05),
    Rival("g1_with_tokenpilot", "tokenpilot@gorgo"),
    Rival("s1_longest_prefix", "kv_aware_vllm_router@skywalker"),
    Rival("shares_only", "tokenpilot@shares_only"),
    Rival("all_sites_at_once", "tokenpilot"),
    Rival("fleetmind_without_plan", "tokenpilot@fleetmind", planned=False),
)


def scenario(rate_per_s: float, seconds: float, **settings: Any) -> Scenario:
    """The demo's tenants at a load, over a window that ends every run."""
    base = demo_scenario(reference_fleet("four-sites"), DemoSettings(rate_per_s, seconds))
    return replace(base, settings=SimSettings(retries=3, cancel_share=0.005, time_limit_s=seconds, **settings))


def arm(rival: Rival, plan: Path, settings: str = "") -> Arm:
    """The arm of a rival, with settings behind its last part."""
    text = rival.text + (f":{settings}" if settings else "")
    return replace(parse_arm(text, plan_path=str(plan) if rival.planned else None), name=rival.id)


def tuned(rival: Rival, plan: Path, base: Scenario, pool: RunPool) -> Arm:
    """The setting of GORGO's cost with the most Goodput on the tuning seed; others have nothing to set."""
    if "gorgo" not in rival.text:
        return arm(rival, plan)
    trials = [arm(rival, plan, settings) for settings in GORGO]
    runs = pool.run(base.run, [(one, TUNING_SEED) for one in trials])
    return max(zip(trials, runs, strict=True), key=lambda pair: pair[1].total.goodput_tokens_per_s)[0]


def behind_slomax_rows(rate_per_s: float, seconds: float, seeds: range, pool: RunPool) -> list[Row]:
    """The same against local-only with SLOMax in front of both; it holds tenants to their budgets as well."""
    with tempfile.TemporaryDirectory() as folder:
        plan = planned_for(rate_per_s, seconds, Path(folder))
        base = scenario(rate_per_s, seconds, site_failures=(LOSS,))
        own = Rival("fleetmind", "tokenpilot+slomax@fleetmind")
        rival = Rival("local_only", "tokenpilot+slomax@local_only", planned=False)
        result = compare([arm(own, plan), arm(rival, plan)], base.run, seeds, reference=rival.id, pool=pool)
    reference = f"{rival.text}, {NOW}, {rate_per_s:g} requests/s"
    gain = result.relative_difference(own.id)
    return [_gain(f"sites/{rate_per_s:g}/behind_slomax", gain, reference, 0.15, len(seeds))]


def planned_for(rate_per_s: float, seconds: float, folder: Path) -> Path:
    """The plan for the demand of a seed that no reported run uses."""
    path = folder / f"plan-{rate_per_s:g}.json"
    make_plan(scenario(rate_per_s, seconds), DemoSettings(rate_per_s, seconds), path)
    return path


def goodput_rows(result: Comparison, rivals: tuple[Rival, ...], rate_per_s: float, label: str) -> list[Row]:
    """Goodput of FleetMind with the plan against each rival, paired by seed, and breaches in all runs."""
    own = result.arm(OWN.id).values(GOODPUT)
    level = result.arm(RIVALS[0].id).estimate(ATTAINMENT_OFFERED).mean
    rows = []
    for rival in rivals:
        gain = paired_relative_difference(own, result.arm(rival.id).values(GOODPUT))
        placed = "on the plan" if rival.planned else NOW
        reference = f"{rival.text}, {placed}, {rate_per_s:g} requests/s, local-only attains {level:.0%}"
        rows.append(_gain(f"sites/{label}/{rival.id}", gain, reference, rival.target, len(own)))
    breaches = sum(run.residency_breaches for entry in result.arms for run in entry.runs)
    return [*rows, _plain(f"sites/{label}/breaches", breaches, "requests", "all runs", "0", breaches == 0)]


def measure(
    rate_per_s: float, seconds: float, seeds: range, rivals: tuple[Rival, ...], pool: RunPool, label: str = ""
) -> list[Row]:
    """All arms at one load; ``label`` stands in the ids, the load if empty."""
    failures = (LOSS,) if seconds > LOSS.at_s else (replace(LOSS, at_s=seconds / 2, duration_s=10.0),)
    with tempfile.TemporaryDirectory() as folder:
        plan = planned_for(rate_per_s, seconds, Path(folder))
        base = scenario(rate_per_s, seconds, site_failures=failures)
        arms = [arm(OWN, plan), *(tuned(rival, plan, base, pool) for rival in rivals)]
        result = compare(arms, base.run, seeds, reference=OWN.id, pool=pool)
        rows = goodput_rows(result, rivals, rate_per_s, label or f"{rate_per_s:g}")
        for entry in result.arms:
            good, attained = entry.estimate(GOODPUT), entry.estimate(ATTAINMENT_OFFERED)
            print(
                f"{rate_per_s:g} {entry.arm.name:26s} {good.mean:8.0f} tokens/s {attained.mean:6.1%}", flush=True
            )
    return rows


def fault_rows(rate_per_s: float, seeds: range, pool: RunPool) -> list[Row]:
    """Residency breaches while engines crash, a site slows, links are cut and clients try three times more."""
    base = scenario(rate_per_s, FAULT_SECONDS, site_failures=FAULTS, failures=CRASHES)
    names = ("tokenpilot@fleetmind", "tokenpilot@gorgo", "tokenpilot@skywalker")
    arms = [parse_arm(name) for name in names]
    runs = pool.run(base.run, [(one, seed) for one in arms for seed in seeds])
    breaches = sum(run.residency_breaches for run in runs)
    tried = sum(run.total.repeats for run in runs)
    reference = (
        f"{len(runs)} runs with {tried} repeats, {int(sum(run.endpoint_requests.sum() for run in runs))} sent"
    )
    return [_plain("sites/faults/breaches", breaches, "requests", reference, "0", breaches == 0)]


def cost_rows(count: int) -> list[Row]:
    """Time of one decision over 64 engines at four sites with TokenPilot, with the site stage and without."""
    took = {rule: _decisions_us(rule, count) for rule in ("none", "fleetmind")}
    added = took["fleetmind"] - took["none"]
    row = _plain("sites/cost/decision", added, "us added", f"{took['none']:.0f} us without", None, None)
    return [{**row, "ratio": took["fleetmind"] / took["none"]}]


def _decisions_us(rule: str, count: int) -> float:
    """Processor time of filter, choice, dispatch, first token and end in a busy fleet."""
    names = ("B", "C", "D", "E")
    specs = [
        EndpointSpec(
            f"{names[i % 4]}/c/{i}", names[i % 4], "m@1", "c", "H100", 1, TIMES, 400_000, 8192, 256, 131_072
        )
        for i in range(64)
    ]
    fleet = Fleet(
        "f",
        (Site("A", "entry", "z"), *(Site(name, "compute", "z") for name in names)),
        tuple(Link("A", name, 0.005, 10.0) for name in names),
        (),
        (Model("m", "1", "x", 131_072),),
        (),
        (),
        (Tenant("t"),),
    )
    table, index = EndpointTable(specs), EventPrefixIndex(64)
    rules = FilterRules(fleet, table)
    made = None if rule == "none" else site_rule_factory(rule, {})(SiteContext(fleet))
    stage = None if made is None else SiteStage(made, fleet, table, rules)
    core = RouterCore(table, index, rules, make_policy("tokenpilot", {}, table, 1), LeaseBook(table), stage)
    rng, rtt_s = np.random.default_rng(0), np.full(64, 0.005)
    asked, spent = prompts(rng, count + 256), []
    for i, request in enumerate(asked[count:]):
        index.stored(i % 64, request.block_hashes)
    # Reading the thread's clock takes longer than a decision on some systems: so many at once.
    for first in range(0, count - BATCH + 1, BATCH):
        started = time.thread_time()
        for i in range(first, first + BATCH):
            _serve(core, FleetView(0.01 * i, table, index, rtt_s), asked[i])
        spent.append((time.thread_time() - started) / BATCH)
    return float(np.median(spent[len(spent) // 5 :])) * 1e6


def _serve(core: RouterCore, view: FleetView, request: RouteRequest) -> None:
    """One request from its decision to its end."""
    now_s = view.now_s
    decision = core.decide(request, view)
    assert isinstance(decision, Decision)
    lease = core.dispatch(request, decision)
    core.first_token(request, decision.endpoint, lease, now_s + 0.005, 0.005)
    outcome = Outcome(
        request.request_id, 0, Status.COMPLETED, "interactive", "t", decision.endpoint, now_s, now_s + 0.009,
        0.005, 0.009, request.input_tokens, 0, 10,
    )  # fmt: skip
    core.finished(request, lease, outcome)


def _gain(id_: str, gain: Estimate, reference: str, target: float | None, seeds: int) -> Row:
    met = None if target is None else bool(gain.mean >= target and (gain.low is None or gain.low > 0))
    wanted = None if target is None else f">= +{target:.0%}, interval > 0"
    row = _plain(id_, gain.mean, "relative", reference, wanted, met)
    return {**row, "ratio": 1.0 + gain.mean, "seeds": seeds, "interval": [gain.low, gain.high]}


def _plain(id_: str, value: float, unit: str, reference: str, target: str | None, met: bool | None) -> Row:
    return {
        "id": id_,
        "area": "sites",
        "value": value,
        "unit": unit,
        "reference": reference,
        "ratio": None,
        "target": target,
        "met": met,
    }


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` takes two seeds of a short window before the hot spell, which decides no target."""
    with RunPool(2) as pool:
        if quick:
            few = tuple(replace(rival, target=None) for rival in RIVALS if rival.target is not None)
            found = measure(QUICK_LOAD, QUICK_SECONDS, QUICK_SEEDS, few, pool, "quick")
        else:
            found = [row for load in LOADS for row in measure(load, SECONDS, SEEDS, RIVALS, pool)]
            found += behind_slomax_rows(LOADS[-1], SECONDS, SEEDS, pool)
            found += fault_rows(LOADS[0], SEEDS, pool)
    return found + cost_rows(500 if quick else 3000)


def main(argv: list[str] | None = None) -> None:
    """Print the rows of one load, of the faults, or of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", type=float, help="requests/s; everything without it")
    parser.add_argument("--few", action="store_true", help="with --load: only the rivals with a target")
    parser.add_argument("--faults", action="store_true", help="only the runs with faults of all kinds")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(argv)
    rivals = tuple(rival for rival in RIVALS if rival.target is not None) if options.few else RIVALS
    with RunPool(options.workers) as pool:
        if options.faults:
            found = fault_rows(LOADS[0], SEEDS, pool)
        elif options.load is not None:
            found = measure(options.load, SECONDS, SEEDS, rivals, pool)
        else:
            found = rows(quick=False)
    for row in found:
        print(row)


if __name__ == "__main__":
    main()
