"""Figures for Prometheus; off unless ``metrics_address`` is set.

They are kept in the daemon's loop and only read by a scrape, which costs the same with one job as
with a million. What has to be counted over clusters, nodes or waiting jobs is taken by `survey`,
every few seconds.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import Any, NamedTuple

import prometheus_client as prometheus

import coalloc
from coalloc.core.base.accuracy import ALL
from coalloc.core.base.effects import AppendEvent, Effect, RoundFinished, Solve
from coalloc.core.base.events import CoreEvent, Solved, SolveFailed
from coalloc.core.base.records import ENDED, JobRecord
from coalloc.core.base.state import State
from coalloc.daemon.monitoring.figures import ClusterFigures, Survey
from coalloc.model.event_kinds import EventKind
from coalloc.model.formats.words import field_words
from coalloc.wire.answers import RuleCostsRow

BOUND_S = 10.0
"""Shorter run times count as this in a slowdown, so that one of a second says little; seconds."""


class Family(NamedTuple):
    """A metric without its name."""

    help: str
    labels: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    """Values of its only label that are served before they move."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, in the metric's unit."""


STATUSES = ("done", "killed", "crashed", "error")
"""Ends of a request to the solver's processes, see `daemon.solver.pool`."""

OF_CLUSTER = field_words(ClusterFigures)

GAUGES = {
    "coalloc_survey_timestamp_seconds": Family(
        "When clusters, queue and disk were looked at last, seconds since 1970."
    ),
    "coalloc_plan_gap_ratio": Family("(objective - bound) / bound, NaN: none."),
    "coalloc_round_timestamp_seconds": Family("When a round ended last, seconds since 1970."),
    "coalloc_rule_cost_weighted_seconds": Family(
        "Weight times completion that a rule costs the plan; NaN: not computed.", ("rule",)
    ),
    "coalloc_rule_cost_bound_weighted_seconds": Family(
        "The most that a rule can cost; NaN: not known.", ("rule",)
    ),
    "coalloc_rule_jobs_held": Family("Jobs that only a plan without the rule places.", ("rule",)),
    "coalloc_rule_costs_timestamp_seconds": Family(
        "Begin of the round that these are of, seconds since 1970; 0: none yet."
    ),
    "coalloc_solver_warm": Family("All its code is compiled, 1 or 0."),
    "coalloc_jobs": Family("Active jobs.", ("state",)),
    "coalloc_jobs_waiting": Family("Waiting jobs.", ("reason",)),
    "coalloc_start_interval_held_ratio": Family(
        "Starts in their 90 % interval, of the newest; NaN: none had one.", ("promise",)
    ),
    "coalloc_start_interval_seconds": Family("Median width of these intervals.", ("promise",)),
    "coalloc_start_error_seconds": Family(
        "Median distance of these starts from the expected ones.", ("promise",)
    ),
    "coalloc_clusters_stale": Family("Clusters not read."),
    **{
        f"coalloc_cluster_{field}": Family(text, ("cluster",)) for field, text in OF_CLUSTER.items()
    },
    "coalloc_share_nodes_kept": Family("Nodes kept from local jobs.", ("cluster",)),
    "coalloc_local_delay_seconds": Family(
        "Longest that a local job that waits was delayed by kept nodes.", ("cluster",)
    ),
    "coalloc_outbox_messages": Family("Orders not acknowledged.", ("cluster",)),
    "coalloc_store_writable": Family("The store takes writes, 1 or 0."),
    "coalloc_store_bytes": Family("Size of the store's files."),
    "coalloc_disk_free_bytes": Family("Free on the store's disk."),
    "coalloc_disk_size_bytes": Family("Size of the store's disk."),
}

COUNTERS = {
    "coalloc_notifications": Family(
        "Notifications sent, failed or dropped.", ("outcome",), ("sent", "failed", "dropped")
    ),
    "coalloc_rounds": Family("Rounds finished.", ("policy", "status")),
    "coalloc_rounds_failed": Family("Rounds that ended without a plan."),
    "coalloc_policy_failures": Family("Solves without a usable plan.", ("policy",)),
    "coalloc_solver_requests": Family("Requests to the solver's processes.", ("status",), STATUSES),
    "coalloc_jobs_started": Family("Jobs started."),
    "coalloc_jobs_coallocated": Family("Jobs started on several clusters."),
    "coalloc_jobs_ended": Family("Jobs ended, without tasks.", ("state",), tuple(map(str, ENDED))),
    "coalloc_idle_node_seconds": Family("Held by parts of jobs before their start, or in vain."),
    "coalloc_messages_dropped": Family("Messages refused or not delivered.", ("reason",)),
}

