"""The drawn fleet and the plan's tables: every site, pool and link, in both drawings, for odd fleets too."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as Tree
from collections.abc import Callable

import pytest

from data.fleet.types import Fleet, GpuPool, Link, Site
from data.plan import PlanDocument
from planner.compare import Comparison
from planner.report.data import ReportData
from planner.report.fleet_map import narrow_map, pool_use, wide_map
from planner.report.plan_tables import fleet_tables, moves_table, plan_facts, unmet_table


@pytest.fixture
def data(report_maker: Callable[..., ReportData], comparison_maker: Callable[..., Comparison]) -> ReportData:
    return report_maker(comparison_maker(("tokenpilot",), seeds=1))


@pytest.fixture
def fleet(data: ReportData) -> Fleet:
    return data.fleet


@pytest.fixture
def plan(data: ReportData) -> PlanDocument:
    assert data.plan is not None
    return data.plan


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in Tree.fromstring(svg).iter() if node.tag.endswith("text")]


@pytest.mark.parametrize("draw", [wide_map, narrow_map])
def test_every_site_pool_and_link_is_drawn(
    draw: Callable[[Fleet, PlanDocument | None], str], fleet: Fleet, plan: PlanDocument
) -> None:
    drawn = draw(fleet, plan)
    words = texts(drawn)
    for site in fleet.sites:
        assert words.count(site.name) == 1
    assert words.count("H100") == 2
    assert sum("ms" in word for word in words) == len(fleet.links)
    assert drawn.count('class="link"') == len(fleet.links)
    assert "14 of 16" in words, "4 replicas of one GPU and 5 of two at site B"


def test_gpu_use_comes_from_the_plan_or_else_from_what_runs(fleet: Fleet, plan: PlanDocument) -> None:
    assert [use.used for use in pool_use(fleet, plan, "B")] == [14, 0]
    assert [use.used for use in pool_use(fleet, None, "B")] == [6 + 3 * 2, 0]
    assert pool_use(fleet, None, "A") == ()


@pytest.mark.parametrize("count", [1, 2, 9])
def test_boxes_never_overlap(count: int) -> None:
    sites = tuple(Site(f"s{index}", "compute", "z") for index in range(count))
    pools = tuple(GpuPool(site.name, kind, 8) for site in sites for kind in ("H100", "A100", "L40S"))
    links = tuple(Link(sites[0].name, site.name, 0.01, 10.0) for site in sites[1:])
    fleet = Fleet("x", sites, links, pools, (), (), (), ())
    for svg in (wide_map(fleet, None), narrow_map(fleet, None)):
        root = Tree.fromstring(svg)
        width, height = (float(number) for number in root.get("viewBox", "").split()[2:])
        boxes = []
        for group in root.iter("g"):
            x, y = (float(part) for part in group.get("transform", "")[10:-1].split())
            rect = group.find("rect")
            assert rect is not None
            boxes.append((x, y, float(rect.get("width", 0)), float(rect.get("height", 0))))
        assert len(boxes) == count
        for index, (x, y, w, h) in enumerate(boxes):
            assert x >= 0
            assert y >= 0
            assert x + w <= width
            assert y + h <= height
            for x2, y2, w2, h2 in boxes[index + 1 :]:
                assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_tables_show_moves_costs_unmet_demand_bound_and_gap(fleet: Fleet, plan: PlanDocument) -> None:
    assert [row.cells for row in moves_table(plan).rows] == [
        ("B", "llama-8b-h100", "demand moved to C", "−2", "1,200"),
        ("C", "llama-8b-a100", "cheapest free capacity", "+3", "5,400"),
    ]
    assert unmet_table(plan).rows[0].cells[-1] == "310 tokens/s"
    facts = dict(plan_facts(plan))
    assert facts["Best bound"] == "11,990 (linked LP)"
    assert facts["Gap"] == "1.25 %"
    assert facts["Moves"] == "2, costing 6,600 weighted tokens"
    placement = fleet_tables(fleet, plan)[0]
    by_key = {row.cells[:2]: row.cells[3:] for row in placement.rows}
    assert by_key["B", "llama-8b-h100"] == ("6", "0", "4", "0")
    assert by_key["C", "llama-8b-a100"] == ("9", "0", "12", "2")


def test_a_plan_that_changes_nothing_says_so(plan: PlanDocument) -> None:
    still = dataclasses.replace(plan, moves=(), unmet=())
    assert "No move" in moves_table(still).note
    assert "Nothing is left unserved" in unmet_table(still).note


def test_without_a_plan_only_what_runs_is_shown(fleet: Fleet) -> None:
    titles = [table.title for table in fleet_tables(fleet, None)]
    assert titles == ["Replicas by site", "Sites and GPU pools", "Links"]
