"""What the API takes and gives, as its OpenAPI document shows it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from data.plan import PlanDocument
from planner.loop.shadow import Shadow
from planner.plan_diff import PlaceChange, PlanDiff, ShareChange
from planner.plan_store.entry import StoreEntry
from planner.plan_store.layout import Published

NAME = Field(min_length=1, max_length=200)


class Given(BaseModel):
    """Base of what callers send: unknown keys and numbers that are not finite are errors."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class EntryMessage(BaseModel):
    """A version of the plan: when, by which planner and why it was published."""

    version: int = Field(examples=[12])
    epoch: int = Field(description="Fencing token of the planner that published it.", examples=[3])
    plan_id: str = Field(examples=["plan-5f0c2a9e1b7d4c38"])
    published_s: float = Field(description="Seconds since the epoch, UTC.", examples=[1767225600.0])
    kind: Literal["published", "renewed", "rolled_back"] = Field(examples=["published"])
    reason: str = Field(examples=["2 replicas and 4 shares change"])
    restores: int | None = Field(None, description="Version that a roll-back put back.")
    good_share_before: float | None = Field(
        None, description="Goodput over offered tokens before it; what its watch compares with.", examples=[0.97]
    )


class PublishedMessage(BaseModel):
    """A version with its plan."""

    entry: EntryMessage
    plan: PlanDocument


class HistoryMessage(BaseModel):
    """Versions, newest first. ``before`` of the next page is the last version of this one."""

    versions: list[EntryMessage]


class DiffMessage(BaseModel):
    """What changes from one plan to another; ``gpus`` of a place is the change."""

    old_id: str
    new_id: str
    places: list[PlaceChange]
    shares: list[ShareChange]
    gpus_before: int
    gpus_after: int
    objective_before: float = Field(description="Value-weighted tokens/s.")
    objective_after: float = Field(description="Value-weighted tokens/s.")


class ShadowMessage(BaseModel):
    """Simulated Goodput, output tokens/s, means over seeds; both saw the same requests."""

    running: float = Field(description="Of what stands.", examples=[41200.0])
    candidate: float = Field(description="Of the new plan, its moves included.", examples=[44900.0])
    change: float = Field(description="Candidate over running, less 1.", examples=[0.09])
    requests: int
    window_s: float
    seeds: int
    source: str = Field(description="Where the requests come from.")


class DemandLine(Given):
    """Demand of one commodity, as in the demand file: exactly one of rate, quantiles, counter, missing."""

    model: str = NAME
    workload_class: str = NAME
    tenant: str = NAME
    origin: str = NAME
    tokens_per_s: float | None = Field(None, description="Median output tokens/s.")
    quantiles: list[float] | None = Field(None, description="Output tokens/s at 20, 50, 80 and 95 %.")
    counter: list[float | None] | None = Field(None, description="Counter at both ends of the window.")
    missing: bool | None = Field(None, description="No data: the model's replicas are held.")
    input_tokens: float | None = Field(None, description="Mean prompt length.")
    output_tokens: float | None = Field(None, description="Mean answer length.")
    input_variation: float | None = None


class DemandQuestion(Given):
    """A whole demand, as in the demand file."""

    demand: list[DemandLine] = Field(max_length=20_000)
    window_s: float | None = Field(None, description="Length of the window of counters, seconds.")
    spread: float | None = Field(None, description="Standard deviation of log demand.")


class PoolQuestion(Given):
    """Another number of GPUs in one pool: replicas beyond it are lost, a pool that the fleet lacks is added."""

    site: str = NAME
    gpu_type: str = NAME
    count: int = Field(ge=0, le=1_000_000)


class WhatIfQuestion(Given):
    """Another demand, another fleet, or both. What is not given is as it is now."""

    model_config = ConfigDict(
        extra="forbid",
        allow_inf_nan=False,
        json_schema_extra={
            "examples": [{"demand_scale": 1.5, "gpus": [{"site": "C", "gpu_type": "H100", "count": 0}]}]
        },
    )
    demand: DemandQuestion | None = Field(None, description="Instead of the demand of the last step.")
    demand_scale: float = Field(1.0, gt=0, le=1000, description="Factor on all demand.")
    fleet: dict[str, Any] | None = Field(None, description="A whole fleet file, as JSON.")
    gpus: list[PoolQuestion] = Field(default_factory=list, max_length=10_000)


