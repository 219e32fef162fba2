"""Short texts of the command line: what they mean, and what is said when they mean nothing."""

from __future__ import annotations

import pytest

from data.errors import SettingError
from data.fleet.reference import reference_fleet
from planner.cli.specs import failure_event, length_classes, name_rule, site_failure, synth_trace
from planner.sim.settings import FailureEvent, SiteFailure


def test_synthetic_streams() -> None:
    fleet = reference_fleet("four-sites")
    trace = synth_trace(fleet, ["chat:10:60:interactive", "batch:2:60:batch"])
    assert trace.duration_s == 60
    assert trace.label == "synthetic chat:10:60:interactive, batch:2:60:batch"
    rates: dict[str, float] = {}
    for stream in trace.streams:
        rates[stream.assign.workload_class] = rates.get(stream.assign.workload_class, 0) + stream.rate_per_s
    assert rates == {"interactive": pytest.approx(10), "batch": pytest.approx(2)}


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        (["chat:10"], "PROFILE:RATE:DURATION"),
        (["nothing:10:60"], "unknown profile"),
        (["chat:ten:60"], "not a number"),
        (["chat:0:60"], "above 0"),
        (["chat:nan:60"], "not a number"),
        (["chat:10:60:nobody"], "unknown class"),
        (["chat:10:60", "batch:1:30"], "differ in duration"),
    ],
)
def test_wrong_streams(specs: list[str], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        synth_trace(reference_fleet("one-pool"), specs)


def test_failures() -> None:
    assert failure_event("crash:3:100:60") == FailureEvent(100.0, 3, "crash", 60.0)
    assert failure_event("slow:0:5.5:10:3") == FailureEvent(5.5, 0, "slow", 10.0, 3.0)


@pytest.mark.parametrize(
    "text", ["crash:3:100", "melt:3:1:1", "crash:-1:1:1", "crash:x:1:1", "crash:1:1:0", "slow:1:1:1:0"]
)
def test_wrong_failures(text: str) -> None:
    with pytest.raises(SettingError, match="--failure"):
        failure_event(text)


def test_failures_of_sites_and_links() -> None:
    assert site_failure("loss:C:250:60") == SiteFailure(250.0, "C", "loss", 60.0)
    assert site_failure("slow:B:5.5:10:3") == SiteFailure(5.5, "B", "slow", 10.0, 3.0)
    assert site_failure("link_cut:A/C:1:2") == SiteFailure(1.0, "A", "link_cut", 2.0, peer="C")


@pytest.mark.parametrize(
    "text",
    ["loss:C:250", "fire:C:1:1", "loss:A/C:1:1", "link_cut:A:1:1", "link_cut:A/:1:1", "link_cut:A/A:1:1",
     "link_cut:/A:1:1", "slow:B:1:1:0", "slow:B:-1:1", "loss:B:1:0", "loss::1:1"],
)  # fmt: skip
def test_wrong_failures_of_sites(text: str) -> None:
    with pytest.raises(SettingError, match=r"--site-failure|at_s"):
        site_failure(text)


def test_name_rules() -> None:
    rule = name_rule("class=interactive:0.8,batch:0.2")
    assert (rule.field, rule.shares, rule.only_blank) == (
        "workload_class",
        {"interactive": 0.8, "batch": 0.2},
        True,
    )
    assert name_rule("tenant=shop").shares == {"shop": 1.0}


@pytest.mark.parametrize("text", ["class", "colour=red", "class=", "class=a:x", "tenant=a:0"])
def test_wrong_name_rules(text: str) -> None:
    with pytest.raises(SettingError):
        name_rule(text)


def test_length_classes_are_read_from_text() -> None:
    rule = length_classes("interactive:8000,long_context:64000,batch")
    assert rule.names == ("interactive", "long_context", "batch")
    assert rule.limits_tokens == (8000, 64000)


@pytest.mark.parametrize("text", ["interactive", "interactive:8000", ":5,b", "a:x,b", "a:9,b:9,c"])
def test_malformed_length_classes_are_refused(text: str) -> None:
    with pytest.raises(SettingError):
        length_classes(text)
