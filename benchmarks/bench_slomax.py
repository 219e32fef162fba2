"""Goodput under overload with SLOMax and with its rivals, and what admission and queueing cost a request.

The load is the speed of the reference mix at which TokenPilot alone, every request sent on arrival, meets the
targets of 67 % of the requests. Rivals and SLOMax get the same number of settings to choose from, on a seed of
their own.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from benchmarks.kept_runs import KeptRuns, code_digest
from benchmarks.slomax_ablations import measure as ablations
from benchmarks.slomax_cost import cost_rows, idle_rows
from benchmarks.slomax_loads import LOADS, ahead, sweep
from benchmarks.slomax_promises import PROMISES, SECONDS
from benchmarks.slomax_rows import Row, estimated
from benchmarks.slomax_scenario import Mix, scenario, second_scenario
from benchmarks.slomax_window import in_window
from planner.arm import Arm, parse_arm
from planner.attainment_level import find_load
from planner.compare import Comparison, compare
from planner.intervals import estimate, paired_relative_difference
from planner.load_level import LoadSearch
from planner.measures import ATTAINMENT_OFFERED, GOODPUT, OUTPUT_RATE
from planner.report.table import print_tables, to_markdown
from planner.report.tables import comparison_tables
from planner.run_pool import RunPool
from planner.scenario import Scenario

ATTAINMENT = 0.67
POLICY = "tokenpilot"
REFERENCE = Arm("none", POLICY)
SEEDS = range(1, 6)
TUNING_SEED = 11
QUICK_WINDOW_S = 40.0
QUICK_SPEED = 1.4
SECOND_SPEED = 2.2
SECOND_S = 150.0
GRIDS: dict[str, tuple[str, ...]] = {
    "slomax": ("", "tpot_margin=0.6", "backlog_s=0.8", "reserve=0.1"),
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


RIVALS = tuple(name for name in GRIDS if name != "slomax")


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
        estimated("slomax/goodput", gain, where, ">= +29.4 %", gain.mean >= 0.294),
        estimated("slomax/attainment", attained, where, ">= 86 %", attained.mean >= 0.86),
        estimated("slomax/output", output, where, "not lower", output.mean >= -0.005),
    ]
    values = result.arm(own).values(GOODPUT)
    for flow, name in names.items():
        if flow != "slomax":
            ahead = paired_relative_difference(values, result.arm(name).values(GOODPUT))
            met = ahead.mean >= 0.08 and (ahead.low or 0.0) > 0
            rows.append(estimated(f"slomax/against/{flow}", ahead, name, ">= +8 %, interval > 0", met))
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
    return [estimated("slomax/interactive_ttft_p99_rise", rise, "no batch load", "<= +10 %", rise.mean <= 0.10)]


def promise_rows(pool: RunPool) -> list[Row]:
    """Each promise of ``benchmarks.slomax_promises``, kept or not."""
    found = []
    for name, promise in PROMISES.items():
        value = promise.measure(pool, SEEDS, SECONDS)
        row = estimated(
            f"slomax/promise/{name}", value, promise.reference, promise.target, value.mean >= promise.least
        )
        found.append({**row, "ratio": value.mean})
    return found


def load_rows(pool: RunPool) -> list[Row]:
    """Lead in Goodput over none and over the strongest rival at each load, and attainment there."""
    found = sweep(pool, SEEDS)
    rows = []
    for place, load in enumerate(LOADS):
        for rival in ("none", "weighted deficit"):
            name = rival.replace(" ", "_")
            rows.append(estimated(f"slomax/load_{load:.0%}/over_{name}", ahead(found, place, rival), rival))
        attained = estimate(found["SLOMax"][place].attainment)
        rows.append(estimated(f"slomax/load_{load:.0%}/attainment", attained, "offered"))
    return rows


def part_rows(pool: RunPool) -> list[Row]:
    """Goodput with one part of SLOMax off or on, over that of SLOMax as it is."""
    return [
        estimated(f"slomax/part/{name.replace(' ', '_')}", goodput, "SLOMax as it is")
        for name, (goodput, _, _) in ablations(pool, SEEDS).items()
        if name != "as it is"
    ]


def second_rows(pool: RunPool) -> list[Row]:
    """The headline on the second mix."""
    at_load = in_window(second_scenario(), SECOND_SPEED, SECOND_S)
    result = compare([REFERENCE, arm("slomax", "")], at_load.run, SEEDS, reference=REFERENCE.name, pool=pool)
    own, where = arm("slomax", "").name, f"none, second mix, speed {SECOND_SPEED:g}"
    good = [[run.total.good_output_tokens for run in result.arm(one).runs] for one in (own, REFERENCE.name)]
    return [
        estimated("slomax/second_mix/goodput", paired_relative_difference(good[0], good[1]), where),
        estimated("slomax/second_mix/attainment", result.arm(own).estimate(ATTAINMENT_OFFERED), where),
    ]


def measure(quick: bool, rivals: tuple[str, ...], pool: RunPool) -> tuple[Comparison, list[Row]]:
    """All runs; the comparison and the rows."""
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
        found += load_rows(pool) + part_rows(pool) + second_rows(pool) + promise_rows(pool)
    return result, found + cost_rows(2000 if quick else 20_000) + idle_rows(500 if quick else 3000)


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` takes a short window at a fixed speed and no rivals.

    The full form takes some 300 runs of ten seconds or so. Each is kept in ``out/bench_slomax`` until the last has
    ended, so that a benchmark that was stopped goes on with the next, as long as the code stays the same.
    """
    if quick:
        with RunPool(1) as pool:
            return measure(True, (), pool)[1]
    with KeptRuns(1, kept_in()) as kept:
        found = measure(False, RIVALS, kept)[1]
    kept.forget()
    return found


def kept_in() -> Path:
    """File of the runs of this state of the code."""
    return Path("out/bench_slomax") / f"runs-{code_digest()}.pickle"


def main(argv: list[str] | None = None) -> None:
    """Print the tables and the rows; ``--markdown FILE`` also writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short window, no rivals")
    parser.add_argument("--rivals", default=",".join(RIVALS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(argv)
    rivals = tuple(name for name in options.rivals.split(",") if name and not options.quick)
    pool = RunPool(options.workers) if options.quick else KeptRuns(options.workers, kept_in())
    with pool:
        result, found = measure(options.quick, rivals, pool)
    tables = comparison_tables(result)
    print_tables(tables)
    for one in found:
        print(one)
    if options.markdown is not None:
        options.markdown.write_text(to_markdown(tables))
    if isinstance(pool, KeptRuns):
        pool.forget()


if __name__ == "__main__":
    main()
