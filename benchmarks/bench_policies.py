"""Goodput by policy on eight equal replicas, at the load where round robin meets the targets of 65 % of requests.

The trace is the Mooncake conversation trace where it can be found (``TOKENFLEET_SHARED_DATA``, or ``shared/data``
beside the checkout), else the synthetic profile fitted to it. Every seed draws 90 % of the requests, so the seeds
differ in who comes. TokenPilot runs without a trained model: its defaults were tuned on the synthetic ``document``
profile, never on this trace.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from data.fleet.reference import reference_fleet
from data.synth.profiles import PROFILES
from data.traces.length_classes import LengthClasses
from planner.arm import Arm
from planner.attainment_level import find_load
from planner.compare import Comparison, compare
from planner.fleet_streams import fleet_streams
from planner.load_level import LoadSearch
from planner.measures import GOODPUT
from planner.report.table import print_tables, to_markdown
from planner.report.tables import comparison_tables
from planner.report.why import explain
from planner.run_pool import RunPool, default_workers
from planner.scenario import Scenario
from planner.trace_source import FileTrace, Shaped, SynthTrace, TraceSource
from router.registry import POLICIES

REFERENCE = Arm("round_robin", "round_robin")
ATTAINMENT = 0.65
CLASSES = LengthClasses(("interactive", "long_context"), (8000,))
MUST_WIN = ("mooncake_no_transfer", "kv_cost_dynamo, scale 16", "tokenpilot")
QUICK = ("least_request", "cache_aware_sglang", "cache_aware_smg", "mooncake_no_transfer")


def trace_path() -> Path | None:
    """The Mooncake conversation trace, if it is on this machine."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("TOKENFLEET_SHARED_DATA", beside)) / "mooncake" / "conversation_trace.jsonl"
    return path if path.is_file() else None


def scenario() -> Scenario:
    """One pool of eight H100 under the conversation trace, classes by prompt length."""
    fleet = reference_fleet("one-pool")
    path = trace_path()
    source: TraceSource
    if path is not None:
        source = FileTrace(str(path), "mooncake")
    else:
        streams = fleet_streams(fleet, PROFILES["conversation"], 3.4)
        source = SynthTrace(streams, 1800.0, "synthetic conversation")
    return Scenario(fleet, Shaped(source, classes=CLASSES, sample=0.9))


def arms(quick: bool) -> list[Arm]:
    """Round robin first, then the peers with their defaults, and the variants that their users tune."""
    names = QUICK if quick else [name for name in POLICIES if name not in ("round_robin", "tokenpilot")]
    variants = [
        Arm("kv_cost_dynamo, scale 16", "kv_cost_dynamo", {"scale": 16.0}),
        Arm("predicted_latency_llmd, most headroom", "predicted_latency_llmd", {"headroom": "most"}),
        Arm("tokenpilot", "tokenpilot"),
    ]
    return [REFERENCE, *(Arm(name, name) for name in names), *variants]


def measure(quick: bool) -> tuple[Comparison, str, float]:
    """Find the load, run all arms with five seeds; the comparison, the trace's name and the speed."""
    base, chosen, seeds = scenario(), arms(quick), range(1, 6)
    with RunPool(default_workers(10)) as pool:
        load = find_load(base, REFERENCE, seeds[:2], LoadSearch(ATTAINMENT), pool)
        at_load = base.at_speed(load.speed)
        result = compare(chosen, at_load.run, seeds, reference=REFERENCE.name, pool=pool)
    return result, base.trace.label, load.speed


def rows(quick: bool) -> list[dict[str, Any]]:
    """One row an arm: Goodput relative to round robin; those that must win carry a target."""
    result, label, speed = measure(quick)
    found = []
    for entry in result.arms:
        name = entry.arm.name
        if name == result.reference:
            continue
        gain = result.relative_difference(name, GOODPUT)
        must = name in MUST_WIN
        found.append(
            {
                "id": f"goodput/one-pool/{name.replace(', ', '-').replace(' ', '')}",
                "area": "goodput",
                "value": gain.mean,
                "unit": "relative",
                "reference": f"round_robin at {ATTAINMENT:.0%}, {label} at speed {speed:.3g}",
                "ratio": 1.0 + gain.mean,
                "target": "interval > 0" if must else None,
                "met": bool(gain.low > 0) if must and gain.low is not None else None,
                "seeds": len(result.seeds),
                "interval": [gain.low, gain.high],
            }
        )
    return found


def main(argv: list[str] | None = None) -> None:
    """Print the tables; ``--markdown FILE`` also writes them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer policies")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(argv)
    result, label, speed = measure(options.quick)
    tables = comparison_tables(result)
    print(f"{label} at speed {speed:.4g}")
    print_tables(tables)
    for sentence in explain(result):
        print(sentence)
    if options.markdown is not None:
        options.markdown.write_text(to_markdown(tables))


if __name__ == "__main__":
    main()
