"""Everything that the runs of a comparison share: fleet, trace and run settings, as one picklable value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from data.catalog.load import load_catalog
from data.errors import InputError, SettingError
from data.fleet.types import Fleet, Placed
from data.outcome_sink import RecordSink
from data.plan import PlanDocument
from data.types import Request
from models.base import LatencyPredictor
from models.guarded import guarded_model
from models.hardware import fleet_kinds
from planner.arm import Arm, flow_of, sites_of
from planner.plan_execution import PlanExecution, plan_execution, read_plans, standing
from planner.sim.result import RunResult
from planner.sim.run import Progress, simulate
from planner.sim.settings import SimSettings
from planner.trace_source import Shaped, TraceFacts, trace_facts
from router.endpoints import EndpointTable
from router.policies.settings import Setting
from router.registry import make_policy


@dataclass(frozen=True, slots=True)
class Scenario:
    """What stays the same between the arms of a comparison.

    Attributes:
        fleet: The fleet; its placement is used by arms without a plan.
        trace: Where requests come from, and how fast.
        settings: Settings of the run; its seed is replaced by that of each run.
    """

    fleet: Fleet
    trace: Shaped
    settings: SimSettings = field(default_factory=SimSettings)

    def run(
        self, arm: Arm, seed: int, sink: RecordSink | None = None, progress: Progress | None = None
    ) -> RunResult:
        """Run one arm with one seed; nothing is shared with other runs.

        Args:
            arm: Policy, and the plan and latency model it runs with.
            seed: Of arrivals, lengths, noise, failures and the policy's own draws.
            sink: Takes decision and outcome rows.
            progress: Told the simulated clock now and then.

        Raises:
            InputError: The plan does not fit the fleet, or nothing is placed.
            ModelError: The latency model cannot be loaded.
        """
        carried = carried_out(self.fleet, arm.plan_path)
        specs = carried.specs
        table = EndpointTable(specs)
        predictor = load_predictor(arm.predictor_path)
        if arm.drift_guard and predictor is not None:
            guarded = guarded_model(predictor, fleet_kinds([self.fleet], load_catalog()), onward=sink)
            predictor, sink = guarded.guard, guarded.watch
        policy = make_policy(arm.policy, arm.settings, table, seed, predictor)
        settings = replace(self.settings, seed=seed)
        requests = self.requests(seed)
        return simulate(
            self.fleet,
            specs,
            requests,
            policy,
            settings,
            table=table,
            sink=sink,
            progress=progress,
            flow=flow_of(arm),
            sites=sites_of(arm),
            shares=carried.shares,
            starts=carried.starts,
            drains=carried.drains,
            switches=carried.switches,
            gpus=carried.gpus,
        )

    def check(self, arm: Arm) -> None:
        """Look at the arm's plan and latency model before any long work; raises what :meth:`run` would."""
        carried_out(self.fleet, arm.plan_path)
        load_predictor(arm.predictor_path)

    def requests(self, seed: int) -> Iterator[Request]:
        """The requests of one seed, in order of arrival."""
        for batch in self.trace.batches(seed):
            yield from batch.rows()

    def facts(self, seed: int) -> TraceFacts:
        """What is offered with one seed; reads the trace once."""
        return trace_facts(self.trace, seed)

    def at_speed(self, speed: float) -> Scenario:
        """The same with another factor on the trace's own arrival rate."""
        return replace(self, trace=replace(self.trace, speed=speed))


def carried_out(fleet: Fleet, plan_path: str | None) -> PlanExecution:
    """What a run on a plan file, on a folder of plans one after the other, or on the fleet's placement is made of.

    Raises:
        PlanFileError: A plan cannot be read.
        InputError: A plan was made for another fleet, or nothing is placed at first.
    """
    plans = [] if plan_path is None else read_plans(plan_path)
    for timed in plans:
        plan_placement(fleet, timed.plan, plan_path or "")
    placed = plan_placement(fleet, plans[0].plan, plan_path or "") if plans else fleet.placement
    if not any(one.replicas for one in placed):
        raise InputError(
            "no replica is placed", source=plan_path or fleet.name, field="placement", expected="at least one"
        )
    catalog = load_catalog()
    return plan_execution(fleet, catalog, plans) if plans else standing(fleet, catalog, placed)


def plan_placement(fleet: Fleet, plan: PlanDocument, source: str) -> tuple[Placed, ...]:
    """What a plan places, checked against the fleet's names.

    Raises:
        InputError: A site or configuration of the plan is not in the fleet.
    """
    sites = {site.name for site in fleet.sites}
    configs = {config.name for config in fleet.configs}
    for index, one in enumerate(plan.replicas):
        for kind, value, known in (("site", one.site, sites), ("config", one.config, configs)):
            if value not in known:
                raise InputError(
                    f"the fleet {fleet.name} has no such {kind}",
                    source=source,
                    field=f"replicas[{index}].{kind}",
                    value=value,
                    expected="a plan made for this fleet",
                )
    return tuple(Placed(one.site, one.config, one.replicas, one.prewarmed) for one in plan.replicas)


def load_predictor(store_path: str | None) -> LatencyPredictor | None:
    """The serving model of a store, or ``None`` for the physics prior."""
    if store_path is None:
        return None
    from models.store import ModelStore  # only policies that predict need it

    return ModelStore(Path(store_path)).load()


def sim_settings(values: Mapping[str, Setting], base: SimSettings | None = None) -> SimSettings:
    """Run settings by name, for example of a command line.

    Raises:
        SettingError: An unknown name, a value of the wrong type or out of its range.
    """
    known = sorted(
        one.name for one in fields(SimSettings) if one.name not in ("seed", "failures", "site_failures")
    )
    for name, value in values.items():
        if name not in known:
            raise SettingError(
                "unknown run setting", field=name, value=value, expected="one of " + ", ".join(known)
            )
        if isinstance(value, bool | str):
            raise SettingError("not a number", field=name, value=value, expected="a number")
        if name == "retries" and not isinstance(value, int):
            raise SettingError("not a whole number", field=name, value=value, expected="0 or more")
    return replace(base or SimSettings(), **values)  # type: ignore[arg-type]
