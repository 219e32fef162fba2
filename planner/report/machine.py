"""Results as plain values for ``--json``: every figure, every seed, nothing rounded, NaN as null."""

from __future__ import annotations

from dataclasses import asdict
from operator import attrgetter
from typing import Any

import orjson

from planner import measures as m
from planner.compare import ArmRuns, Comparison, group_estimate
from planner.intervals import CONFIDENCE, Estimate
from planner.report.tables import OUTPUT_ONLY, interval_note
from planner.report.why import explain
from planner.sim.result import RunResult

GROUP_FIGURES = ("goodput_tokens_per_s", "output_tokens_per_s", "attainment_finished", "attainment_offered")


def comparison_values(comparison: Comparison) -> dict[str, Any]:
    """A comparison as plain values: means with intervals, differences to the reference, values of each seed."""
    return {
        "seeds": list(comparison.seeds),
        "reference": comparison.reference,
        "confidence": CONFIDENCE,
        "why": explain(comparison),
        "notes": [interval_note(comparison), OUTPUT_ONLY],
        "arms": [_arm(comparison, entry) for entry in comparison.ranked()],
    }


def run_values(run: RunResult) -> dict[str, Any]:
    """One run as plain values; arrays become lists."""
    return {**asdict(run), "goodput_per_gpu_hour": run.goodput_per_gpu_hour}


def to_json(value: object) -> str:
    """Indented JSON; numbers that are not finite become null."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode()


def _arm(comparison: Comparison, entry: ArmRuns) -> dict[str, Any]:
    name = entry.arm.name
    return {
        "name": name,
        "policy": entry.arm.policy,
        "settings": dict(entry.arm.settings),
        "predictor": entry.arm.predictor_path,
        "drift_guard": entry.arm.drift_guard,
        "plan": entry.arm.plan_path,
        "figures": {measure.key: _figure(comparison, entry, measure) for measure in m.MEASURES},
        "by_class": _groups(comparison, entry, "class"),
        "by_tenant": _groups(comparison, entry, "tenant"),
    }


def _figure(comparison: Comparison, entry: ArmRuns, measure: m.Measure) -> dict[str, Any]:
    return {
        "unit": measure.unit,
        "better": measure.better,
        **_estimate(entry.estimate(measure)),
        "values": entry.values(measure),
        "difference": _estimate(comparison.difference(entry.arm.name, measure)),
        "relative_difference": _estimate(comparison.relative_difference(entry.arm.name, measure)),
    }


def _groups(comparison: Comparison, entry: ArmRuns, kind: m.GroupKind) -> dict[str, Any]:
    return {
        name: {
            figure: _estimate(group_estimate(entry, kind, name, attrgetter(figure))) for figure in GROUP_FIGURES
        }
        for name in comparison.group_names(kind)
    }


def _estimate(figure: Estimate) -> dict[str, Any]:
    return {"mean": figure.mean, "low": figure.low, "high": figure.high, "count": figure.count}
