"""Arms with a choice of site: ``policy[:k=v][+flow[:k=v]][@sites[:k=v]]``."""

from __future__ import annotations

import pickle

import pytest

from data.errors import SettingError
from planner.arm import flow_of, parse_arm, sites_of
from router.sites.settings import FleetMindSettings


def test_a_rule_stands_behind_the_policy_and_the_flow_control():
    arm = parse_arm("tokenpilot:harm_price=2.0+slomax:reserve=0.5@fleetmind:margin=0.2:trial=8")
    assert (arm.policy, arm.flow, arm.sites) == ("tokenpilot", "slomax", "fleetmind")
    assert arm.sites_settings == {"margin": 0.2, "trial": 8}
    made = sites_of(arm)
    assert made is not None
    assert made.settings == FleetMindSettings(margin=0.2, trial=8)
    assert pickle.loads(pickle.dumps(made)) == made  # our own object
    assert flow_of(arm) is not None
    assert arm.name == "tokenpilot:harm_price=2.0+slomax:reserve=0.5@fleetmind:margin=0.2:trial=8"


def test_without_a_rule_there_is_no_stage():
    assert sites_of(parse_arm("tokenpilot+slomax")) is None
    assert parse_arm("tokenpilot@local_only").flow is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tokenpilot@nearest", "unknown rule of site choice"),
        ("tokenpilot@fleetmind:margin=7.0", "out of range"),
        ("tokenpilot@fleetmind:far=1", "unknown setting"),
        ("tokenpilot@fleetmind@gorgo", "more than one choice of site"),
        ("tokenpilot@fleetmind+slomax", "unknown rule of site choice"),
    ],
)
def test_wrong_texts_are_refused(text, problem):
    with pytest.raises(SettingError, match=problem):
        parse_arm(text)
