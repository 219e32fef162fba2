"""The plan in force and the loop's state as Prometheus metrics; an autoscaler can follow the desired replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from planner.loop.status import LoopStatus
from planner.plan_store.layout import Published

PREFIX = "tokenfleet_planner_"
PLACE = ("site", "config", "model", "gpu_type")
VERDICTS = ("publish", "renew", "keep", "failed", "roll_back")


class PlannerMetrics(Collector):
    """Reads everything at scrape time.

    Args:
        current: What is in force; ``None`` = nothing, and no desired replicas are shown (never 0).
        status: How the loop stands; ``None`` = there is no loop.
        deliveries: Taken and failed deliveries of the webhook.
    """

    def __init__(
        self,
        current: Callable[[], Published | None],
        status: Callable[[], LoopStatus] | None = None,
        deliveries: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self._current, self._status, self._deliveries = current, status, deliveries

    def describe(self) -> list[Metric]:
        """Nothing: a scrape at registration is not wanted."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families."""
        published = self._current()
        if published is not None:
            yield from _plan_metrics(published)
        if self._status is not None:
            yield from _loop_metrics(self._status())
        if self._deliveries is not None:
            family = CounterMetricFamily(
                PREFIX + "webhook_deliveries", "Deliveries of the webhook.", labels=("result",)
            )
            for result, count in zip(("taken", "failed"), self._deliveries(), strict=True):
                family.add_metric((result,), count)
            yield family


def _plan_metrics(published: Published) -> Iterator[Metric]:
    entry, plan = published.entry, published.plan
    replicas = _gauge("desired_replicas", "Replicas that the plan wants.", PLACE)
    prewarmed = _gauge("desired_prewarmed", "Prewarmed copies that the plan wants.", PLACE)
    gpus = _gauge("desired_gpus", "GPUs that the plan wants.", ("site", "gpu_type"))
    total: dict[tuple[str, str], int] = {}
    for row in plan.replicas:
        labels = (row.site, row.config, row.model, row.gpu_type)
        replicas.add_metric(labels, row.replicas)
        prewarmed.add_metric(labels, row.prewarmed)
        key = row.site, row.gpu_type
        total[key] = total.get(key, 0) + row.replicas * row.gpus_per_replica
    for key, count in sorted(total.items()):
        gpus.add_metric(key, count)
    yield from (replicas, prewarmed, gpus)
    ramps = _gauge("ramp_share", "Share of a model's traffic at its new version.", ("model", "new", "state"))
    for ramp in plan.ramps:
        ramps.add_metric((ramp.model, ramp.new, ramp.state), ramp.share)
    yield ramps
    info = _gauge("plan_info", "1; the plan in force stands in the labels.", ("plan_id", "status", "kind"))
    info.add_metric((plan.plan_id, plan.status.value, entry.kind.value), 1.0)
    yield info
    for name, text, value in (
        ("plan_version", "Version of the plan in force.", entry.version),
        ("plan_published_seconds", "When it was published, seconds since the epoch.", entry.published_s),
        ("plan_goodput_tokens_per_second", "Goodput that it expects.", plan.goodput_tokens_per_s),
        ("plan_gap_ratio", "Its distance from the bound.", plan.gap),
        ("plan_unmet", "Lines of demand and promises that it leaves unmet.", _unmet(published)),
    ):
        family = _gauge(name, text, ())
        family.add_metric((), value)
        yield family


def _loop_metrics(status: LoopStatus) -> Iterator[Metric]:
    steps = CounterMetricFamily(PREFIX + "steps", "Steps by what became of them.", labels=("verdict",))
    for verdict in VERDICTS:
        steps.add_metric((verdict,), status.counts[verdict])
    yield steps
    for name, text, value in (
        ("leader", "1 if this planner may publish.", float(status.leads)),
        ("epoch", "Fencing token of this planner; 0 = none.", status.epoch),
        ("failed_steps_in_a_row", "Steps that failed since the last good one.", status.failures),
        ("watching", "1 while a published plan is watched.", float(status.watch is not None)),
        ("next_step_seconds", "When the next step is due, seconds since the epoch.", status.next_step_s),
    ):
        family = _gauge(name, text, ())
        family.add_metric((), value)
        yield family
    if status.last_step is not None:
        took = _gauge("step_part_seconds", "Duration of the parts of the last step.", ("part",))
        for part, seconds in status.last_step.seconds.items():
            took.add_metric((part,), seconds)
        yield took


def _unmet(published: Published) -> int:
    return sum(row.what != "notice" for row in published.plan.unmet)


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=labels)