HISTOGRAMS = {
    "coalloc_solve_seconds": Family(
        "Time to solve a round.",
        ("policy",),
        buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
    ),
    "coalloc_round_phase_seconds": Family(
        "Time of a round's phase: assemble, solve or commit.",
        ("phase",),
        buckets=(0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
    ),
    "coalloc_job_wait_seconds": Family(
        "From submission to first start.",
        buckets=(1, 10, 60, 300, 900, 3600, 10_800, 21_600, 43_200, 86_400, 259_200, 604_800),
    ),
    "coalloc_job_slowdown": Family(
        "Wait and run time by run time, which counts as 10 s at least.",
        buckets=(1.0, 1.5, 2, 3, 5, 10, 30, 100, 300, 1000),
    ),
    "coalloc_start_skew_seconds": Family(
        "Between the first processes of a job's parts.",
        buckets=(0.0001, 0.0003, 0.001, 0.002, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    ),
    "coalloc_store_commit_seconds": Family(
        "A commit.", buckets=(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    ),
}


class DaemonMetrics:
    """The daemon's figures, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = prometheus.CollectorRegistry()
        self._server: tuple[Any, Thread] | None = None
        self._counted: Counter[tuple[str, str]] = Counter()
        self._reasons: set[str] = set()
        self._clusters: set[str] = set()
        prometheus.ProcessCollector(registry=registry)
        build = prometheus.Info("coalloc_build", "This daemon.", registry=registry)
        build.info({"version": coalloc.__version__, "python": platform.python_version()})
        self.gauge = {
            name: prometheus.Gauge(name, family.help, family.labels, registry=registry)
            for name, family in GAUGES.items()
        }
        self.counter = {
            name: prometheus.Counter(name, family.help, family.labels, registry=registry)
            for name, family in COUNTERS.items()
        }
        self.histogram = {
            name: prometheus.Histogram(
                name, family.help, family.labels, registry=registry, buckets=family.buckets
            )
            for name, family in HISTOGRAMS.items()
        }
        for name, family in COUNTERS.items():
            for value in family.known:
                self.counter[name].labels(value)

    def recorded(self, event: AppendEvent, record: JobRecord | None = None) -> None:
        self.counter["coalloc_idle_node_seconds"].inc(event.fields.get("idle_node_s", 0.0))
        is_whole = record is not None and not record.flow
        if event.kind is EventKind.JOB_STARTED:
            self.counter["coalloc_jobs_started"].inc()
            if is_whole and record is not None and record.started is not None:
                self.histogram["coalloc_job_wait_seconds"].observe(
                    max(0.0, record.started - record.submitted - record.clock_set_s)
                )
            skew_ms = event.fields.get("skew_ms")
            if skew_ms is not None:
                self.counter["coalloc_jobs_coallocated"].inc()
                self.histogram["coalloc_start_skew_seconds"].observe(skew_ms / 1e3)
        elif event.kind is EventKind.JOB_ENDED and is_whole and record is not None:
            self.counter["coalloc_jobs_ended"].labels(
                str(event.fields.get("state", record.state))
            ).inc()
            if record.started is not None and record.ended is not None:
                run_s = max(BOUND_S, record.ended - record.started)
                self.histogram["coalloc_job_slowdown"].observe(
                    max(1.0, (record.ended - record.submitted) / run_s)
                )

    def handled(
        self, event: CoreEvent, effects: Sequence[Effect], spent_s: float, *, failed: bool
    ) -> None:
        """Count what an event meant for a round; `failed`: none is being solved after it."""
        if isinstance(event, Solved):
            self.histogram["coalloc_round_phase_seconds"].labels("solve").observe(event.solve_s)
            self.histogram["coalloc_round_phase_seconds"].labels("commit").observe(spent_s)
        elif isinstance(event, SolveFailed):
            self.counter["coalloc_policy_failures"].labels(event.policy).inc()
            if failed:
                self.counter["coalloc_rounds_failed"].inc()
        elif any(isinstance(effect, Solve) for effect in effects):
            self.histogram["coalloc_round_phase_seconds"].labels("assemble").observe(spent_s)

    def round_finished(self, effect: RoundFinished, now: float) -> None:
        self.counter["coalloc_rounds"].labels(effect.policy, effect.status).inc()
        self.histogram["coalloc_solve_seconds"].labels(effect.policy).observe(effect.solve_s)
        self.gauge["coalloc_plan_gap_ratio"].set(or_nan(effect.gap))
        self.gauge["coalloc_clusters_stale"].set(effect.stale)
        self.gauge["coalloc_round_timestamp_seconds"].set(now)

    def costed(self, found: RuleCostsRow) -> None:
        cost = self.gauge["coalloc_rule_cost_weighted_seconds"]
        cost_limit = self.gauge["coalloc_rule_cost_bound_weighted_seconds"]
        held = self.gauge["coalloc_rule_jobs_held"]
        for metric in (cost, cost_limit, held):
            metric.clear()
        for rule, row in found.rules.items():
            cost.labels(rule).set(or_nan(row.cost))
            cost_limit.labels(rule).set(or_nan(row.at_most))
            held.labels(rule).set(or_nan(row.held))
        self.gauge["coalloc_rule_costs_timestamp_seconds"].set(found.time)

    def sample(
        self, state: State, orders_waiting: Mapping[str, int], faults: Mapping[str, int]
    ) -> None:
        """Take over what is counted elsewhere; `faults` since the daemon's start, by reason."""
        self.gauge["coalloc_jobs"].labels("waiting").set(len(state.waiting))
        self.gauge["coalloc_jobs"].labels("placed").set(len(state.placed))
        for name, there in state.clusters.items():
            share = None if there.reading is None else there.reading.share
            if share is not None:
                self.gauge["coalloc_share_nodes_kept"].labels(name).set(share.kept)
                self.gauge["coalloc_local_delay_seconds"].labels(name).set(share.delay_s)
        for cluster, count in orders_waiting.items():
            self.gauge["coalloc_outbox_messages"].labels(cluster).set(count)
        self._catch_up("coalloc_messages_dropped", faults)

    def survey(self, found: Survey) -> None:
        for reason in self._reasons - found.waiting.keys():
            self.gauge["coalloc_jobs_waiting"].labels(reason).set(0)
        for reason, count in found.waiting.items():
            self.gauge["coalloc_jobs_waiting"].labels(reason).set(count)
        self._reasons |= found.waiting.keys()
        for name in self._clusters - found.clusters.keys():
            for field in OF_CLUSTER:
                self.gauge[f"coalloc_cluster_{field}"].remove(name)
        self._clusters = set(found.clusters)
        for name, cluster in found.clusters.items():
            for field in OF_CLUSTER:
                gauge = self.gauge[f"coalloc_cluster_{field}"].labels(name)
                gauge.set(or_nan(getattr(cluster, field)))
        self.gauge["coalloc_clusters_stale"].set(
            sum(not cluster.up for cluster in found.clusters.values())
        )
        self.gauge["coalloc_solver_warm"].set(found.solver_warm)
        self.gauge["coalloc_store_writable"].set(found.writable)
        self.gauge["coalloc_store_bytes"].set(found.store_bytes)
        if found.disk is not None:
            self.gauge["coalloc_disk_size_bytes"].set(found.disk[0])
            self.gauge["coalloc_disk_free_bytes"].set(found.disk[1])
        self._catch_up("coalloc_solver_requests", found.solver_requests)
        self._catch_up("coalloc_notifications", found.notifications)
        for row in found.starts:
            if row.lead != ALL:
                continue
            for name, value in (
                ("coalloc_start_interval_held_ratio", row.held),
                ("coalloc_start_interval_seconds", row.width_s),
                ("coalloc_start_error_seconds", row.error_s),
            ):
                self.gauge[name].labels(row.kind).set(or_nan(value))
        self.gauge["coalloc_survey_timestamp_seconds"].set(found.time)

    def _catch_up(self, name: str, counts: Mapping[str, int]) -> None:
        """Raise a counter to what was counted elsewhere since the start."""
        for label, count in counts.items():
            self.counter[name].labels(label).inc(count - self._counted[name, label])
            self._counted[name, label] = count

    def serve(self, address: str) -> int:
        """Answer Prometheus from a thread at ``host:port``; returns the port, a free one for 0."""
        host, _, port = address.rpartition(":")
        server, thread = prometheus.start_http_server(
            int(port), addr=host.strip("[]") or "127.0.0.1", registry=self.registry
        )
        self._server = (server, thread)
        return int(server.server_port)

    def close(self) -> None:
        """Stop answering; again is harmless."""
        if self._server:
            server, thread = self._server
            self._server = None
            server.shutdown()
            server.server_close()
            thread.join()


def or_nan(value: float | None) -> float:
    """The value, or NaN where there is none: a gauge has no other word for it."""
    return float("nan") if value is None else value
