from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RouteRequest(_message.Message):
    __slots__ = ("request_id", "model", "tenant", "workload_class", "task_type", "origin", "input_tokens", "output_budget", "token_ids", "block_hashes", "block_tokens", "session_id", "adapter", "cache_scope", "media_digest", "attempt", "avoid_endpoints", "queue_ttl_s", "api_kind", "media")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_CLASS_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BUDGET_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HASHES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    CACHE_SCOPE_FIELD_NUMBER: _ClassVar[int]
    MEDIA_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    AVOID_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_TTL_S_FIELD_NUMBER: _ClassVar[int]
    API_KIND_FIELD_NUMBER: _ClassVar[int]
    MEDIA_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    tenant: str
    workload_class: str
    task_type: str
    origin: str
    input_tokens: int
    output_budget: int
    token_ids: bytes
    block_hashes: bytes
    block_tokens: int
    session_id: str
    adapter: str
    cache_scope: str
    media_digest: str
    attempt: int
    avoid_endpoints: _containers.RepeatedScalarFieldContainer[str]
    queue_ttl_s: float
    api_kind: str
    media: _containers.RepeatedCompositeFieldContainer[Media]
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., tenant: _Optional[str] = ..., workload_class: _Optional[str] = ..., task_type: _Optional[str] = ..., origin: _Optional[str] = ..., input_tokens: _Optional[int] = ..., output_budget: _Optional[int] = ..., token_ids: _Optional[bytes] = ..., block_hashes: _Optional[bytes] = ..., block_tokens: _Optional[int] = ..., session_id: _Optional[str] = ..., adapter: _Optional[str] = ..., cache_scope: _Optional[str] = ..., media_digest: _Optional[str] = ..., attempt: _Optional[int] = ..., avoid_endpoints: _Optional[_Iterable[str]] = ..., queue_ttl_s: _Optional[float] = ..., api_kind: _Optional[str] = ..., media: _Optional[_Iterable[_Union[Media, _Mapping]]] = ...) -> None: ...

class Media(_message.Message):
    __slots__ = ("digest", "first_token", "tokens")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    digest: str
    first_token: int
    tokens: int
    def __init__(self, digest: _Optional[str] = ..., first_token: _Optional[int] = ..., tokens: _Optional[int] = ...) -> None: ...

class Quantiles(_message.Message):
    __slots__ = ("p50_s", "p90_s")
    P50_S_FIELD_NUMBER: _ClassVar[int]
    P90_S_FIELD_NUMBER: _ClassVar[int]
    p50_s: float
    p90_s: float
    def __init__(self, p50_s: _Optional[float] = ..., p90_s: _Optional[float] = ...) -> None: ...

class Placement(_message.Message):
    __slots__ = ("endpoint_id", "address", "site", "lease_id", "lease_s", "ttft", "tpot", "predicted_hit_tokens", "cache_salt")
    ENDPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    TTFT_FIELD_NUMBER: _ClassVar[int]
    TPOT_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_HIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    endpoint_id: str
    address: str
    site: str
    lease_id: int
    lease_s: float
    ttft: Quantiles
    tpot: Quantiles
    predicted_hit_tokens: int
    cache_salt: str
    def __init__(self, endpoint_id: _Optional[str] = ..., address: _Optional[str] = ..., site: _Optional[str] = ..., lease_id: _Optional[int] = ..., lease_s: _Optional[float] = ..., ttft: _Optional[_Union[Quantiles, _Mapping]] = ..., tpot: _Optional[_Union[Quantiles, _Mapping]] = ..., predicted_hit_tokens: _Optional[int] = ..., cache_salt: _Optional[str] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "http_status", "retry_after_s", "message")
    REASON_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    http_status: int
    retry_after_s: float
    message: str
    def __init__(self, reason: _Optional[str] = ..., http_status: _Optional[int] = ..., retry_after_s: _Optional[float] = ..., message: _Optional[str] = ...) -> None: ...

