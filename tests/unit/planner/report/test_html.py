"""The report as a document: all sections, nothing from outside, text that stays text, same input same bytes."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from planner.arm import Arm
from planner.compare import Comparison, compare
from planner.report.charts import label, looks
from planner.report.data import ReportData
from planner.report.html import render, write_report
from planner.report.page import script_json
from planner.sim.result import RunResult

SECTIONS = {
    "why", "run", "fleet", "goodput-section", "difference-section", "ttft-section", "time", "groups",
    "latency-model", "full",
}  # fmt: skip
VOID = {"meta", "link", "img", "br", "hr", "input"}
HOSTILE = "</script><img src=x onerror=alert(1)><svg/onload=alert(2)>"


class Page(HTMLParser):
    """Reads a page into facts that tests ask about; script and style text is kept apart from page text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.crossed: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                self.ids.append(value or "")
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif not self.open or self.open[-1] != "style":
            self.text.append(data)


@pytest.fixture(scope="module")
def full_report() -> dict[str, str]:
    """One rendering shared by the tests that only look at it."""
    return {}


@pytest.fixture
def page(
    full_report: dict[str, str],
    report_maker: Callable[..., ReportData],
    comparison_maker: Callable[..., Comparison],
) -> Page:
    if not full_report:
        full_report["html"] = render(report_maker(comparison_maker()))
    return Page(full_report["html"])


def test_every_section_is_there_once_and_linked(page: Page) -> None:
    assert Counter(page.ids).most_common(1)[0][1] == 1, "ids are unique"
    assert set(page.ids) >= SECTIONS
    linked = {value[1:] for tag, name, value in page.attributes if tag == "a" and name == "href"}
    assert linked == SECTIONS | {"main"}
    assert page.tags["section"] == len(SECTIONS)
    assert not page.crossed, "tags are balanced"
    assert not page.open


def test_nothing_comes_from_outside(page: Page, full_report: dict[str, str]) -> None:
    for tag, name, value in page.attributes:
        if name in ("src", "href", "action", "data", "poster", "srcset", "formaction", "ping"):
            assert value.startswith("#"), f"<{tag} {name}={value!r}>"
        assert not name.startswith("on"), f"<{tag} {name}>"
    for tag in ("link", "iframe", "img", "object", "embed", "base", "form"):
        assert page.tags[tag] == 0, tag
    style = full_report["html"].split("<style>")[1].split("</style>")[0]
    assert "@import" not in style
    assert "url(" not in style
    own = page.scripts[-1]
    assert not re.search(r"https?://|\bimport\b|fetch\(|XMLHttpRequest|WebSocket", own)
    policy = [value for tag, name, value in page.attributes if tag == "meta" and name == "content"]
    assert any("default-src 'none'" in value for value in policy), "the browser is told to load nothing"


def test_plotly_is_inside_exactly_once(page: Page) -> None:
    assert len(page.scripts) == 3
    assert [len(script) > 1_000_000 for script in page.scripts] == [False, True, False]


def test_every_chart_has_a_place_a_text_alternative_axes_and_units(page: Page) -> None:
    charts = json.loads(page.scripts[0])
    assert len(charts) == 3 + 3 + 4
    labels = [value for tag, name, value in page.attributes if tag == "div" and name == "aria-label"]
    for chart in charts:
        assert f"chart-{chart['id']}" in page.ids
        assert chart["layout"]["xaxis"]["title"]["text"]
        for name, axis in chart["layout"].items():
            if name.startswith("yaxis") and "ticktext" not in axis:
                assert re.search(r", (s|%|min)|requests", axis["title"]["text"]), axis
    assert page.tags["figcaption"] == page.tags["figure"] == len(charts) + 1
    assert any("tokenpilot 2,6" in text for text in labels), "the text alternative holds the figures"


def test_tables_have_heads_and_can_be_scrolled_from_the_keyboard(page: Page) -> None:
    assert page.tags["table"] >= 12
    scopes = [value for tag, name, value in page.attributes if tag == "th" and name == "scope"]
    assert len(scopes) == page.tags["th"]
    regions = sum(1 for tag, name, value in page.attributes if name == "role" and value == "region")
    assert regions == page.tags["table"]
    assert ("html", "lang", "en") in page.attributes


