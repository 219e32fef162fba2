"""What ``tokenfleet check`` finds in one target: a fleet, a plan, a trace or a model, by name or by content."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.catalog.load import load_catalog
from data.errors import FleetFileError, InputError, ModelError, PlanFileError, TraceError
from data.fleet.reference import REFERENCE_FLEETS, resolve_fleet
from data.fleet.structure import unstated_gpus
from data.fleet.types import Fleet
from data.plan_io import read_plan

_PLAN_START = re.compile(rb'^\s*\{\s*"plan_id"')
_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in one target. ``notices`` are worth knowing but no faults."""

    target: str
    kind: str
    summary: str
    problems: tuple[InputError, ...] = ()
    notices: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for ``--json``."""
        return {
            "target": self.target,
            "kind": self.kind,
            "ok": not self.problems,
            "summary": self.summary,
            "problems": [_plain(problem) for problem in self.problems],
            "notices": list(self.notices),
        }


def _plain(problem: InputError) -> dict[str, Any]:
    value = problem.value
    return {
        "source": problem.source,
        "line": problem.line,
        "field": problem.field,
        "problem": problem.problem,
        "value": value if isinstance(value, str | int | float | bool | None) else repr(value)[:200],
        "expected": problem.expected,
    }


def check_target(target: str, fleet: Fleet | None = None) -> Verdict:
    """Find out what a target is and check it.

    Args:
        target: A built-in fleet's name, or the path of a fleet file, plan, trace or model folder.
        fleet: What a plan is checked against, beside its own form.
    """
    try:
        kind = target_kind(target)
    except OSError as error:
        problem = InputError(f"cannot be read: {error.strerror}", source=target)
        return Verdict(target, "unknown", "unusable file", (problem,))
    return _CHECKS[kind](target, fleet)


def target_kind(target: str) -> str:
    """``fleet``, ``plan``, ``model`` or ``trace``, from name, suffix and first bytes."""
    path = Path(target)
    if path.is_dir():
        return "model"
    if target in REFERENCE_FLEETS or not path.exists() or path.suffix in (".yaml", ".yml"):
        return "fleet"
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if _PLAN_START.match(head) or (path.suffix == ".json" and b'"schema_version"' in head):
        return "plan"
    return "trace"


def _check_fleet(target: str, fleet: Fleet | None) -> Verdict:  # noqa: ARG001
    try:
        found = resolve_fleet(target)
    except FleetFileError as error:
        return Verdict(target, "fleet", "unusable fleet", error.problems)
    gpus = sum(pool.count for pool in found.pools)
    summary = (
        f"fleet {found.name}: {len(found.sites)} sites, {gpus} GPUs, {len(found.models)} models, "
        f"{len(found.configs)} configs, {len(found.classes)} classes, {len(found.tenants)} tenants"
    )
    notices = tuple(
        f"the number of {gpu} at {site} is not stated: replicas there stay as they are"
        for site, gpu in unstated_gpus(found)
    )
    return Verdict(target, "fleet", summary, notices=notices)


def _check_plan(target: str, fleet: Fleet | None) -> Verdict:
    from solver.verify import verify_plan

    try:
        plan = read_plan(Path(target))
    except PlanFileError as error:
        return Verdict(target, "plan", "unusable plan", error.problems)
    gpus = sum(row.replicas * row.gpus_per_replica for row in plan.replicas)
    replicas = sum(row.replicas for row in plan.replicas)
    summary = f"plan {plan.plan_id} ({plan.status}) for {plan.fleet}: {replicas} replicas on {gpus} GPUs"
    if fleet is None:
        return Verdict(target, "plan", summary, notices=("give --fleet to check it against its fleet too",))
    problems = [
        PlanFileError(violation.detail, source=target, field=f"{violation.rule}: {violation.where}")
        for violation in verify_plan(plan, fleet, load_catalog())
    ]
    if plan.fleet != fleet.name:
        wrong = PlanFileError(
            "the plan is for another fleet", source=target, field="fleet", value=plan.fleet, expected=fleet.name
        )
        problems.insert(0, wrong)
    return Verdict(target, "plan", summary, tuple(problems))


def _check_trace(target: str, fleet: Fleet | None) -> Verdict:  # noqa: ARG001
    from data.traces.registry import open_trace
    from data.traces.report import Reject

    try:
        reader = open_trace(Path(target))
        for _ in reader.batches():
            pass
    except TraceError as error:
        return Verdict(target, "trace", "unusable trace", (error,))
    report = reader.report
    problems: list[InputError] = []
    notices: list[str] = []
    for reason, tally in sorted(report.rejected.items()):
        line = tally.lines[0] if tally.lines else None
        text = f"{reason}: {tally.count} rows refused" + (f" ({tally.detail})" if tally.detail else "")
        if reason in (Reject.FAILED, Reject.ZERO_OUTPUT):
            # The trace is well formed there: it records requests that failed.
            notices.append(text)
        else:
            problems.append(TraceError(text, source=target, line=line))
    if not report.accepted:
        problems.append(TraceError("no usable row", source=target))
    summary = f"{report.format} trace: {report.accepted} of {report.rows} rows usable, {report.span_s:g} s"
    return Verdict(target, "trace", summary, tuple(problems), tuple(notices))


def _check_model(target: str, fleet: Fleet | None) -> Verdict:  # noqa: ARG001
    from models.store import ModelStore, load_version

    path = Path(target)
    try:
        is_store = (path / "versions").is_dir()
        version = (ModelStore(path).load() if is_store else load_version(path)).version
    except ModelError as error:
        return Verdict(target, "model", "unusable model", (InputError(str(error), source=target),))
    return Verdict(target, "model", f"latency model {version}: checksum and probe rows agree")


_CHECKS: dict[str, Callable[[str, Fleet | None], Verdict]] = {
    "fleet": _check_fleet,
    "plan": _check_plan,
    "trace": _check_trace,
    "model": _check_model,
}
