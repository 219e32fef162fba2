"""Counters cost little, the page is real Prometheus text, and series go with what they describe."""

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.observe.metric_catalog import METRICS, PREFIX
from router.observe.metrics import MOST_LABEL_VALUES, OTHER, RouterMetrics, Sample
from router.observe.metrics_page import serve_metrics


def page(metrics: RouterMetrics) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """A real page over HTTP, parsed by Prometheus' own parser."""
    served = serve_metrics(metrics, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{served.port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    finally:
        served.close()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_counters_and_histograms_stand_on_the_page() -> None:
    metrics = RouterMetrics()
    metrics.counter("refusals").add(("queue_full",))
    metrics.counter("refusals").add(("queue_full",), 2.0)
    for value in (0.05, 0.06, 1e9, float("nan")):
        metrics.histogram("ttft_seconds").observe(value, ("interactive",))
    found = page(metrics)
    assert found[PREFIX + "refusals_total"] == {(("reason", "queue_full"),): 3.0}
    buckets = found[PREFIX + "ttft_seconds_bucket"]
    labels = {label: dict(key)["le"] for key in buckets for label in [key]}
    by_bound = {bound: buckets[key] for key, bound in labels.items()}
    assert by_bound["0.05"] == 1.0
    assert by_bound["0.1"] == 2.0
    assert by_bound["+Inf"] == 3.0
    assert found[PREFIX + "ttft_seconds_count"] == {(("workload_class", "interactive"),): 3.0}


def test_series_of_an_endpoint_that_left_are_gone_at_the_next_scrape_f136() -> None:
    metrics = RouterMetrics()
    endpoints = ["a", "b"]
    metrics.add_source(lambda: [Sample("endpoint_inflight", (name,), 1.0) for name in endpoints])
    assert len(page(metrics)[PREFIX + "endpoint_inflight"]) == 2
    endpoints.remove("a")
    assert list(page(metrics)[PREFIX + "endpoint_inflight"]) == [(("endpoint", "b"),)]


def test_tenants_beyond_the_bound_share_one_series_f136() -> None:
    metrics = RouterMetrics()
    labels = {metrics.tenant(f"tenant-{i}") for i in range(5_000)}
    assert len(labels) == MOST_LABEL_VALUES + 1
    assert OTHER in labels
    assert metrics.tenant("tenant-0") == "tenant-0"


def test_a_source_that_gives_an_undeclared_name_is_found_out() -> None:
    metrics = RouterMetrics()
    metrics.add_source(lambda: [Sample("no_such_metric", (), 1.0)])
    assert not any("no_such_metric" in name for name in page(metrics))
    assert metrics.undeclared == {"no_such_metric"}


def test_an_undeclared_counter_cannot_be_had() -> None:
    with pytest.raises(KeyError):
        RouterMetrics().counter("no_such_metric")


def test_names_are_unique_and_units_stand_last() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert not metric.name.endswith("_total"), metric.name
        assert bool(metric.bounds) == (metric.kind == "histogram")
        assert list(metric.bounds) == sorted(metric.bounds)
        assert not {"request_id", "session_id", "prompt"} & set(metric.labels)
