"""The search with hindsight: it begins with the policy's own run, never gets worse, and stays below the bound."""

from __future__ import annotations

from itertools import pairwise

from benchmarks.proof.hindsight import Search
from data.fleet.reference import reference_fleet
from data.synth.profiles import PROFILES
from planner.arm import Arm
from planner.bound import scenario_bound
from planner.fleet_streams import fleet_streams
from planner.scenario import Scenario
from planner.trace_source import Shaped, SynthTrace


def test_hindsight_lies_between_the_policy_and_the_bound() -> None:
    built = reference_fleet("mixed-pool")
    source = SynthTrace(tuple(fleet_streams(built, PROFILES["code"], 12.0)), 30.0, "code")
    scenario, arm = Scenario(built, Shaped(source, speed=2.0)), Arm("random", "random")
    search = Search(scenario, 1, 3.0)
    found = list(search.improve(arm, 12))
    own = scenario.run(arm, 1).total
    offered = sum(request.output_tokens for request in search.requests)
    assert found[0].share * offered == own.good_output_tokens
    assert all(later.share >= before.share for before, later in pairwise(found))
    assert found[-1].share > found[0].share
    assert found[-1].share <= scenario_bound(scenario, 1).share_of_offered
