"""The load level of a scenario: the speed at which a policy meets a share of the offered requests' targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.arm import Arm
from planner.load_level import LoadLevel, LoadSearch, load_level
from planner.run_pool import RunPool
from planner.scenario import Scenario


def find_load(
    scenario: Scenario,
    arm: Arm,
    seeds: Sequence[int],
    search: LoadSearch,
    pool: RunPool,
    on_trial: Callable[[float, float], None] | None = None,
) -> LoadLevel:
    """Search the arrival speed at which ``arm`` reaches ``search.target``.

    Attainment is the mean over ``seeds`` of the share of *offered* requests that completed within their targets;
    every speed is run with the same seeds.

    Args:
        scenario: Its own speed is replaced by those tried.
        arm: The policy that sets the load.
        seeds: At least one.
        search: Target, tolerance and bounds.
        pool: Where the runs go.
        on_trial: Told (speed, attainment) after each speed.

    Raises:
        SettingError: The target is out of reach between the slowest and the fastest speed.
    """

    def attainment_at(speed: float) -> float:
        runs = pool.run(scenario.at_speed(speed).run, [(arm, seed) for seed in seeds])
        value = sum(run.total.attainment_offered for run in runs) / len(runs)
        if on_trial is not None:
            on_trial(speed, value)
        return value

    return load_level(attainment_at, search)
