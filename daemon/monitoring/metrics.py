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
from typing import Any

import prometheus_client as prometheus

import coalloc
from coalloc.core.base.accuracy import ALL
from coalloc.core.base.effects import AppendEvent, Effect, RoundFinished, Solve
from coalloc.core.base.events import CoreEvent, Solved, SolveFailed
from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.daemon.monitoring.figures import Survey
from coalloc.daemon.monitoring.metric_families import COUNTERS, GAUGES, HISTOGRAMS, OF_CLUSTER
from coalloc.model.event_kinds import EventKind
from coalloc.wire.answers import RuleCostsRow

BOUND_S = 10.0
"""Shorter run times count as this in a slowdown, so that one of a second says little; seconds."""


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
        """Count an event of the stream, and of which job it is."""
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
        """Count a round."""
        self.counter["coalloc_rounds"].labels(effect.policy, effect.status).inc()
        self.histogram["coalloc_solve_seconds"].labels(effect.policy).observe(effect.solve_s)
        self.gauge["coalloc_plan_gap_ratio"].set(or_nan(effect.gap))
        self.gauge["coalloc_clusters_stale"].set(effect.stale)
        self.gauge["coalloc_round_timestamp_seconds"].set(now)

    def costed(self, found: RuleCostsRow) -> None:
        """Take over what the rules cost in a round."""
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
        """Take over what was looked at just now."""
        for reason in self._reasons - found.waiting.keys():
            self.gauge["coalloc_jobs_waiting"].labels(reason).set(0)
        for reason, count in found.waiting.items():
            self.gauge["coalloc_jobs_waiting"].labels(reason).set(count)
        self._reasons |= found.waiting.keys()
        for name in self._clusters - found.clusters.keys():
            for metric, _ in OF_CLUSTER.values():
                self.gauge[metric].remove(name)
        self._clusters = set(found.clusters)
        for name, cluster in found.clusters.items():
            for field, (metric, _) in OF_CLUSTER.items():
                self.gauge[metric].labels(name).set(or_nan(getattr(cluster, field)))
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
