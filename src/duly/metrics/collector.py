"""Turns what was observed into metrics for Prometheus, by prometheus-client.

What begins with `duly_worker_` is about this process; all else is about the database, the same from wherever it is
read. The names are listed in `docs/howto/monitor.md`.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from duly.__about__ import __version__
from duly.domain.errors import ConfigurationError, DulyError
from duly.metrics.counters import Counters
from duly.metrics.figures import LATENESS, Figures
from duly.metrics.names import Labels, Names
from duly.metrics.observe import Observation, observer_of
from duly.store.ops_observe import PRIORITIES, WAITS_US, Key, Ran
from duly.store.store import Store

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = logging.getLogger("duly.metrics")

HINT = "metrics need prometheus-client. Run: pip install 'duly[metrics]'"
LANE = ("queue", "task", "tenant")
OUTCOMES = ("succeeded", "failed", "cancelled", "crashed", "other")


class App(Protocol):
    """What is needed of a `Duly`."""

    @property
    def store(self) -> Store:
        """Its database."""
        ...


class Collector:
    """Collects metrics of one database, and of one worker if given. Can be registered with any prometheus registry."""

    def __init__(
        self, store: Store, *, tenants: int = 20, figures: Callable[[], Figures] | None = None, database: bool = True
    ) -> None:
        _import()
        self._observer = observer_of(store)
        self._counters = Counters(store)
        self._names = Names(tenants)
        self._figures = figures
        self._database = database
        self._handled: Observation | None = None
        self._dialect = str(store.dialect)
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Begin to count. Else that is at the first scrape."""
        if self._database:
            with self._lock:
                self._take(fresh=True)

    def describe(self) -> list[Metric]:
        """Nothing that must be asked of the database: a registry calls this when the collector is registered."""
        return []

    def collect(self, *, fresh: bool = False) -> Iterator[Metric]:
        """Every metric, as of some seconds ago; with `fresh`, as of now."""
        metrics: list[Metric] = []
        if self._database:
            metrics += self._of_database(fresh=fresh)
        if self._figures is not None:
            metrics += _of_worker(self._figures())
        yield from metrics

    def _of_database(self, *, fresh: bool) -> list[Metric]:
        """In an outage only that there is one: whoever scrapes a worker still gets the worker's own."""
        text = "Whether the database answers."
        with self._lock:
            try:
                seen = self._take(fresh=fresh)
            except DulyError as error:
                log.warning("cannot look at the database: %s", error)
                return [_gauge("duly_database_up", text, 0)]
            found = _of_database(seen, self._names, self._counters.totals, self._dialect)
            return [_gauge("duly_database_up", text, 1), *found]

    def _take(self, *, fresh: bool) -> Observation:
        seen = self._observer.observe(fresh=fresh)
        if seen is not self._handled:
            self._counters.forget(self._names.choose(_activity(seen)))
            self._counters.update(seen.ran, seen.standing.now, self._names)
            self._handled = seen
        return seen

    def render(self, accept: str = "", *, fresh: bool = False) -> tuple[str, bytes]:
        """The metrics as text, in the format that whoever asks accepts, and its content type."""
        _import()
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Once(list(self.collect(fresh=fresh))))
        encode, content_type = choose_encoder(accept)
        return content_type, encode(registry)