class RouteReply(_message.Message):
    __slots__ = ("request_id", "placement", "refusal", "workload_class", "model_version", "plan_id", "degraded", "queued_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_CLASS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    QUEUED_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    placement: Placement
    refusal: Refusal
    workload_class: str
    model_version: str
    plan_id: str
    degraded: _containers.RepeatedScalarFieldContainer[str]
    queued_s: float
    def __init__(self, request_id: _Optional[str] = ..., placement: _Optional[_Union[Placement, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., workload_class: _Optional[str] = ..., model_version: _Optional[str] = ..., plan_id: _Optional[str] = ..., degraded: _Optional[_Iterable[str]] = ..., queued_s: _Optional[float] = ...) -> None: ...

class RouteBatchRequest(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[RouteRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[RouteRequest, _Mapping]]] = ...) -> None: ...

class RouteBatchReply(_message.Message):
    __slots__ = ("replies",)
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    replies: _containers.RepeatedCompositeFieldContainer[RouteReply]
    def __init__(self, replies: _Optional[_Iterable[_Union[RouteReply, _Mapping]]] = ...) -> None: ...

class ReportEvent(_message.Message):
    __slots__ = ("lease_id", "first_token", "finished", "cancelled", "error")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    first_token: FirstToken
    finished: Finished
    cancelled: Cancelled
    error: Error
    def __init__(self, lease_id: _Optional[int] = ..., first_token: _Optional[_Union[FirstToken, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., cancelled: _Optional[_Union[Cancelled, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class FirstToken(_message.Message):
    __slots__ = ("ttft_s",)
    TTFT_S_FIELD_NUMBER: _ClassVar[int]
    ttft_s: float
    def __init__(self, ttft_s: _Optional[float] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("output_tokens", "e2e_s", "cached_tokens", "preemptions", "ttft_s", "finish_reason")
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    E2E_S_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    TTFT_S_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    output_tokens: int
    e2e_s: float
    cached_tokens: int
    preemptions: int
    ttft_s: float
    finish_reason: str
    def __init__(self, output_tokens: _Optional[int] = ..., e2e_s: _Optional[float] = ..., cached_tokens: _Optional[int] = ..., preemptions: _Optional[int] = ..., ttft_s: _Optional[float] = ..., finish_reason: _Optional[str] = ...) -> None: ...

class Cancelled(_message.Message):
    __slots__ = ("output_tokens", "timed_out")
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMED_OUT_FIELD_NUMBER: _ClassVar[int]
    output_tokens: int
    timed_out: bool
    def __init__(self, output_tokens: _Optional[int] = ..., timed_out: _Optional[bool] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("http_status", "output_tokens", "timed_out")
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMED_OUT_FIELD_NUMBER: _ClassVar[int]
    http_status: int
    output_tokens: int
    timed_out: bool
    def __init__(self, http_status: _Optional[int] = ..., output_tokens: _Optional[int] = ..., timed_out: _Optional[bool] = ...) -> None: ...

class ReportSummary(_message.Message):
    __slots__ = ("accepted", "unknown_lease", "invalid", "held")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_LEASE_FIELD_NUMBER: _ClassVar[int]
    INVALID_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    accepted: int
    unknown_lease: int
    invalid: int
    held: int
    def __init__(self, accepted: _Optional[int] = ..., unknown_lease: _Optional[int] = ..., invalid: _Optional[int] = ..., held: _Optional[int] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: RouteRequest
    def __init__(self, request: _Optional[_Union[RouteRequest, _Mapping]] = ...) -> None: ...

class ExplainReply(_message.Message):
    __slots__ = ("decision", "class_rule", "candidates", "rejected", "budget", "queue", "site_choice", "corrections")
    DECISION_FIELD_NUMBER: _ClassVar[int]
    CLASS_RULE_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SITE_CHOICE_FIELD_NUMBER: _ClassVar[int]
    CORRECTIONS_FIELD_NUMBER: _ClassVar[int]
    decision: RouteReply
    class_rule: str
    candidates: _containers.RepeatedCompositeFieldContainer[Candidate]
    rejected: _containers.RepeatedCompositeFieldContainer[Rejected]
    budget: Budget
    queue: Queue
    site_choice: SiteChoice
    corrections: Corrections
    def __init__(self, decision: _Optional[_Union[RouteReply, _Mapping]] = ..., class_rule: _Optional[str] = ..., candidates: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ..., rejected: _Optional[_Iterable[_Union[Rejected, _Mapping]]] = ..., budget: _Optional[_Union[Budget, _Mapping]] = ..., queue: _Optional[_Union[Queue, _Mapping]] = ..., site_choice: _Optional[_Union[SiteChoice, _Mapping]] = ..., corrections: _Optional[_Union[Corrections, _Mapping]] = ...) -> None: ...

class Corrections(_message.Message):
    __slots__ = ("admitted_share", "repeats_share", "capacity", "debt")
    ADMITTED_SHARE_FIELD_NUMBER: _ClassVar[int]
    REPEATS_SHARE_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    DEBT_FIELD_NUMBER: _ClassVar[int]
    admitted_share: float
    repeats_share: float
    capacity: float
    debt: float
    def __init__(self, admitted_share: _Optional[float] = ..., repeats_share: _Optional[float] = ..., capacity: _Optional[float] = ..., debt: _Optional[float] = ...) -> None: ...

class SiteChoice(_message.Message):
    __slots__ = ("rule", "chosen", "options")
    RULE_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    rule: str
    chosen: str
    options: _containers.RepeatedCompositeFieldContainer[SiteOption]
    def __init__(self, rule: _Optional[str] = ..., chosen: _Optional[str] = ..., options: _Optional[_Iterable[_Union[SiteOption, _Mapping]]] = ...) -> None: ...

class SiteOption(_message.Message):
    __slots__ = ("site", "chosen", "open", "reason", "total_s", "network_s", "queue_s", "compute_s", "saved_s", "late_s", "price_s", "share_s", "trust_s", "stay_s", "age_s", "ready", "free_slots", "load", "harm_s")
    SITE_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TOTAL_S_FIELD_NUMBER: _ClassVar[int]
    NETWORK_S_FIELD_NUMBER: _ClassVar[int]
    QUEUE_S_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    SAVED_S_FIELD_NUMBER: _ClassVar[int]
    LATE_S_FIELD_NUMBER: _ClassVar[int]
    PRICE_S_FIELD_NUMBER: _ClassVar[int]
    SHARE_S_FIELD_NUMBER: _ClassVar[int]
    TRUST_S_FIELD_NUMBER: _ClassVar[int]
    STAY_S_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    HARM_S_FIELD_NUMBER: _ClassVar[int]
    site: str
    chosen: bool
    open: bool
    reason: str
    total_s: float
    network_s: float
    queue_s: float
    compute_s: float
    saved_s: float
    late_s: float
    price_s: float
    share_s: float
    trust_s: float
    stay_s: float
    age_s: float
    ready: int
    free_slots: float
    load: float
    harm_s: float
    def __init__(self, site: _Optional[str] = ..., chosen: _Optional[bool] = ..., open: _Optional[bool] = ..., reason: _Optional[str] = ..., total_s: _Optional[float] = ..., network_s: _Optional[float] = ..., queue_s: _Optional[float] = ..., compute_s: _Optional[float] = ..., saved_s: _Optional[float] = ..., late_s: _Optional[float] = ..., price_s: _Optional[float] = ..., share_s: _Optional[float] = ..., trust_s: _Optional[float] = ..., stay_s: _Optional[float] = ..., age_s: _Optional[float] = ..., ready: _Optional[int] = ..., free_slots: _Optional[float] = ..., load: _Optional[float] = ..., harm_s: _Optional[float] = ...) -> None: ...

class Budget(_message.Message):
    __slots__ = ("tokens_left", "tokens_per_s", "requests_left", "requests_per_s", "concurrent", "reserved_tokens", "in_flight")
    TOKENS_LEFT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_LEFT_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_PER_S_FIELD_NUMBER: _ClassVar[int]
    CONCURRENT_FIELD_NUMBER: _ClassVar[int]
    RESERVED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    tokens_left: float
    tokens_per_s: float
    requests_left: float
    requests_per_s: float
    concurrent: int
    reserved_tokens: float
    in_flight: int
    def __init__(self, tokens_left: _Optional[float] = ..., tokens_per_s: _Optional[float] = ..., requests_left: _Optional[float] = ..., requests_per_s: _Optional[float] = ..., concurrent: _Optional[int] = ..., reserved_tokens: _Optional[float] = ..., in_flight: _Optional[int] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("requests", "tokens", "oldest_s", "expected_wait_s")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_S_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    requests: int
    tokens: int
    oldest_s: float
    expected_wait_s: float
    def __init__(self, requests: _Optional[int] = ..., tokens: _Optional[int] = ..., oldest_s: _Optional[float] = ..., expected_wait_s: _Optional[float] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("endpoint_id", "site", "chosen", "ttft", "tpot", "source", "hit_tokens", "meets_targets", "completion_s", "harm_s", "value", "price", "score", "features", "lost_tokens")
    class FeaturesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ENDPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    TTFT_FIELD_NUMBER: _ClassVar[int]
    TPOT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    HIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MEETS_TARGETS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_S_FIELD_NUMBER: _ClassVar[int]
    HARM_S_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    PRICE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LOST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    endpoint_id: str
    site: str
    chosen: bool
    ttft: Quantiles
    tpot: Quantiles
    source: str
    hit_tokens: int
    meets_targets: float
    completion_s: float
    harm_s: float
    value: float
    price: float
    score: float
    features: _containers.ScalarMap[str, float]
    lost_tokens: float
    def __init__(self, endpoint_id: _Optional[str] = ..., site: _Optional[str] = ..., chosen: _Optional[bool] = ..., ttft: _Optional[_Union[Quantiles, _Mapping]] = ..., tpot: _Optional[_Union[Quantiles, _Mapping]] = ..., source: _Optional[str] = ..., hit_tokens: _Optional[int] = ..., meets_targets: _Optional[float] = ..., completion_s: _Optional[float] = ..., harm_s: _Optional[float] = ..., value: _Optional[float] = ..., price: _Optional[float] = ..., score: _Optional[float] = ..., features: _Optional[_Mapping[str, float]] = ..., lost_tokens: _Optional[float] = ...) -> None: ...

class Rejected(_message.Message):
    __slots__ = ("endpoint_id", "reason")
    ENDPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    endpoint_id: str
    reason: str
    def __init__(self, endpoint_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchEvent(_message.Message):
    __slots__ = ("revision", "plan_id", "model_version", "fleet_digest", "endpoints", "cause")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    FLEET_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    revision: int
    plan_id: str
    model_version: str
    fleet_digest: str
    endpoints: _containers.RepeatedCompositeFieldContainer[EndpointState]
    cause: str
    def __init__(self, revision: _Optional[int] = ..., plan_id: _Optional[str] = ..., model_version: _Optional[str] = ..., fleet_digest: _Optional[str] = ..., endpoints: _Optional[_Iterable[_Union[EndpointState, _Mapping]]] = ..., cause: _Optional[str] = ...) -> None: ...

class EndpointState(_message.Message):
    __slots__ = ("endpoint_id", "site", "model", "address", "ready", "draining", "healthy", "metrics", "incarnation")
    ENDPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    endpoint_id: str
    site: str
    model: str
    address: str
    ready: bool
    draining: bool
    healthy: bool
    metrics: str
    incarnation: int
    def __init__(self, endpoint_id: _Optional[str] = ..., site: _Optional[str] = ..., model: _Optional[str] = ..., address: _Optional[str] = ..., ready: _Optional[bool] = ..., draining: _Optional[bool] = ..., healthy: _Optional[bool] = ..., metrics: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class CapacityRequest(_message.Message):
    __slots__ = ("period_s",)
    PERIOD_S_FIELD_NUMBER: _ClassVar[int]
    period_s: float
    def __init__(self, period_s: _Optional[float] = ...) -> None: ...

class CapacityReport(_message.Message):
    __slots__ = ("sequence", "lease_base", "draining", "plan_id", "fleet_digest", "sites")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LEASE_BASE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    FLEET_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    lease_base: int
    draining: bool
    plan_id: str
    fleet_digest: str
    sites: _containers.RepeatedCompositeFieldContainer[SiteCapacity]
    def __init__(self, sequence: _Optional[int] = ..., lease_base: _Optional[int] = ..., draining: _Optional[bool] = ..., plan_id: _Optional[str] = ..., fleet_digest: _Optional[str] = ..., sites: _Optional[_Iterable[_Union[SiteCapacity, _Mapping]]] = ...) -> None: ...

class SiteCapacity(_message.Message):
    __slots__ = ("site", "model", "ready", "idle", "free_slots", "load", "queue_s", "fixed_s", "prefill_s_per_token", "prefill_s_per_token2", "tpot_s", "busy", "age_s", "context_limit_tokens", "kv_capacity_tokens")
    SITE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    QUEUE_S_FIELD_NUMBER: _ClassVar[int]
    FIXED_S_FIELD_NUMBER: _ClassVar[int]
    PREFILL_S_PER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PREFILL_S_PER_TOKEN2_FIELD_NUMBER: _ClassVar[int]
    TPOT_S_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LIMIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_CAPACITY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    site: str
    model: str
    ready: int
    idle: int
    free_slots: float
    load: float
    queue_s: float
    fixed_s: float
    prefill_s_per_token: float
    prefill_s_per_token2: float
    tpot_s: float
    busy: float
    age_s: float
    context_limit_tokens: int
    kv_capacity_tokens: int
    def __init__(self, site: _Optional[str] = ..., model: _Optional[str] = ..., ready: _Optional[int] = ..., idle: _Optional[int] = ..., free_slots: _Optional[float] = ..., load: _Optional[float] = ..., queue_s: _Optional[float] = ..., fixed_s: _Optional[float] = ..., prefill_s_per_token: _Optional[float] = ..., prefill_s_per_token2: _Optional[float] = ..., tpot_s: _Optional[float] = ..., busy: _Optional[float] = ..., age_s: _Optional[float] = ..., context_limit_tokens: _Optional[int] = ..., kv_capacity_tokens: _Optional[int] = ...) -> None: ...
