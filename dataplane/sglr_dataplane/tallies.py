"""Counters, histograms and gauges of a process that counts alone.

What is counted is a plain number of the event loop's thread, and becomes a metric when it is asked
for: prometheus_client takes a lock and ten calls each time, and a request is counted twenty times.
What is told is to the byte what that library tells (``tests/dataplane/api/test_tallies.py``).
"""

from __future__ import annotations

import time
from abc import abstractmethod
from bisect import bisect_left
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from prometheus_client import Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from prometheus_client import CollectorRegistry


class Counts(Protocol):
    """What counts events."""

    def inc(self, amount: float = 1) -> None:
        """Count *amount* more."""
        ...


class Times(Protocol):
    """What observes durations."""

    def observe(self, amount: float) -> None:
        """Observe *amount* seconds."""
        ...


class Level(Protocol):
    """What goes up and down."""

    def inc(self, amount: float = 1) -> None:
        """Go up."""
        ...

    def dec(self, amount: float = 1) -> None:
        """Go down."""
        ...


S_co = TypeVar("S_co", covariant=True)


class Family(Protocol[S_co]):
    """Series of one name, told apart by labels."""

    def labels(self, *labelvalues: str) -> S_co:
        """Return the series with these values, in the order of the labels' names; new ones are 0."""
        ...

    def remove(self, *labelvalues: str) -> None:
        """Forget the series with these values, if there is one."""
        ...


class Count:
    """One series of a counter."""

    __slots__ = ("created", "value")

    def __init__(self, created: float) -> None:
        """Begin at zero; *created* is in seconds since 1970."""
        self.created = created
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        """Count *amount* more."""
        self.value += amount


class Spread:
    """One series of a histogram."""

    __slots__ = ("_bounds", "counts", "created", "total")

    def __init__(self, created: float, bounds: Sequence[float]) -> None:
        """Begin empty, with buckets up to each of *bounds*, ascending, and one beyond."""
        self._bounds = bounds
        self.created = created
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, amount: float) -> None:
        """Count *amount* in the first bucket that reaches so far."""
        self.total += amount
        self.counts[bisect_left(self._bounds, amount)] += 1


S = TypeVar("S", Count, Spread)


class _Tallies(Collector, Generic[S]):
    """Series of one name, told apart by labels; never more than their makers' values."""

    kind: str

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Sequence[str],
        *,
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Have no series yet; a counter's *name* ends in ``_total``, *clock* gives seconds since 1970."""
        self._name = name.removesuffix("_total")
        self._documentation = documentation
        self._labelnames = tuple(labelnames)
        self._clock = clock
        self._series: dict[tuple[str, ...], S] = {}
        registry.register(self)

    def labels(self, *labelvalues: str) -> S:
        """Return the series with these values, in the order of the labels' names; new ones are 0."""
        found = self._series.get(labelvalues)
        if found is None:
            if len(labelvalues) != len(self._labelnames):
                raise ValueError(f"{self._name} has the labels {self._labelnames}.")
            found = self._series[labelvalues] = self._new()
        return found

    def remove(self, *labelvalues: str) -> None:
        """Forget the series with these values, if there is one."""
        self._series.pop(labelvalues, None)

    def describe(self) -> Iterable[Metric]:
        """Return the metric without its series."""
        return [Metric(self._name, self._documentation, self.kind)]

    def collect(self) -> Iterable[Metric]:
        """Return the metric; may be called in any thread."""
        metric = Metric(self._name, self._documentation, self.kind)
        for values, series in self._series.copy().items():
            labels = dict(zip(self._labelnames, values, strict=True))
            self._tell(metric, labels, series)
            metric.add_sample(f"{self._name}_created", labels, series.created)
        return [metric]

    @abstractmethod
    def _new(self) -> S: ...

    @abstractmethod
    def _tell(self, metric: Metric, labels: dict[str, str], series: S) -> None: ...


class Counter(_Tallies[Count]):
    """A counter with labels."""

    kind = "counter"

    def _new(self) -> Count:
        return Count(self._clock())

    def _tell(self, metric: Metric, labels: dict[str, str], series: Count) -> None:
        metric.add_sample(f"{self._name}_total", labels, series.value)


class Histogram(_Tallies[Spread]):
    """A histogram with labels."""

    kind = "histogram"

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Sequence[str],
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Have no series yet; *buckets* are the upper bounds below a million, ascending."""
        super().__init__(name, documentation, labelnames, registry=registry, clock=clock)
        self._bounds = tuple(map(float, buckets))
        self._marks = [*map(repr, self._bounds), "+Inf"]

    def _new(self) -> Spread:
        return Spread(self._clock(), self._bounds)

    def _tell(self, metric: Metric, labels: dict[str, str], series: Spread) -> None:
        seen = 0
        for mark, count in zip(self._marks, series.counts, strict=True):
            seen += count
            metric.add_sample(f"{self._name}_bucket", {**labels, "le": mark}, seen)
        metric.add_sample(f"{self._name}_count", labels, seen)
        metric.add_sample(f"{self._name}_sum", labels, series.total)


class Gauge(Collector):
    """A gauge without labels."""

    def __init__(self, name: str, documentation: str, *, registry: CollectorRegistry) -> None:
        """Begin at zero."""
        self._name = name
        self._documentation = documentation
        self.value = 0.0
        registry.register(self)

    def inc(self, amount: float = 1) -> None:
        """Go up."""
        self.value += amount

    def dec(self, amount: float = 1) -> None:
        """Go down."""
        self.value -= amount

    def describe(self) -> Iterable[Metric]:
        """Return the metric without its number."""
        return [Metric(self._name, self._documentation, "gauge")]

    def collect(self) -> Iterable[Metric]:
        """Return the metric; may be called in any thread."""
        metric = Metric(self._name, self._documentation, "gauge")
        metric.add_sample(self._name, {}, self.value)
        return [metric]