def test_text_shows_the_plan_the_note_and_the_figures(page: Page) -> None:
    text = " ".join(" ".join(page.text).replace("\u00a0", " ").split())
    for part in (
        "linked LP", "1.25 %", "cheapest free capacity", "no free H100 pair in zone", "output tokens only",
        "feasible limit", "round_robin", "seed 0", "36,000,000 in", "tokenfleet compare --fleet four-sites",
        "the physics prior alone 29.0 %",
    ):  # fmt: skip
        assert part in text, part


def test_hostile_names_stay_text_everywhere(
    run_maker: Callable[..., RunResult], report_maker: Callable[..., ReportData]
) -> None:
    arms = [Arm("least_request", "least_request"), Arm(HOSTILE, "tokenpilot")]

    def run(arm: Arm, seed: int) -> RunResult:
        result = run_maker(arm, seed, (HOSTILE, "globex"))
        timeline = dataclasses.replace(result.timeline, sites=(HOSTILE, "C", "D"))
        return dataclasses.replace(result, timeline=timeline)

    data = report_maker(compare(arms, run, range(2), reference="least_request", workers=1), hostile=HOSTILE)
    data = dataclasses.replace(data, title=HOSTILE, command=HOSTILE, skipped=((HOSTILE, HOSTILE),))
    sites = (dataclasses.replace(data.fleet.sites[0], name=HOSTILE, zone=HOSTILE), *data.fleet.sites[1:])
    links = tuple(dataclasses.replace(link, a=HOSTILE if link.a == "A" else link.a) for link in data.fleet.links)
    page = Page(render(dataclasses.replace(data, fleet=dataclasses.replace(data.fleet, sites=sites, links=links))))
    assert page.tags["img"] == 0
    assert page.tags["svg"] == 2
    assert page.tags["script"] == 3
    assert not page.crossed
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert HOSTILE in " ".join(page.text)
    labels = json.loads(page.scripts[0])[0]["layout"]["yaxis"]["ticktext"]
    assert all("<" not in text for text in labels), "plotly reads markup in labels"


def test_names_inside_charts_are_escaped_and_cut() -> None:
    assert label("<b>x</b>&") == "&lt;b&gt;x&lt;/b&gt;&amp;"
    assert label("kv_cost_dynamo:scale=16,x=3") == "kv_cost_dyna…cale=16,x=3"
    assert len(label("a" * 50)) == 24
    assert script_json({"x": "</script>\u2028&", "n": float("nan")}) == (
        '{"x":"\\u003c/script\\u003e\\u2028\\u0026","n":null}'
    )


def test_same_data_same_bytes_and_a_whole_file(
    tmp_path: Path, report_maker: Callable[..., ReportData], comparison_maker: Callable[..., Comparison]
) -> None:
    data = report_maker(comparison_maker(seeds=2))
    path = tmp_path / "report.html"
    write_report(data, path)
    assert path.read_text() == render(data)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_one_arm_without_plan_or_model_leaves_those_sections_out(
    report_maker: Callable[..., ReportData], comparison_maker: Callable[..., Comparison]
) -> None:
    page = Page(render(report_maker(comparison_maker(("tokenpilot",), seeds=1), plan=False)))
    assert set(page.ids) & SECTIONS == SECTIONS - {"difference-section", "latency-model"}
    assert not page.crossed
    text = " ".join(page.text)
    assert "running placement" in text
    assert "No interval" in text


def test_a_run_in_which_nothing_completed_is_still_a_report(
    run_maker: Callable[..., RunResult], report_maker: Callable[..., ReportData]
) -> None:
    def run(arm: Arm, seed: int) -> RunResult:
        result = run_maker(arm, seed)
        edges, counts = result.ttft_histogram
        nothing = dataclasses.replace(result.total.ttft, count=0, p50=np.nan, p95=np.nan, p99=np.nan, mean=np.nan)
        total = dataclasses.replace(result.total, completed=0, met=0, ttft=nothing, goodput_tokens_per_s=0.0)
        return dataclasses.replace(result, total=total, ttft_histogram=(edges, counts * 0))

    arms = [Arm("least_request", "least_request"), Arm("tokenpilot", "tokenpilot")]
    text = render(report_maker(compare(arms, run, range(5), reference="least_request", workers=1)))
    page = Page(text)
    assert "nan" not in " ".join(page.text).lower().split()
    json.loads(page.scripts[0])


def test_many_arms_keep_apart_by_colour_or_dash(comparison_maker: Callable[..., Comparison]) -> None:
    names = ("least_request", *(f"policy_{index}" for index in range(18)))
    drawn = looks(comparison_maker(names, seeds=1))
    assert len({(look.colour, look.dash) for look in drawn.values()}) == len(names)