class WhatIfMessage(BaseModel):
    """The plan that would be made, and what it would bring. Nothing of it is published."""

    plan: PlanDocument
    diff: DiffMessage | None = Field(description="Against the plan in force; null = there is none.")
    simulated: ShadowMessage | None = Field(description="Null where there is nothing to simulate.")
    notes: list[str]


class RollBackQuestion(Given):
    """Which plan to put back, and why."""

    model_config = ConfigDict(
        extra="forbid",
        allow_inf_nan=False,
        json_schema_extra={"examples": [{"reason": "first tokens come late at B", "version": 11}]},
    )
    reason: str = Field("asked for by an operator", min_length=1, max_length=500)
    version: int | None = Field(None, ge=1, le=999_999_999, description="Null = the plan before the current one.")


class AcceptedMessage(BaseModel):
    """An order that will be carried out."""

    accepted: str = Field(examples=["a step is due now"])


class StepMessage(BaseModel):
    """A step of the loop."""

    at_s: float
    verdict: Literal["publish", "renew", "keep", "failed"]
    reason: str
    plan_id: str
    version: int | None
    simulated: ShadowMessage | None
    good_share: float | None = Field(description="Goodput over offered tokens in the last window; null = unknown.")
    notes: list[str]
    seconds: dict[str, float] = Field(description="Duration of the step's parts.")


class SettingMessage(BaseModel):
    """A setting of the loop as it holds now, and where its value is from."""

    name: str = Field(examples=["fall_limit"])
    value: float | str = Field(examples=[0.1])
    source: Literal["default", "given"]


class StatusMessage(BaseModel):
    """How the loop stands."""

    leads: bool = Field(description="Whether this planner may publish.")
    epoch: int = Field(description="Its fencing token; 0 = none.")
    stepping: bool
    next_step_s: float = Field(description="When the next step is due, seconds since the epoch.")
    failures: int = Field(description="Steps in a row that failed.")
    watching: int | None = Field(description="Version under watch.")
    trouble: str = Field(description="What keeps the loop from working now; empty = nothing.")
    last_step: StepMessage | None
    fleet_active: str = Field(description="Digest of the fleet that plans are made for.")
    fleet_attempted: str = Field(description="Digest of the fleet file read last; empty = it could not be read.")
    fleet_errors: list[str] = Field(description="Why the last fleet file was refused.")
    sources: list[str]
    settings: list[SettingMessage]


class SentenceMessage(BaseModel):
    """A sentence of an explanation."""

    about: str = Field(description="plan, promise, demand, move, price or notice.", examples=["move"])
    text: str = Field(examples=["start 2 replicas of chat-h100 at B: worth 1,200 a second more than they cost"])


class ExplainMessage(BaseModel):
    """Why the plan is as it is."""

    version: int
    plan_id: str
    lines: list[SentenceMessage]


class KubernetesMessage(BaseModel):
    """A list of objects, as `kubectl apply --server-side -f -` takes it."""

    apiVersion: Literal["v1"] = "v1"  # noqa: N815
    kind: Literal["List"] = "List"
    items: list[dict[str, Any]]


class HealthMessage(BaseModel):
    """Health of the service."""

    status: Literal["up", "ready"] = Field(examples=["ready"])


def entry_message(entry: StoreEntry) -> EntryMessage:
    """An entry as the API gives it."""
    return EntryMessage(
        version=entry.version,
        epoch=entry.epoch,
        plan_id=entry.plan_id,
        published_s=entry.published_s,
        kind=entry.kind.value,
        reason=entry.reason,
        restores=entry.restores,
        good_share_before=None if entry.baseline is None else entry.baseline.good_share,
    )


def published_message(published: Published) -> PublishedMessage:
    """A version as the API gives it."""
    return PublishedMessage(entry=entry_message(published.entry), plan=published.plan)


def diff_message(diff: PlanDiff) -> DiffMessage:
    """A difference as the API gives it."""
    return DiffMessage.model_validate(diff.as_dict())


def shadow_message(shadow: Shadow | None) -> ShadowMessage | None:
    """A simulation as the API gives it."""
    if shadow is None:
        return None
    return ShadowMessage(
        running=shadow.running,
        candidate=shadow.candidate,
        change=0.0 - shadow.loss,
        requests=shadow.requests,
        window_s=shadow.window_s,
        seeds=shadow.seeds,
        source=shadow.source,
    )
