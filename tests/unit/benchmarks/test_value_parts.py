"""The contest of the whole: what a kept run depends on, the split in force, placements, and the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.proof.runs import RunFile
from benchmarks.value.placements import by_greedy, by_regret, plan_path, standing
from benchmarks.value.runs import Book, figures_of
from benchmarks.value.scene import CeilingWatch, Scene, SplitInForce, ValueRun, without_budgets
from benchmarks.value.tables import Contest, arms_table, changed, headline_table, met, planning_table, rows_of
from benchmarks.value.variants import (
    ADDED,
    BASE,
    FLEETMIND,
    FLOW_ADDED,
    PLANNING,
    TAKEN,
    UNLIMITED,
    WHOLE,
    WITHOUT_FLOW,
)
from data.catalog.load import load_catalog
from data.errors import SettingError
from data.fleet.reference import reference_fleet
from data.plan import PlanDocument
from planner.intervals import Estimate
from planner.measures import ATTAINMENT_OFFERED, GOODPUT, MEASURES, TTFT_P50
from planner.plan_execution import placed_by, read_plans
from planner.run_pool import RunPool
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.slomax.context import FlowContext
from router.slomax.types import FlowControl

SHORT = Scene(30.0, 12.0)
SEEDS = (1, 2, 3, 4, 5)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans")


@pytest.fixture
def book(tmp_path: Path, plans: Path) -> Iterator[Book]:
    with RunPool(1) as pool:
        yield Book(RunFile(tmp_path / "runs.jsonl"), plans, pool)


def gpus_used(plan: PlanDocument) -> Counter[tuple[str, str]]:
    used: Counter[tuple[str, str]] = Counter()
    for row in plan.replicas:
        used[row.site, row.gpu_type] += row.replicas * row.gpus_per_replica
    return used


class TestRuns:
    def test_a_run_is_known_by_load_arm_plan_split_budgets_and_seed(self, book: Book) -> None:
        keys = {
            book.key(scene, variant, seed)
            for scene in (SHORT, replace(SHORT, rate_per_s=31.0))
            for variant in (
                BASE,
                WHOLE,
                replace(WHOLE, split=False),
                UNLIMITED,
                replace(WHOLE, placement="greedy"),
            )
            for seed in (1, 2)
        }
        assert len(keys) == 20
        assert book.key(SHORT, replace(WHOLE, id="another name"), 1) == book.key(SHORT, WHOLE, 1)

    def test_a_stopped_contest_goes_on_where_it_was(self, book: Book, tmp_path: Path) -> None:
        book.run(SHORT, [BASE], (1,))
        kept = (tmp_path / "runs.jsonl").read_text()
        again = Book(RunFile(tmp_path / "runs.jsonl"), book.plans, book.pool)
        again.run(SHORT, [BASE], (1,))
        assert (tmp_path / "runs.jsonl").read_text() == kept
        assert again.values(SHORT, BASE, GOODPUT.key, (1,)) == book.values(SHORT, BASE, GOODPUT.key, (1,))
        assert 0 < again.values(SHORT, BASE, "attained/tenant/bank", (1,))[0] <= 1

    def test_every_arm_is_an_arm_of_its_own(self) -> None:
        everything = (BASE, WHOLE, *ADDED, FLOW_ADDED, *TAKEN, *PLANNING)
        assert len({one.id for one in everything}) == len(everything)
        assert len({(one.text, one.placement, one.split, one.budgets) for one in everything}) == len(everything)
        for one in everything:
            assert one.arm(Path("plan.json")).name == one.id


class TestOneRun:
    def test_without_a_split_it_is_the_scenarios_own_run(self, book: Book) -> None:
        scenario, arm = SHORT.scenario(), WHOLE.arm(plan_path("planned", SHORT, book.plans))
        found, usual = ValueRun(scenario)(arm, 1), scenario.run(arm, 1)
        assert figures_of(replace(found, extra={})) == figures_of(replace(usual, extra={}))
        assert found.extra["over_ceiling"] == 0.0
        assert 0 < found.extra["peak_in_flight"] < 1

    def test_quotas_are_the_sums_of_the_split_and_change_with_the_plan(self, plans: Path) -> None:
        told: list[tuple[dict[tuple[str, str], float], float]] = []

        class Told:
            def set_quotas(self, quotas: dict[tuple[str, str], float], now_s: float) -> None:
                told.append((dict(quotas), now_s))

        plan = read_plans(str(plan_path("planned", SHORT, plans)))[0].plan
        row = next(one for one in plan.splits if one.tokens_per_s > 0)
        key = row.model, row.workload_class
        in_force = SplitInForce(lambda _: cast(FlowControl, Told()), plan)
        in_force(cast(FlowContext, SimpleNamespace(now_s=3.0)))
        in_force.take(replace(plan, splits=(row, replace(row, site="elsewhere", tokens_per_s=5.0))), 7.0)
        assert [at_s for _, at_s in told] == [3.0, 7.0]
        assert set(told[0][0]) == {(one.model, one.workload_class) for one in plan.splits}
        assert sum(told[0][0].values()) == pytest.approx(sum(one.tokens_per_s for one in plan.splits))
        assert told[1][0] == {key: pytest.approx(row.tokens_per_s + 5.0)}

    def test_a_split_needs_a_plan_and_a_flow_control(self, plans: Path) -> None:
        for arm in (WHOLE.arm(None), WITHOUT_FLOW.arm(plan_path("planned", SHORT, plans))):
            with pytest.raises(SettingError, match="no capacity split"):
                ValueRun(SHORT.scenario(), split=True)(arm, 1)

    def test_an_engine_above_its_ceiling_is_seen(self) -> None:
        fleet = reference_fleet("four-sites")
        table = EndpointTable(endpoint_specs(fleet, load_catalog(), fleet.placement))
        table.ready[:] = False
        table.ready[:4] = True
        table.inflight[:5] = table.max_seqs[:5] * [0.2, 0.85, 0.9, 0.1, 2.0]
        watch = CeilingWatch(table, [0.85] * len(table))
        watch(0.0)
        assert watch.figures() == {"peak_in_flight": pytest.approx(0.9), "over_ceiling": 0.25}

    def test_budgets_are_lifted_and_nothing_else(self) -> None:
        fleet = reference_fleet("four-sites")
        free = without_budgets(fleet)
        assert {t.name for t in fleet.tenants if t.tokens_per_s_budget or t.requests_per_s_budget} == {
            "games",
            "campus",
        }
        assert not any(t.tokens_per_s_budget or t.requests_per_s_budget for t in free.tenants)
        assert [t.residency_zones for t in free.tenants] == [t.residency_zones for t in fleet.tenants]
        assert replace(free, tenants=fleet.tenants) == fleet


class TestPlacements:
    def test_a_frozen_placement_stays_and_gets_shares_and_a_split(self) -> None:
        plan = standing(SHORT)
        now = {(p.site, p.config): p.replicas for p in reference_fleet("four-sites").placement}
        assert {(p.site, p.config): p.replicas for p in placed_by(plan)} == now
        assert plan.shares
        assert plan.splits

    def test_rivals_use_the_gpus_that_there_are(self) -> None:
        fleet = reference_fleet("four-sites")
        there = {(pool.site, pool.gpu_type): pool.count - pool.reserved_gpus for pool in fleet.pools}
        found = [by_greedy(SHORT), by_regret(SHORT)]
        for plan in found:
            assert all(count <= there[pool] for pool, count in gpus_used(plan).items())
        assert placed_by(found[0]) != placed_by(found[1])

    def test_plans_in_steps_take_force_at_their_moments_each_from_the_one_before(self, tmp_path: Path) -> None:
        scene = replace(SHORT, seconds=400.0, rate_per_s=6.0)
        found = read_plans(str(plan_path("in steps, no prewarm", scene, tmp_path)))
        assert [one.at_s for one in found] == [0.0, 200.0, 300.0]
        assert [one.plan.parent_id for one in found] == [None, found[0].plan.plan_id, found[1].plan.plan_id]
        assert not any(row.prewarmed for one in found for row in one.plan.replicas)
        assert len(list(tmp_path.iterdir())) == 1


class TestTables:
    @pytest.fixture
    def contest(self, book: Book) -> Contest:
        """The baseline with 1,000 good tokens/s, the whole with half as many again, and some between and below."""
        for variant, factor in (
            (BASE, 1.0),
            (FLEETMIND, 1.1),
            (WITHOUT_FLOW, 1.2),
            (PLANNING[0], 0.6),
            (WHOLE, 1.5),
        ):
            for seed in SEEDS:
                figures = {measure.key: (1000.0 + seed) * factor for measure in MEASURES}
                figures |= {ATTAINMENT_OFFERED.key: 0.5 * factor, TTFT_P50.key: 1 / factor, "over_ceiling": 0.0}
                figures |= {"residency_breaches": float(variant == WHOLE and seed == 5)}
                book.runs.keep(book.key(SHORT, variant, seed), figures)
        return Contest("65%", SHORT, (BASE, FLEETMIND, WITHOUT_FLOW, WHOLE), PLANNING[:1])

    def test_a_missed_target_stays_and_says_so(self, contest: Contest, book: Book) -> None:
        rows = {row["id"]: row for row in rows_of(contest, book)}
        assert rows["value/65%/goodput"]["value"] == pytest.approx(0.5)
        assert rows["value/65%/goodput"]["met"] is True
        assert rows["value/65%/ttft_p50"]["value"] == pytest.approx(-1 / 3)
        assert rows["value/65%/ttft_p50"]["met"] is False
        assert rows["value/65%/attainment_offered"]["value"] == pytest.approx(0.25)
        assert rows["value/65%/fleetmind"]["value"] == pytest.approx(0.1)
        assert rows["value/65%/fleetmind"]["met"] is False
        assert rows["value/65%/planning/no_site_stage_all_sites_at_once"]["value"] == pytest.approx(-0.5)
        assert (rows["value/65%/breaches"]["value"], rows["value/65%/breaches"]["met"]) == (1.0, False)
        assert rows["value/65%/over_ceiling/whole"]["met"] is True

    def test_the_tables_hold_every_arm_and_figure(self, contest: Contest, book: Book) -> None:
        arms = [row.cells for row in arms_table(contest, book).rows]
        assert [cells[0] for cells in arms] == [BASE.id, FLEETMIND.id, WITHOUT_FLOW.id, WHOLE.id]
        assert arms[0][2] == ""
        assert arms[1][2] == "+10.0 (+10.0 to +10.0) %"
        assert arms[1][3] == "-26.7 (-26.7 to -26.7) %"
        planning = [row.cells for row in planning_table(contest, book).rows]
        assert [cells[2] for cells in planning] == ["", "-50.0 (-50.0 to -50.0) %"]
        headline = {row.cells[0]: row.cells[-1] for row in headline_table(contest, book).rows}
        assert headline["Goodput"] == "yes"
        assert headline["TTFT P50"] == "no"

    def test_words_of_a_change(self) -> None:
        assert changed(Estimate(0.19, 0.01, 5), ATTAINMENT_OFFERED) == "+19.0 (+18.0 to +20.0) points"
        assert changed(Estimate(-0.5, None, 2), TTFT_P50) == "-50.0 %"
        assert met(Estimate(-0.72, None, 5), TTFT_P50, -0.713)
        assert not met(Estimate(0.29, None, 5), GOODPUT, 0.294)
