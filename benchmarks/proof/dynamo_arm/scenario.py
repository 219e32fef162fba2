"""A scenario in which the service is one more policy."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from benchmarks.proof.dynamo_arm.child import Child, dynamo_child
from benchmarks.proof.dynamo_arm.compared import compared
from benchmarks.proof.dynamo_arm.policy import DynamoSelection, DynamoSelectionSettings
from data.outcome_sink import RecordSink
from planner.arm import Arm
from planner.scenario import Scenario, carried_out
from planner.sim.result import RunResult
from planner.sim.run import Progress, simulate
from router.endpoints import EndpointTable
from router.policies.base import PolicyContext
from router.policies.settings import settings_from


@dataclass(frozen=True, slots=True)
class WithDynamo(Scenario):
    """A scenario whose arms may name ``dynamo_selection``.

    Attributes:
        python: The interpreter that has the service.
    """

    python: str = ""

    def run(
        self, arm: Arm, seed: int, sink: RecordSink | None = None, progress: Progress | None = None
    ) -> RunResult:
        """As the scenario has it; an arm of the service runs in a child process of its own.

        Its result carries the figures of the comparison with our rule in ``extra``. The service breaks ties with
        a generator that cannot be seeded, so that two runs with one seed differ.
        """
        if arm.policy != DynamoSelection.name:
            return Scenario.run(self, arm, seed, sink, progress)
        settings = settings_from(DynamoSelectionSettings, arm.settings, arm.policy)
        with dynamo_child(self.python, settings.scale) as child:
            return run_beside_our_rule(self, settings, child, arm, seed, sink, progress)


def run_beside_our_rule(
    scenario: Scenario,
    settings: DynamoSelectionSettings,
    child: Child,
    arm: Arm,
    seed: int,
    sink: RecordSink | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Run a scenario with the choices of a child that was told of nothing yet; both forms of our rule watch."""
    carried = carried_out(scenario.fleet, arm.plan_path)
    table = EndpointTable(carried.specs)
    context = PolicyContext(table, seed)
    service = DynamoSelection(settings, context, child)
    policy = compared(service, context, settings.scale, settings.block_tokens)
    run = simulate(
        scenario.fleet,
        carried.specs,
        scenario.requests(seed),
        policy,
        replace(scenario.settings, seed=seed),
        table=table,
        sink=sink,
        progress=progress,
        gpus=carried.gpus,
    )
    return replace(run, extra={**run.extra, **policy.figures()})


def with_dynamo(scenario: Scenario, python: str) -> WithDynamo:
    """The same scenario, with the service."""
    shared = {each.name: getattr(scenario, each.name) for each in fields(Scenario)}
    return WithDynamo(**shared, python=python)
