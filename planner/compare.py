"""Policies side by side: the same seeds for every arm, means with intervals, differences seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from data.errors import SettingError
from planner.arm import Arm
from planner.intervals import MIN_SEEDS, Estimate, estimate, paired_difference, paired_relative_difference
from planner.measures import GOODPUT, GroupKind, Measure, group_of
from planner.run_pool import MakeRun, OnDone, RunPool, default_workers
from planner.sim.result import GroupResult, RunResult


@dataclass(frozen=True, slots=True)
class ArmRuns:
    """All runs of one arm, in the order of the comparison's seeds."""

    arm: Arm
    runs: tuple[RunResult, ...]

    def values(self, measure: Measure) -> list[float]:
        """The figure of each seed."""
        return [float(measure.of(run)) for run in self.runs]

    def estimate(self, measure: Measure) -> Estimate:
        """Mean over seeds with its interval."""
        return estimate(self.values(measure))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of a comparison.

    Attributes:
        arms: One entry an arm, in the order given; losing arms stay.
        seeds: Seeds that every arm ran with.
        reference: Name of the arm that differences are taken against.
    """

    arms: tuple[ArmRuns, ...]
    seeds: tuple[int, ...]
    reference: str

    @property
    def has_intervals(self) -> bool:
        """Whether there are enough seeds for intervals."""
        return len(self.seeds) >= MIN_SEEDS

    def arm(self, name: str) -> ArmRuns:
        """The arm of that name; ``KeyError`` if there is none."""
        for entry in self.arms:
            if entry.arm.name == name:
                return entry
        raise KeyError(name)

    def ranked(self, measure: Measure = GOODPUT) -> list[ArmRuns]:
        """All arms, best first by the mean of ``measure``; equal ones in the order given."""
        sign = 1.0 if measure.better == "lower" else -1.0
        return sorted(self.arms, key=lambda entry: sign * _last_if_nan(entry.estimate(measure).mean, sign))

    def best(self) -> ArmRuns:
        """The arm with the most Goodput."""
        return self.ranked()[0]

    def difference(self, name: str, measure: Measure = GOODPUT) -> Estimate:
        """Arm minus reference, paired by seed, in the unit of ``measure``."""
        return paired_difference(self.arm(name).values(measure), self.arm(self.reference).values(measure))

    def relative_difference(self, name: str, measure: Measure = GOODPUT) -> Estimate:
        """(Arm − reference) / reference, paired by seed; 0.1 means 10 % more."""
        return paired_relative_difference(self.arm(name).values(measure), self.arm(self.reference).values(measure))

    def group_names(self, kind: GroupKind) -> list[str]:
        """Names of every class or tenant that had a request in any run, sorted."""
        return sorted({name for entry in self.arms for run in entry.runs for name in group_of(run, kind)})


def compare(
    arms: Sequence[Arm],
    make_run: MakeRun,
    seeds: Sequence[int],
    *,
    reference: str,
    workers: int | None = None,
    on_done: OnDone | None = None,
    pool: RunPool | None = None,
) -> Comparison:
    """Run every arm with every seed and put the results side by side.

    Args:
        arms: At least one; their names must differ.
        make_run: Runs one arm with one seed. Everything random in it must come from the seed alone, so that arms
            with the same seed see the same arrivals, lengths, noise and failures.
        seeds: At least one, all different; five or more for intervals.
        reference: Name of the arm to take differences against.
        workers: Processes, at least 1; ``None`` = one a processor. Ignored when ``pool`` is given.
        on_done: Told of each finished run.
        pool: A pool that is already running.

    Raises:
        SettingError: Names or seeds are missing or repeated, or the reference is not an arm.
    """
    check_comparison(arms, seeds, reference)
    jobs = [(arm, seed) for seed in seeds for arm in arms]
    if pool is not None:
        results = pool.run(make_run, jobs, on_done)
    else:
        with RunPool(default_workers(len(jobs)) if workers is None else workers) as own:
            results = own.run(make_run, jobs, on_done)
    count = len(arms)
    entries = tuple(ArmRuns(arm, tuple(results[index::count])) for index, arm in enumerate(arms))
    return Comparison(entries, tuple(seeds), reference)


def group_estimate(entry: ArmRuns, kind: GroupKind, name: str, take: Callable[[GroupResult], float]) -> Estimate:
    """Mean over seeds of one figure of one class or tenant; seeds without a request of it are left out."""
    groups = [group_of(run, kind).get(name) for run in entry.runs]
    return estimate([float(take(group)) for group in groups if group is not None])


def check_comparison(arms: Sequence[Arm], seeds: Sequence[int], reference: str) -> None:
    """Raise ``SettingError`` unless these can be compared; see :func:`compare`."""
    names = [arm.name for arm in arms]
    if not names:
        raise SettingError("no arm to compare", field="arms", expected="at least one")
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise SettingError(
            "two arms have the same name", field="arms", value=repeated, expected="names that differ"
        )
    if not seeds or len(set(seeds)) < len(seeds):
        raise SettingError(
            "seeds are missing or repeated", field="seeds", value=list(seeds), expected="distinct seeds"
        )
    if reference not in names:
        raise SettingError(
            "the reference is not one of the arms", field="reference", value=reference, expected=", ".join(names)
        )


def _last_if_nan(value: float, sign: float) -> float:
    return value if value == value else sign * float("inf")
