"""Examples of every answer for the OpenAPI document, made by the code that makes the answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from data.plan import Move, PlanDocument, PlannedReplicas, PlanStatus, TrafficShare, UnmetDemand
from planner.api.messages import (
    ExplainMessage,
    HistoryMessage,
    KubernetesMessage,
    SentenceMessage,
    WhatIfMessage,
    diff_message,
    entry_message,
    published_message,
    shadow_message,
)
from planner.api.status_message import status_message
from planner.loop.judge import Watch
from planner.loop.service_level import ServiceLevel
from planner.loop.shadow import Shadow
from planner.loop.status import LoopStatus, StepReport
from planner.outlets.explain_plan import explain_plan
from planner.outlets.kubernetes import KubernetesSettings, kubernetes_documents
from planner.plan_diff import plan_diff
from planner.plan_store.entry import Baseline, EntryKind, StoreEntry
from planner.plan_store.layout import Published
from router.serving.reload import ReloadStatus

AT_S = 1767225600.0
OLD = PlanDocument(
    plan_id="plan-1d77c02be4a95f60",
    parent_id=None,
    made_at="2025-12-31T23:45:00Z",
    valid_from="2025-12-31T23:45:00Z",
    valid_until="2026-01-01T00:05:00Z",
    fleet="three-sites",
    input_digests={"demand": "90b1", "fleet": "4e02"},
    status=PlanStatus.OPTIMAL,
    objective=5200.0,
    goodput_tokens_per_s=5200.0,
    bound=5230.0,
    bound_name="linked LP",
    replicas=(PlannedReplicas("B", "chat-h100", "chat@v1", "H100", 2, 3, 1),),
    shares=(TrafficShare("chat@v1", "interactive", "shop", "A", "B", 1.0),),
    solver="exact: HiGHS",
    solve_s=1.4,
)
NEW = replace(
    OLD,
    plan_id="plan-5f0c2a9e1b7d4c38",
    parent_id=OLD.plan_id,
    made_at="2026-01-01T00:00:00Z",
    valid_from="2026-01-01T00:00:00Z",
    valid_until="2026-01-01T00:20:00Z",
    objective=7800.0,
    goodput_tokens_per_s=7800.0,
    bound=7840.0,
    replicas=(replace(OLD.replicas[0], replicas=5),),
    unmet=(UnmetDemand("demand", "chat@v1", "interactive", "shop", 40.0, "tokens/s", "full: H100 pool of B"),),
    moves=(Move("B", "chat-h100", 2, 310.0, "carries interactive 2,600 tokens/s"),),
)
SHADOW = Shadow(5100.0, 7300.0, 1800, 900.0, 2, "requests of the log's last window")
ENTRY = StoreEntry(
    12, 3, NEW.plan_id, f"000000012-{NEW.plan_id}.json", "ab" * 32, AT_S, EntryKind.PUBLISHED,
    "2 replicas and 1 shares change", baseline=Baseline(0.91, 7400.0),
)  # fmt: skip
BACK = replace(
    ENTRY, version=13, plan_id=OLD.plan_id, kind=EntryKind.ROLLED_BACK, reason="asked for by an operator",
    restores=11, baseline=None,
)  # fmt: skip
LEVEL = ServiceLevel(6734.0, 7400.0, 2300.0, AT_S - 900.0, AT_S)
STATUS = LoopStatus(
    leads=True,
    epoch=3,
    stepping=False,
    next_step_s=AT_S + 900.0,
    failures=0,
    watch=Watch(12, "7d2e", Baseline(0.91, 7400.0), AT_S + 300.0, AT_S + 2100.0),
    last_step=StepReport(AT_S, "publish", ENTRY.reason, NEW.plan_id, 12, SHADOW, LEVEL, (), {"plan": 1.6}),
    trouble="",
    fleet=ReloadStatus("fleet", active="4e02", attempted="4e02", errors=()),
    sources=("log /var/lib/tokenfleet/log",),
    counts=Counter(),
    settings=(("fall_limit", 0.1, False),),
)


def answer_example(message: BaseModel) -> dict[str, Any]:
    """The 200 answer of a route, with this message as its example."""
    return {"content": {"application/json": {"example": message.model_dump(mode="json")}}}


def published_example() -> dict[str, Any]:
    """A version with its plan."""
    return answer_example(published_message(Published(ENTRY, NEW)))


def history_example() -> dict[str, Any]:
    """Versions."""
    return answer_example(HistoryMessage(versions=[entry_message(BACK), entry_message(ENTRY)]))


def explain_example() -> dict[str, Any]:
    """Sentences about a plan."""
    lines = [SentenceMessage(about=line.about, text=line.text) for line in explain_plan(NEW)]
    return answer_example(ExplainMessage(version=ENTRY.version, plan_id=NEW.plan_id, lines=lines))


def diff_example() -> dict[str, Any]:
    """What changes from one plan to the next."""
    return answer_example(diff_message(plan_diff(OLD, NEW)))


def status_example() -> dict[str, Any]:
    """How the loop stands."""
    return answer_example(status_message(STATUS))


def what_if_example() -> dict[str, Any]:
    """The answer to a question."""
    diff = diff_message(plan_diff(OLD, NEW))
    return answer_example(WhatIfMessage(plan=NEW, diff=diff, simulated=shadow_message(SHADOW), notes=[]))


def kubernetes_example() -> dict[str, Any]:
    """The plan of a site as objects."""
    return answer_example(KubernetesMessage(items=kubernetes_documents(NEW, "B", KubernetesSettings())))


def roll_back_example() -> dict[str, Any]:
    """The version that a roll-back made."""
    return answer_example(entry_message(BACK))
