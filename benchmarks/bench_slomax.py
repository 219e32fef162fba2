"""Goodput under overload with SLOMax and with its rivals, and what admission and queueing cost a request.

The load is the speed of the reference mix at which TokenPilot alone, every request sent on arrival, meets the
targets of 67 % of the requests. Rivals and SLOMax get the same number of settings to choose from, on a seed of
their own.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_decision import table_of
from benchmarks.router_fixture import busy_router, finish, questions
from benchmarks.slomax_promises import PROMISES, SECONDS
from benchmarks.slomax_scenario import Mix, scenario
from data.fleet.types import Fleet, Model, Site, Tenant, WorkloadClass
from data.types import RefusalReason, Slo
from planner.arm import Arm, parse_arm
from planner.attainment_level import find_load
from planner.compare import Comparison, compare
from planner.intervals import Estimate, paired_relative_difference
from planner.load_level import LoadSearch
from planner.measures import ATTAINMENT_OFFERED, GOODPUT, OUTPUT_RATE
from planner.report.table import print_tables, to_markdown
from planner.report.tables import comparison_tables
from planner.run_pool import RunPool
from planner.scenario import Scenario
from router.prefix import EventPrefixIndex
from router.slomax.context import FlowContext
from router.slomax.flow_control import SloMax
from router.slomax.settings import SloMaxSettings
from router.slomax.types import Arrival
from router.types import RouteRequest

Row = dict[str, Any]
ATTAINMENT = 0.67
POLICY = "tokenpilot"
REFERENCE = Arm("none", POLICY)
SEEDS = range(1, 6)
TUNING_SEED = 11
QUICK_WINDOW_S = 40.0
QUICK_SPEED = 1.4
GRIDS: dict[str, tuple[str, ...]] = {
    "slomax": ("", "tpot_margin=0.6", "backlog_s=0.8", "reserve=0.5"),
    "strict_priority": ("slots=12", "slots=16", "slots=20", "slots=24"),
    "weighted_deficit_dynamo": (
        "busy_share=0.02:tight_factor=16.0",
        "busy_share=0.05:tight_factor=16.0",
        "busy_share=0.1:tight_factor=16.0",
        "busy_share=0.25:tight_factor=16.0",
    ),
    "token_pools": ("slots=8", "slots=16:busy_share=0.25", "slots=24:busy_share=0.5", "slots=32:busy_share=0.25"),
    "saturation_gate_llmd": (
        "queue_depth=1.0",
        "queue_depth=0.5:band_step=0.5",
        "queue_depth=0.25",
        "queue_depth=1.0:kv_use=0.2:band_step=0.7",
    ),
    "reserved_classes_smg": (
        "slots=16:reserved=0.4",
        "slots=24:reserved=0.4",
        "slots=24:reserved=0.5",
        "slots=32:reserved=0.3",
    ),
}


def arm(flow: str, settings: str, name: str | None = None) -> Arm:
    """TokenPilot behind a flow control."""
    text = f"{POLICY}+{flow}" + (f":{settings}" if settings else "")
    return replace(parse_arm(text), name=name or text)


def shortened(base: Scenario, seconds: float) -> Scenario:
    """The same mix in a shorter window."""
    source = base.trace.source
    assert isinstance(source, Mix)
    return replace(base, trace=replace(base.trace, source=replace(source, duration_s=seconds)))


def at_reference_load(quick: bool, pool: RunPool) -> tuple[Scenario, float]:
    """The scenario at its load, and the speed."""
    base = scenario()
    if quick:
        return shortened(base, QUICK_WINDOW_S).at_speed(QUICK_SPEED), QUICK_SPEED
    load = find_load(base, REFERENCE, list(SEEDS)[:2], LoadSearch(ATTAINMENT), pool)
    return base.at_speed(load.speed), load.speed


def tuned(flow: str, base: Scenario, pool: RunPool) -> Arm:
    """The setting of its grid with the most Goodput on the tuning seed."""
    trials = [arm(flow, settings) for settings in GRIDS[flow]]
    runs = pool.run(base.run, [(one, TUNING_SEED) for one in trials])
    return max(zip(trials, runs, strict=True), key=lambda pair: pair[1].total.goodput_tokens_per_s)[0]


def goodput_rows(result: Comparison, load: str, names: dict[str, str]) -> list[Row]:
    """Goodput, attainment and output of SLOMax against none, and Goodput against each rival."""
    where = f"TokenPilot without flow control, {load}"
    own = names["slomax"]
    gain = result.relative_difference(own)
    output = result.relative_difference(own, OUTPUT_RATE)
    attained = result.arm(own).estimate(ATTAINMENT_OFFERED)
    rows = [
        _row("slomax/goodput", gain, where, ">= +29.4 %", gain.mean >= 0.294),
        _row("slomax/attainment", attained, where, ">= 86 %", attained.mean >= 0.86),
        _row("slomax/output", output, where, "not lower", output.mean >= -0.005),
    ]
    values = result.arm(own).values(GOODPUT)
    for flow, name in names.items():
        if flow != "slomax":
            ahead = paired_relative_difference(values, result.arm(name).values(GOODPUT))
            met = ahead.mean >= 0.08 and (ahead.low or 0.0) > 0
            rows.append(_row(f"slomax/against/{flow}", ahead, name, ">= +8 %, interval > 0", met))
    return rows


def batch_rows(base: Scenario, speed: float, window_s: float, pool: RunPool) -> list[Row]:
    """Interactive TTFT P99 when the batch load grows from nothing to three times."""
    own = arm("slomax", "", "slomax")
    tails = []
    for factor in (0.0, 3.0):
        grown = shortened(scenario(factor, base.fleet), window_s).at_speed(speed)
        runs = pool.run(grown.run, [(own, seed) for seed in SEEDS])
        tails.append([run.by_class["interactive"].ttft.p99 for run in runs])
    rise = paired_relative_difference(tails[1], tails[0])
    return [_row("slomax/interactive_ttft_p99_rise", rise, "no batch load", "<= +10 %", rise.mean <= 0.10)]


def cost_rows(count: int) -> list[Row]:
    """Time of admission, queueing and dispatch of one request, and memory of 100,000 that wait."""
    flow, requests = _loaded_flow(64, count)
    offered = [Arrival(one, 0.0) for one in requests]
    started = time.process_time()
    for one in offered:
        flow.offer(one, 0.0)
    enqueue_us = (time.process_time() - started) / count * 1e6
    flow.context.table.waiting_prefill_s[:] = 0.0
    flow.context.table.inflight[:] = 0.0
    started = time.process_time()
    taken = 0
    while taken < count // 2 and flow.next(0.0) is not None:
        taken += 1
    dequeue_us = (time.process_time() - started) / max(taken, 1) * 1e6
    cost = enqueue_us + dequeue_us
    tracemalloc.start()
    flow, requests = _loaded_flow(64, 100_000)
    before = tracemalloc.get_traced_memory()[0]
    for request in requests:
        flow.offer(Arrival(request, 0.0), 0.0)
    used_mb = (tracemalloc.get_traced_memory()[0] - before) / 1e6
    tracemalloc.stop()
    return [
        _plain("slomax/cost/offer", enqueue_us, "us", "-", None, True),
        _plain("slomax/cost/next", dequeue_us, "us", "-", None, True),
        _plain("slomax/cost/request", cost, "us", "-", "<= 30 us", cost <= 30.0),
        _plain("slomax/cost/memory_100k", used_mb, "MB", "-", "<= 200 MB", used_mb <= 200.0),
    ]


def promise_rows(pool: RunPool) -> list[Row]:
    """Each promise of ``benchmarks.slomax_promises``, kept or not."""
    found = []
    for name, promise in PROMISES.items():
        value = promise.measure(pool, SEEDS, SECONDS)
        row = _row(f"slomax/promise/{name}", value, promise.reference, promise.target, value.mean >= promise.least)
        found.append({**row, "ratio": value.mean})
    return found


def idle_rows(count: int) -> list[Row]:
    """What SLOMax adds to a decision over 64 idle engines where nobody waits: route, first token and end."""
    asked = questions(count, seed=3)
    routers = {flow: busy_router(64, held=0, flow=flow) for flow in ("none", "slomax")}
    spent: dict[str, list[float]] = {flow: [] for flow in routers}
    for one in asked:
        for flow, live in routers.items():
            started = time.thread_time()
            reply = live.route(one)
            finish(live, reply.placement.lease_id)
            spent[flow].append((time.thread_time() - started) * 1e6)
    with_it, without = (float(np.median(spent[flow][count // 5 :])) for flow in ("slomax", "none"))
    row = _plain("slomax/cost/idle", with_it - without, "us", f"{without:.0f} us without", None, True)
    return [{**row, "ratio": with_it / without}]


def _loaded_flow(replicas: int, count: int) -> tuple[SloMax, list[RouteRequest]]:
    """A flow control before engines that are full, and requests of three classes and eight tenants."""
    table = table_of(replicas)
    table.waiting_prefill_s[:], table.inflight[:] = 1e6, 10.0
    table.inflight_uncached_tokens[:], table.prefill_since_s[:] = 1e6, 0.0
    classes = (
        WorkloadClass("interactive", Slo(ttft_s=1e5, tpot_s=0.05)),
        WorkloadClass("long_context", Slo(ttft_s=2e5, tpot_s=0.08)),
        WorkloadClass("batch", Slo(deadline_s=1e6)),
    )
    tenants = tuple(Tenant(f"t{i}") for i in range(8))
    model = table.specs[0].model
    name, _, version = model.partition("@")
    fleet = Fleet("f", (Site("B", "compute", "z"),), (), (), (Model(name, version, "m", 1),), (), classes, tenants)
    rows, rtt = np.arange(replicas), np.zeros(replicas)
    context = FlowContext(
        fleet,
        table,
        EventPrefixIndex(replicas),
        lambda _: rows,
        lambda _: RefusalReason.NO_ENDPOINT,
        lambda _: rtt,
    )
    settings = SloMaxSettings(queue_wait_s=1e9, max_ttl_s=1e9)
    requests = [
        RouteRequest(
            i,
            model,
            f"t{i % 8}",
            classes[i % 3].name,
            "A",
            500 + i % 1000,
            500,
            200.0,
            (),
            16,
            "",
            classes[i % 3].slo,
        )
        for i in range(count)
    ]
    return SloMax(context, settings), requests


def _row(id_: str, value: Estimate, reference: str, target: str, met: bool) -> Row:
    return {
        **_plain(id_, value.mean, "relative", reference, target, met),
        "ratio": 1.0 + value.mean if "attainment" not in id_ else None,
        "seeds": len(SEEDS),
        "interval": [value.low, value.high],
    }


def _plain(id_: str, value: float, unit: str, reference: str, target: str | None, met: bool) -> Row:
    return {
        "id": id_,
        "area": "slomax",
        "value": value,
        "unit": unit,
        "reference": reference,
        "ratio": None,
        "target": target,
        "met": met,
    }


def measure(quick: bool, rivals: tuple[str, ...], workers: int) -> tuple[Comparison, list[Row]]:
    """All runs; the comparison and the rows."""
    with RunPool(workers) as pool:
        at_load, speed = at_reference_load(quick, pool)
        own = arm("slomax", "") if quick else tuned("slomax", at_load, pool)
        names = {"slomax": own.name}
        arms = [REFERENCE, own]
        for flow in rivals:
            rival = tuned(flow, at_load, pool)
            names[flow] = rival.name
            arms.append(rival)
        result = compare(arms, at_load.run, SEEDS, reference=REFERENCE.name, pool=pool)
        window = f"the first {QUICK_WINDOW_S:.0f} s" if quick else f"where that one attains {ATTAINMENT:.0%}"
        found = goodput_rows(result, f"{window}, speed {speed:.3g}", names)
        if not quick:
            source = at_load.trace.source
            assert isinstance(source, Mix)
            found += batch_rows(at_load, speed, source.duration_s, pool)
            found += promise_rows(pool)
    return result, found + cost_rows(2000 if quick else 20_000) + idle_rows(500 if quick else 3000)


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` takes a short window at a fixed speed and no rivals."""
    return measure(quick, () if quick else tuple(name for name in GRIDS if name != "slomax"), 2)[1]


def main(argv: list[str] | None = None) -> None:
    """Print the tables; ``--markdown FILE`` also writes them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short window, no rivals")
    parser.add_argument("--rivals", default=",".join(name for name in GRIDS if name != "slomax"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(argv)
    rivals = tuple(name for name in options.rivals.split(",") if name and not options.quick)
    result, found = measure(options.quick, rivals, options.workers)
    tables = comparison_tables(result)
    print_tables(tables)
    for one in found:
        print(one)
    if options.markdown is not None:
        options.markdown.write_text(to_markdown(tables))


if __name__ == "__main__":
    main()
