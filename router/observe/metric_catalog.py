"""Every metric that the router exports: name, kind, labels and meaning in one table.

``docs/metrics.md`` shows the same table; a test holds both together, and another one holds both to a real page.
Labels take their values from the fleet file and from closed lists, never from what a caller makes up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from router.kv_events.counters import LAG_BOUNDS_S

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric. Counters get ``_total`` behind their name on the page.

    Attributes:
        name: Without the prefix ``tokenfleet_router_``; the unit stands last.
        labels: Label names, in the order in which values are given.
        bounds: Upper bounds of a histogram's buckets, ascending, without infinity.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


PREFIX = "tokenfleet_router_"
_DECISION_S = (5e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.2)
_LAG_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_WAIT_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_TTFT_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)
_TPOT_S = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1.0)
_RATIO = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
_SHARE = (-0.9, -0.5, -0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2, 0.5, 0.9)

METRICS: tuple[MetricSpec, ...] = (
    # decisions
    MetricSpec("decisions", "counter", "Requests placed.", ("policy", "model", "site", "workload_class")),
    MetricSpec("refusals", "counter", "Requests refused; each has exactly one reason.", ("reason",)),
    MetricSpec("degraded_decisions", "counter", "Placements that had to do without something.", ("flag",)),
    MetricSpec(
        "decision_seconds", "histogram", "From a request's arrival to its reply, queue excluded.", (), _DECISION_S
    ),
    MetricSpec("rpcs", "counter", "Calls by method and gRPC status.", ("method", "code")),
    MetricSpec("rpcs_in_flight", "gauge", "Calls that are being served.", ("method",)),
    MetricSpec("event_loop_lag_seconds", "histogram", "How late the event loop ran a timer.", (), _LAG_S),
    MetricSpec("calls_over_limit", "counter", "Calls refused because too many were running.", ("kind",)),
    MetricSpec(
        "requests_without_blocks", "counter", "Placements whose prompt gave no block to look up.", ("api_kind",)
    ),
    # outcomes
    MetricSpec("leases_open", "gauge", "Dispatches that nobody has told the end of.", ()),
    MetricSpec("leases_expired", "counter", "Leases that ended by their time limit.", ()),
    MetricSpec("unknown_leases", "counter", "Reports for leases that are not open.", ()),
    MetricSpec("attempts_ended", "counter", "Attempts by how they ended.", ("status", "workload_class")),
    MetricSpec(
        "output_tokens",
        "counter",
        "Output tokens of completed requests; those with met=yes are Goodput.",
        ("workload_class", "tenant", "met"),
    ),
    MetricSpec(
        "wasted_tokens", "counter", "Tokens that engines computed for nothing.", ("workload_class", "cause")
    ),
    MetricSpec("retries", "counter", "Attempts after the first.", ("workload_class",)),
    MetricSpec("ttft_seconds", "histogram", "Observed time to first token.", ("workload_class",), _TTFT_S),
    MetricSpec("tpot_seconds", "histogram", "Observed time per output token.", ("workload_class",), _TPOT_S),
    # queues and budgets
    MetricSpec("queue_requests", "gauge", "Requests that wait.", ("model", "workload_class")),
    MetricSpec("queue_tokens", "gauge", "Their prompt tokens.", ("model", "workload_class")),
    MetricSpec("queue_oldest_seconds", "gauge", "Longest wait so far.", ("model", "workload_class")),
    MetricSpec(
        "queue_wait_seconds",
        "histogram",
        "First arrival to decision of what was placed.",
        ("workload_class",),
        _WAIT_S,
    ),
    MetricSpec("held_requests", "gauge", "Requests that wait for any engine to come up.", ()),
    MetricSpec("tenant_budget_left", "gauge", "What a tenant with a budget may use now.", ("tenant", "unit")),
    MetricSpec(
        "tenant_reserved_tokens", "gauge", "Of such a tenant: set aside for requests under way.", ("tenant",)
    ),
    MetricSpec("tenant_requests_in_flight", "gauge", "Of such a tenant: in flight or waiting.", ("tenant",)),
    # feedback
    MetricSpec("admitted_share", "gauge", "Share of the arrivals that is let in.", ("model", "workload_class")),
    MetricSpec(
        "admitted_repeats_share",
        "gauge",
        "Share of the attempts after the first that is let in.",
        ("model", "workload_class"),
    ),
    MetricSpec(
        "capacity_correction",
        "gauge",
        "Factor on planned rates, by measured Goodput.",
        ("model", "workload_class"),
    ),
    MetricSpec(
        "tenant_debt_factor",
        "gauge",
        "Factor on the weight of a tenant that is owed something; class * = all.",
        ("workload_class", "tenant"),
    ),
    # sites
    MetricSpec("site_choices", "counter", "Requests sent to a site; home=no spilled over.", ("site", "home")),
    MetricSpec("site_fallbacks", "counter", "Attempts that went on from a site to another.", ("site", "reason")),
    MetricSpec(
        "site_breaches_refused", "counter", "Placements taken back: the tenant may not go there.", ("site",)
    ),
    MetricSpec("site_up", "gauge", "1 if the entry can reach the site's router.", ("site",)),
    MetricSpec("site_lost", "counter", "Times that the site fell silent.", ("site",)),
    MetricSpec("site_summary_age_seconds", "gauge", "Since the site's router was last heard.", ("site",)),
    MetricSpec("site_summary_state", "gauge", "1 for the state its reports are in.", ("site", "state")),
    MetricSpec("site_ready_replicas", "gauge", "Replicas that take requests, as told.", ("site", "model")),
    MetricSpec("site_load", "gauge", "Requests in flight there, as a share of all places.", ("site", "model")),
    MetricSpec("site_reports_held", "gauge", "Outcomes that wait until the site can be reached.", ("site",)),
    MetricSpec("site_reports_dropped", "counter", "Outcomes given up: too old, too many, or refused.", ("site",)),
    # prediction against observation
    MetricSpec("ttft_ratio", "histogram", "Observed over predicted median TTFT.", ("gpu_type",), _RATIO),
    MetricSpec("tpot_ratio", "histogram", "Observed over predicted median TPOT.", ("gpu_type",), _RATIO),
    MetricSpec(
        "hit_error_share",
        "histogram",
        "Observed less predicted prefix-hit tokens, over the prompt.",
        ("gpu_type",),
        _SHARE,
    ),
    MetricSpec("predicted_hit_tokens", "counter", "Prefix-hit tokens predicted at decisions.", ("model",)),
    MetricSpec("observed_hit_tokens", "counter", "Prefix-hit tokens that engines reported.", ("model",)),
    # endpoints
    MetricSpec("endpoint_up", "gauge", "1 if the endpoint takes requests.", ("endpoint", "site", "model")),
    MetricSpec("endpoint_circuit", "gauge", "1 for the phase its circuit breaker is in.", ("endpoint", "phase")),
    MetricSpec("endpoint_metrics_state", "gauge", "1 for the state its metrics are in.", ("endpoint", "state")),
    MetricSpec("endpoint_metrics_age_seconds", "gauge", "Age of its newest load report.", ("endpoint",)),
    MetricSpec("endpoint_inflight", "gauge", "Requests of this router in flight there.", ("endpoint",)),
    MetricSpec("endpoint_stage", "gauge", "1 for the stage of its life it is in.", ("endpoint", "stage")),
    MetricSpec(
        "endpoint_stage_seconds", "gauge", "Time its present process spent in a stage.", ("endpoint", "stage")
    ),
    MetricSpec("endpoints_gone", "counter", "Endpoints that left the list.", ()),
    MetricSpec("probes", "counter", "Completions asked for to see if it serves.", ("endpoint", "result")),
    MetricSpec("endpoints_never_scraped", "gauge", "Endpoints without any good scrape.", ()),
    MetricSpec("scrape_errors", "counter", "Failed scrapes.", ("endpoint", "reason")),
    MetricSpec("scrape_bad_samples", "counter", "Samples that were left out as unreadable.", ("endpoint",)),
    # prefix index
    MetricSpec("prefix_index_blocks", "gauge", "Distinct blocks in the prefix index.", ()),
    MetricSpec("prefix_index_bytes", "gauge", "Memory of the prefix index.", ()),
    MetricSpec("prefix_index_evictions", "counter", "Endpoints that lost all entries: the index was full.", ()),
    MetricSpec("prefix_index_unmatched_removes", "counter", "Removals of blocks that were not known.", ()),
    MetricSpec(
        "parity_mismatch", "gauge", "1: prompts arrive as other tokens, no hits.", ("endpoint", "api_kind")
    ),
    MetricSpec("kv_events_warming", "gauge", "Endpoints whose history has not been seen through.", ()),
    MetricSpec("kv_event_batches", "counter", "Batches of KV events that were applied.", ("endpoint",)),
    MetricSpec("kv_event_gaps", "counter", "Gaps in the sequence of KV events.", ("endpoint",)),
    MetricSpec("kv_event_losses", "counter", "Gaps that cost the endpoint its entries.", ("endpoint",)),
    MetricSpec("kv_events_not_comparable", "counter", "Events with an unknown key, left out.", ("endpoint",)),
    MetricSpec("kv_events_malformed", "counter", "KV event messages that could not be read.", ("endpoint",)),
    MetricSpec("kv_event_lag_seconds", "histogram", "From an engine's time stamp to the index.", (), LAG_BOUNDS_S),
    # log and reload
    MetricSpec("log_rows", "counter", "Rows given to the decision and outcome log.", ("table",)),
    MetricSpec("log_dropped_rows", "counter", "Rows that the log had to drop.", ()),
    MetricSpec("reloads", "counter", "Reloads of files that the router follows.", ("what", "result")),
    MetricSpec(
        "reload_failed", "gauge", "1: the file's last change was refused, the one before serves.", ("what",)
    ),
    MetricSpec(
        "serving_info", "gauge", "1; what serves stands in the labels.", ("model_version", "plan_id", "fleet")
    ),
)
BY_NAME = {metric.name: metric for metric in METRICS}
