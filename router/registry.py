"""All routing policies by name: what they do, their settings, and how to build one."""

from __future__ import annotations

from collections.abc import Mapping

from data.errors import SettingError
from models.base import LatencyPredictor
from router import tokenpilot
from router.endpoints import EndpointTable
from router.policies import (
    cache_aware_sglang,
    cache_aware_smg,
    kv_aware_vllm_router,
    kv_cost_dynamo,
    latency_based_litellm,
    least_load_smg,
    least_request,
    mooncake_no_transfer,
    power_of_two,
    predicted_latency_llmd,
    prefix_cache_aibrix,
    prefix_hash_smg,
    random_choice,
    round_robin,
    rtt_aware_gorgo,
    sticky_until_saturated_llmd,
    weighted_blend_llmd,
)
from router.policies.base import PolicyContext, PolicyEntry
from router.policies.settings import settings_from
from router.types import Policy, PolicySettings

ENTRIES: tuple[PolicyEntry, ...] = (
    round_robin.ENTRY,
    random_choice.ENTRY,
    least_request.ENTRY,
    power_of_two.ENTRY,
    least_load_smg.ENTRY,
    latency_based_litellm.ENTRY,
    cache_aware_sglang.ENTRY,
    cache_aware_smg.ENTRY,
    prefix_hash_smg.ENTRY,
    prefix_cache_aibrix.ENTRY,
    kv_aware_vllm_router.ENTRY,
    mooncake_no_transfer.ENTRY,
    kv_cost_dynamo.ENTRY,
    weighted_blend_llmd.ENTRY,
    sticky_until_saturated_llmd.ENTRY,
    predicted_latency_llmd.ENTRY,
    rtt_aware_gorgo.ENTRY,
    tokenpilot.ENTRY,
)
POLICIES: Mapping[str, PolicyEntry] = {entry.name: entry for entry in ENTRIES}
"""Every policy, from the plainest to the most informed. A new one is a file with an ``ENTRY`` and a line above."""


def policy_entry(name: str) -> PolicyEntry:
    """The entry of that name; ``SettingError`` with the known names if there is none."""
    if name not in POLICIES:
        raise SettingError("unknown policy", value=name, expected="one of " + ", ".join(POLICIES))
    return POLICIES[name]


def make_policy(
    name: str,
    settings: PolicySettings,
    table: EndpointTable,
    seed: int,
    predictor: LatencyPredictor | None = None,
) -> Policy:
    """Build a policy.

    Args:
        name: Its name in ``POLICIES``.
        settings: Values that differ from the defaults.
        table: The endpoint table it will choose from.
        seed: Seed of its own randomness.
        predictor: For policies that predict; ``None`` = the closed-form prior.

    Raises:
        SettingError: For an unknown policy or setting, or a value out of its range.
    """
    entry = policy_entry(name)
    checked = settings_from(entry.settings, settings, name)
    return entry.factory(checked, PolicyContext(table, seed, predictor))