class _Once:
    """Metrics that were collected already."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        return self._metrics


_collectors: WeakKeyDictionary[Store, Collector] = WeakKeyDictionary()
_making = threading.Lock()


def collector_of(app: App) -> Collector:
    """The collector of an application in this process, for an endpoint or a registry of your own."""
    with _making:
        collector = _collectors.get(app.store)
        if collector is None:
            tenants = getattr(getattr(app, "settings", None), "metrics_tenants", 20)
            collector = _collectors[app.store] = Collector(app.store, tenants=tenants)
        return collector


def render(app: App, accept: str = "") -> tuple[str, bytes]:
    """The metrics of an application's database: content type and body. `accept`: what the request's header says."""
    return collector_of(app).render(accept)


def _import() -> None:
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(HINT) from error


# -- what the database shows ------------------------------------------------------------------------------------------


def _activity(seen: Observation) -> dict[Key, int]:
    """How active each lane is: what stands in it and what ran in it of late."""
    activity: dict[Key, int] = defaultdict(int)
    for key, waiting in seen.standing.waiting.items():
        activity[key] += waiting.jobs
    for groups in (seen.standing.running, seen.standing.overdue):
        for key, group in groups.items():
            activity[key] += group.jobs
    for key, n in seen.standing.scheduled.items():
        activity[key] += n
    for key, ran in seen.ran.items():
        activity[key] += ran.runs
    return activity


def _of_database(seen: Observation, names: Names, totals: dict[Labels, Ran], dialect: str) -> Iterator[Metric]:
    from prometheus_client.core import InfoMetricFamily

    yield InfoMetricFamily("duly", "What this is.", {"version": __version__, "database": dialect})
    yield from _standing(seen, names)
    yield from _recently(seen, names)
    yield from _totals(totals)
    yield _gauge("duly_workers", "Workers that live.", len(seen.workers))
    yield _gauge("duly_slots", "Slots of the workers that live.", sum(worker.slots for worker in seen.workers))
    yield _gauges("duly_alerts_active", "Alerts that are active.", ("rule",), {(k,): v for k, v in seen.alerts.items()})
    yield _gauge("duly_observation_age_seconds", "How old these figures of the database are.", seen.age)
    yield _gauge("duly_observation_seconds", "How long it took to get them.", seen.took)


def _standing(seen: Observation, names: Names) -> Iterator[Metric]:
    standing, now = seen.standing, seen.standing.now
    waiting, scheduled, running = (_Sums(names) for _ in range(3))
    oldest, longest, late = (_Sums(names, biggest=True) for _ in range(3))
    due = _Sums(names)
    priorities: dict[tuple[str, ...], float] = defaultdict(float)
    for sums in (waiting, scheduled, running, oldest):  # what is empty is shown as 0, not left out
        sums.values = dict.fromkeys(names.lanes, 0.0)
    for key, lane in standing.waiting.items():
        waiting.add(key, lane.jobs)
        oldest.add(key, (now - lane.oldest_at) / 1e6)
        for word, n in zip(PRIORITIES, lane.by_priority, strict=True):
            priorities[names.of(key).queue, word] += n
        if lane.oldest_recurring_at is not None:
            late.add(key, (now - lane.oldest_recurring_at) / 1e6)
            due.add(key, lane.recurring)
    for key, group in standing.overdue.items():
        late.add(key, (now - group.since) / 1e6)
        due.add(key, group.jobs)
    for key, n in standing.scheduled.items():
        scheduled.add(key, n)
    for key, group in standing.running.items():
        running.add(key, group.jobs)
        longest.add(key, (now - group.since) / 1e6)
    yield _gauges("duly_jobs_waiting", "Jobs that are due and wait for a worker.", LANE, waiting.values)
    yield _gauges("duly_jobs_scheduled", "Jobs whose time has not come.", LANE, scheduled.values)
    yield _gauges("duly_jobs_running", "Jobs that workers hold.", LANE, running.values)
    parked: dict[tuple[str, ...], float] = {(reason,): n for reason, n in standing.parked.items()}
    yield _gauges("duly_jobs_parked", "Jobs that are set aside.", ("reason",), parked)
    text = "Jobs that wait, by priority."
    yield _gauges("duly_jobs_waiting_by_priority", text, ("queue", "priority"), dict(priorities))
    text = "How long the job that waits longest has been due."
    yield _gauges("duly_oldest_waiting_seconds", text, LANE, oldest.values)
    text = "For how long the job that runs longest has been running."
    yield _gauges("duly_longest_running_seconds", text, LANE, longest.values)
    text = "How late the latest recurring job is that should run and does not."
    yield _gauges("duly_schedule_lateness_seconds", text, LANE, late.values)
    yield _gauges("duly_schedules_due", "Recurring jobs that should run and do not yet.", LANE, due.values)


def _recently(seen: Observation, names: Names) -> Iterator[Metric]:
    together: dict[Labels, Ran] = defaultdict(Ran)
    for key, ran in seen.ran.items():
        together[names.of(key)] = together[names.of(key)].plus(ran)
    for name, text, of in (
        ("duly_failed_ratio", "Which part of the runs of the last 15 minutes failed or crashed.", _failed),
        ("duly_recovered_ratio", "Which part of their successes needed more than one attempt.", _recovered),
        ("duly_wait_average_seconds", "How long they waited for a worker on average.", _average),
        ("duly_wait_p99_seconds", "How long 99 % of them waited at most.", _p99),
    ):
        yield _gauges(name, text, LANE, {labels: of(ran) for labels, ran in together.items() if ran.runs})


def _failed(ran: Ran) -> float:
    return ran.failed_ratio


def _recovered(ran: Ran) -> float:
    return ran.recovered / ran.succeeded if ran.succeeded else 0.0


def _average(ran: Ran) -> float:
    return ran.average_wait


def _p99(ran: Ran) -> float:
    return ran.wait_quantile(0.99)


def _totals(totals: dict[Labels, Ran]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    runs = CounterMetricFamily("duly_runs", "Runs that ended.", labels=[*LANE, "outcome"])
    retried = CounterMetricFamily("duly_runs_retried", "Runs that failed or crashed and come again.", labels=LANE)
    recovered = CounterMetricFamily("duly_runs_recovered", "Runs that succeeded after a retry.", labels=LANE)
    spent = CounterMetricFamily("duly_run_seconds", "How long runs took, together.", labels=LANE)
    waits = HistogramMetricFamily("duly_wait_seconds", "How long runs waited for a worker.", labels=LANE)
    for labels, ran in totals.items():
        known = (ran.succeeded, ran.failed, ran.cancelled, ran.crashed)
        for outcome, n in zip(OUTCOMES, (*known, ran.runs - sum(known)), strict=True):
            runs.add_metric([*labels, outcome], n)
        retried.add_metric(labels, ran.retried)
        recovered.add_metric(labels, ran.recovered)
        spent.add_metric(labels, ran.ran_us / 1e6)
        waits.add_metric(labels, _buckets([us / 1e6 for us in WAITS_US], ran.waits), ran.waited_us / 1e6)
    yield from (runs, retried, recovered, spent, waits)


# -- what a worker shows ----------------------------------------------------------------------------------------------


def _of_worker(figures: Figures) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    slots: dict[tuple[str, ...], float] = {(kind,): n for kind, n in figures.slots.items()}
    yield _gauges("duly_worker_slots", "Slots of this worker.", ("kind",), slots)
    yield _gauge("duly_worker_busy", "Jobs that this worker holds.", figures.busy)
    yield _gauge("duly_worker_draining", "Whether this worker stops.", figures.state == "draining")
    for name, text, n in (
        ("duly_worker_claimed", "Jobs that this worker claimed.", figures.claimed),
        ("duly_worker_settled", "Runs whose end this worker recorded.", figures.settled),
        ("duly_worker_refused", "Ends of runs that were refused: the lease had been lost.", figures.refused),
        ("duly_worker_rescued", "Runs of other workers, gone, that this one rescued.", figures.rescued),
        ("duly_worker_database_calls", "Statements that this process sent to the database.", figures.calls),
    ):
        yield CounterMetricFamily(name, text, value=n)
    late = HistogramMetricFamily("duly_worker_schedule_lateness_seconds", "How late recurring jobs started here.")
    counts, together = figures.lateness
    late.add_metric([], _buckets(LATENESS, counts), together)
    yield late


# -- the shapes -------------------------------------------------------------------------------------------------------


class _Sums:
    """Values by the names that lanes are shown by: added up, or the biggest of each."""

    def __init__(self, names: Names, *, biggest: bool = False) -> None:
        self._names = names
        self._biggest = biggest
        self.values: dict[tuple[str, ...], float] = {}

    def add(self, key: Key, value: float) -> None:
        labels = self._names.of(key)
        before = self.values.get(labels, 0.0)
        self.values[labels] = max(before, value) if self._biggest else before + value


def _gauge(name: str, text: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value=value)


def _gauges(name: str, text: str, labels: tuple[str, ...], values: dict[tuple[str, ...], float]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _buckets(ends: list[float] | tuple[float, ...], counts: list[int] | tuple[int, ...]) -> list[tuple[str, int]]:
    """Counts by bucket as Prometheus wants them: each with all below it, and the end of each as text."""
    words = [*(str(float(end)) for end in ends), "+Inf"]
    return list(zip(words, accumulate(counts), strict=True))
