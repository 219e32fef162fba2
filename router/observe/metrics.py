"""What the router counts: plain numbers on the hot path, Prometheus text only when somebody scrapes.

A counter is one dictionary update, a histogram one bisection. Gauges that can be read from the state itself
(endpoints, queues, leases, the index) are not kept here: a *source* gives their samples at scrape time, so the
series of an endpoint that left are gone with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from router.observe.metric_catalog import BY_NAME, METRICS, PREFIX, MetricSpec

Labels = tuple[str, ...]
OTHER = "other"
"""Label value of everything beyond the bound on label values."""
MOST_LABEL_VALUES = 200
"""Distinct tenants that get a series of their own; a fleet file with more shows the rest as ``other``."""


class Sample(NamedTuple):
    """One value that a source gives at scrape time: counters so far, gauges now."""

    name: str
    labels: Labels
    value: float


Source = Callable[[], Iterable[Sample]]


class Counter:
    """Counts by label values."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: dict[Labels, float] = {}

    def add(self, labels: Labels = (), amount: float = 1.0) -> None:
        """Count ``amount`` more (0 or more)."""
        values = self.values
        values[labels] = values.get(labels, 0.0) + amount


class Histogram:
    """Buckets by label values.

    Args:
        bounds: Upper bounds of the buckets, ascending; a value on a bound belongs to it.
    """

    __slots__ = ("bounds", "series")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.series: dict[Labels, list[float]] = {}
        """Count of each bucket, the one above the last bound, then the sum of all values."""

    def observe(self, value: float, labels: Labels = ()) -> None:
        """Take one value in; a NaN is no observation."""
        if value != value:
            return
        series = self.series.get(labels)
        if series is None:
            series = self.series[labels] = [0.0] * (len(self.bounds) + 2)
        series[bisect_left(self.bounds, value)] += 1.0
        series[-1] += value


class RouterMetrics(Collector):
    """All counters and histograms of one router, and the sources of everything else.

    Attributes:
        undeclared: Names that a source gave although ``METRICS`` lacks them: a fault of the source.
    """

    def __init__(self) -> None:
        self._counters = {spec.name: Counter() for spec in METRICS if spec.kind == "counter"}
        self._histograms = {spec.name: Histogram(spec.bounds) for spec in METRICS if spec.kind == "histogram"}
        self._read_histograms: list[tuple[Histogram, Callable[[], tuple[Iterable[float], float]]]] = []
        for spec in METRICS:
            # A counter of nothing yet is 0, not absent: rates need a first value.
            if spec.kind == "counter" and not spec.labels:
                self._counters[spec.name].values[()] = 0.0
            elif spec.kind == "histogram" and not spec.labels:
                self._histograms[spec.name].series[()] = [0.0] * (len(spec.bounds) + 2)
        self._sources: list[Source] = []
        self._tenants: set[str] = set()
        self.undeclared: set[str] = set()

    def counter(self, name: str) -> Counter:
        """The counter of that name, to be kept by whoever counts; ``KeyError`` if there is none."""
        return self._counters[name]

    def histogram(self, name: str) -> Histogram:
        """The histogram of that name; ``KeyError`` if there is none."""
        return self._histograms[name]

    def add_source(self, source: Source) -> None:
        """Ask ``source`` for samples at each scrape."""
        self._sources.append(source)

    def add_histogram_source(self, name: str, read: Callable[[], tuple[Iterable[float], float]]) -> None:
        """Ask at each scrape for a histogram without labels that is counted elsewhere.

        Args:
            name: In the catalog; ``KeyError`` if there is none.
            read: Gives the count of each bucket with the one above the last bound, and the sum of all values.
        """
        self._read_histograms.append((self._histograms[name], read))

    def tenant(self, name: str) -> str:
        """The label value of a tenant: its name, or ``other`` once there are too many."""
        if name in self._tenants:
            return name
        if len(self._tenants) < MOST_LABEL_VALUES:
            self._tenants.add(name)
            return name
        return OTHER

    def describe(self) -> list[Metric]:
        """Nothing: names are checked by the catalog's own test, and a scrape at registration is not wanted."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One family for each metric of the catalog, empty ones too, in its order."""
        given = self._from_sources()
        for histogram, read in self._read_histograms:
            buckets, total = read()
            histogram.series[()] = [*map(float, buckets), total]
        for spec in METRICS:
            samples = given.get(spec.name, [])
            if spec.kind == "histogram":
                yield _histogram_family(spec, self._histograms[spec.name])
            elif spec.kind == "counter":
                told = {sample.labels for sample in samples}
                values = list(self._counters[spec.name].values.items())
                counted = [(labels, value) for labels, value in values if labels not in told]
                yield _family(
                    CounterMetricFamily(PREFIX + spec.name, spec.help, labels=spec.labels), counted, samples
                )
            else:
                yield _family(GaugeMetricFamily(PREFIX + spec.name, spec.help, labels=spec.labels), [], samples)

    def _from_sources(self) -> dict[str, list[Sample]]:
        given: dict[str, list[Sample]] = {}
        for source in self._sources:
            for sample in source():
                if sample.name in BY_NAME:
                    given.setdefault(sample.name, []).append(sample)
                else:
                    self.undeclared.add(sample.name)
        return given


def _family(
    family: CounterMetricFamily | GaugeMetricFamily,
    counted: Iterable[tuple[Labels, float]],
    samples: Iterable[Sample],
) -> Metric:
    for labels, value in counted:
        family.add_metric(labels, value)
    for sample in samples:
        family.add_metric(sample.labels, sample.value)
    return family


def _histogram_family(spec: MetricSpec, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(PREFIX + spec.name, spec.help, labels=spec.labels)
    for labels, series in list(histogram.series.items()):
        below = 0.0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*spec.bounds, float("inf")), series[:-1], strict=True):
            below += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), below))
        family.add_metric(labels, buckets, series[-1])
    return family
