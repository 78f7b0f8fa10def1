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
from coalloc.core.base.effects import AppendEvent, Effect, RoundFinished, Solve
from coalloc.core.base.events import CoreEvent, Solved, SolveFailed
from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.core.learning.accuracy import ALL
from coalloc.daemon.figures import ClusterFigures, Survey
from coalloc.daemon.metric_families import (
    MOVES,
    ClusterMetrics,
    JobMetrics,
    RoundMetrics,
    RuleMetrics,
    SolverMetrics,
    StartMetrics,
    StoreMetrics,
)
from coalloc.model.event_kinds import EventKind
from coalloc.wire.rule_rows import RuleCostsRow

BOUND_S = 10.0
"""Shorter run times count as this in a slowdown, so that one of a second says little; seconds."""


class Metrics:
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
        self.rounds = RoundMetrics(registry)
        self.rules = RuleMetrics(registry)
        self.solver = SolverMetrics(registry)
        self.jobs = JobMetrics(registry)
        self.starts = StartMetrics(registry)
        self.clusters = ClusterMetrics(registry)
        self.store = StoreMetrics(registry)
        self.surveyed_at = prometheus.Gauge(
            "coalloc_survey_timestamp_seconds",
            "When clusters, queue and disk were looked at last, seconds since 1970.",
            registry=registry,
        )
        self.notifications = prometheus.Counter(
            "coalloc_notifications",
            "Notifications sent, failed or dropped.",
            ["outcome"],
            registry=registry,
        )
        for outcome in ("sent", "failed", "dropped"):
            self.notifications.labels(outcome)

    def recorded(self, event: AppendEvent, record: JobRecord | None = None) -> None:
        """Count an event of the stream, and of which job it is."""
        self.jobs.idle_node_s.inc(event.fields.get("idle_node_s", 0.0))
        if event.kind in MOVES:
            self.jobs.moves.labels(MOVES[event.kind]).inc()
        is_whole = record is not None and not record.flow
        if event.kind is EventKind.JOB_STARTED:
            self.jobs.started.inc()
            if is_whole and record is not None and record.started is not None:
                self.jobs.wait_s.observe(max(0.0, record.started - record.submitted))
            skew_ms = event.fields.get("skew_ms")
            if skew_ms is not None:
                self.jobs.coallocated.inc()
                self.starts.skew_s.observe(skew_ms / 1e3)
        elif event.kind is EventKind.JOB_ENDED and is_whole and record is not None:
            self.jobs.ended.labels(str(event.fields.get("state", record.state))).inc()
            if record.started is not None and record.ended is not None:
                run_s = max(BOUND_S, record.ended - record.started)
                self.jobs.slowdown.observe(max(1.0, (record.ended - record.submitted) / run_s))

    def handled(
        self, event: CoreEvent, effects: Sequence[Effect], spent_s: float, *, failed: bool
    ) -> None:
        """Count what one event meant for a round.

        Parameters
        ----------
        effects : sequence of Effect
            Those of this event.
        spent_s : float
            In the core, seconds.
        failed : bool
            No round is being solved after it.
        """
        if isinstance(event, Solved):
            self.rounds.phase_s.labels("solve").observe(event.solve_s)
            self.rounds.phase_s.labels("commit").observe(spent_s)
        elif isinstance(event, SolveFailed):
            self.rounds.policy_failures.labels(event.policy).inc()
            if failed:
                self.rounds.failed.inc()
        elif any(isinstance(effect, Solve) for effect in effects):
            self.rounds.phase_s.labels("assemble").observe(spent_s)

    def round_finished(self, effect: RoundFinished, now: float) -> None:
        """Count a round."""
        self.rounds.finished.labels(effect.policy, effect.status).inc()
        self.rounds.solve_s.labels(effect.policy).observe(effect.solve_s)
        self.rounds.gap.set(float("nan") if effect.gap is None else effect.gap)
        self.clusters.stale.set(effect.stale)
        self.rounds.ended_at.set(now)

    def costed(self, found: RuleCostsRow) -> None:
        """Take over what the rules cost in a round."""
        none = float("nan")
        for metric in (self.rules.cost, self.rules.cost_limit, self.rules.held):
            metric.clear()
        for rule, row in found.rules.items():
            self.rules.cost.labels(rule).set(none if row.cost is None else row.cost)
            self.rules.cost_limit.labels(rule).set(none if row.at_most is None else row.at_most)
            self.rules.held.labels(rule).set(none if row.held is None else row.held)
        self.rules.begun_at.set(found.time)

    def sample(
        self, state: State, orders_waiting: Mapping[str, int], faults: Mapping[str, int]
    ) -> None:
        """Take over what is counted elsewhere.

        Parameters
        ----------
        faults : mapping of reason to number
            Since the start of the daemon.
        """
        self.jobs.active.labels("waiting").set(len(state.waiting))
        self.jobs.active.labels("placed").set(len(state.placed))
        for name, there in state.clusters.items():
            share = None if there.reading is None else there.reading.share
            if share is not None:
                self.clusters.share_kept.labels(name).set(share.kept)
                self.clusters.local_delay.labels(name).set(share.delay_s)
        for cluster, count in orders_waiting.items():
            self.clusters.outbox.labels(cluster).set(count)
        self._catch_up("dropped", self.clusters.dropped, faults)

    def survey(self, found: Survey) -> None:
        """Take over what was looked at just now."""
        for reason in self._reasons - found.waiting.keys():
            self.jobs.waiting.labels(reason).set(0)
        for reason, count in found.waiting.items():
            self.jobs.waiting.labels(reason).set(count)
        self._reasons |= found.waiting.keys()
        for name in self._clusters - found.clusters.keys():
            for metric in self.clusters.of.values():
                metric.remove(name)
        self._clusters = set(found.clusters)
        for name, cluster in found.clusters.items():
            self._set_cluster(name, cluster)
        self.clusters.stale.set(sum(not cluster.up for cluster in found.clusters.values()))
        self.solver.warm.set(found.solver_warm)
        self.store.writable.set(found.writable)
        self.store.bytes.set(found.store_bytes)
        if found.disk is not None:
            self.store.disk_size.set(found.disk[0])
            self.store.disk_free.set(found.disk[1])
        self._catch_up("solver", self.solver.requests, found.solver_requests)
        self._catch_up("notified", self.notifications, found.notifications)
        for row in found.starts:
            if row.lead == ALL:
                none = float("nan")
                self.starts.held.labels(row.kind).set(none if row.held is None else row.held)
                self.starts.interval_s.labels(row.kind).set(
                    none if row.width_s is None else row.width_s
                )
                self.starts.error_s.labels(row.kind).set(row.error_s)
        self.surveyed_at.set(found.time)

    def _set_cluster(self, name: str, cluster: ClusterFigures) -> None:
        values = cluster.values()
        for field, metric in self.clusters.of.items():
            value = values[field]
            metric.labels(name).set(float("nan") if value is None else value)

    def _catch_up(self, kind: str, metric: prometheus.Counter, counts: Mapping[str, int]) -> None:
        """Raise a counter to what was counted elsewhere since the start."""
        for label, count in counts.items():
            metric.labels(label).inc(count - self._counted[kind, label])
            self._counted[kind, label] = count

    def serve(self, address: str) -> int:
        """Answer Prometheus from a thread.

        Parameters
        ----------
        address : str
            ``host:port``; port 0 takes a free one.

        Returns
        -------
        int
            The port.

        Raises
        ------
        OSError
            The address is taken, or not of this machine.
        """
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
