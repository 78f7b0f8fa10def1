"""Figures for Prometheus; off unless ``metrics_address`` is set.

They are kept in the daemon's loop and only read by a scrape, which costs the same with one job as
with a million. What has to be counted over clusters, nodes or waiting jobs is taken by `survey`,
every few seconds.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from threading import Thread
from typing import Any

import prometheus_client as prometheus

import coalloc
from coalloc.core.base.effects import AppendEvent, Effect, RoundFinished, Solve
from coalloc.core.base.events import Event, Solved, SolveFailed
from coalloc.core.base.records import ENDED, JobRecord
from coalloc.core.base.state import State
from coalloc.core.learning.accuracy import ALL
from coalloc.daemon.figures import ClusterFigures, Survey
from coalloc.wire.rule_rows import RuleCostsRow

SOLVE_S = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
PHASE_S = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
SKEW_S = (0.0001, 0.0003, 0.001, 0.002, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
COMMIT_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
WAIT_S = (1, 10, 60, 300, 900, 3600, 10_800, 21_600, 43_200, 86_400, 259_200, 604_800)
SLOWDOWN = (1.0, 1.5, 2, 3, 5, 10, 30, 100, 300, 1000)
BOUND_S = 10.0
"""Shorter run times count as this in a slowdown, so that one of a second says little; seconds."""
STATUSES = ("done", "killed", "crashed", "error")
"""Ends of a request to the solver's processes, see `daemon.solver.pool`."""
MOVES = {"move_ordered": "ordered", "job_moved": "moved", "move_overtaken": "overtaken"}
"""Kind of event, and the step of a late move that it is."""
OF_CLUSTER = {
    "up": ("coalloc_cluster_up", "Its executor is connected and its reading is fresh, 1 or 0."),
    "connected": ("coalloc_cluster_connected", "Its executor is connected, 1 or 0."),
    "read_at": (
        "coalloc_cluster_read_timestamp_seconds",
        "When it was read last, seconds since 1970; 0: never.",
    ),
    "nodes": ("coalloc_cluster_nodes", "Nodes that may get new work."),
    "slots": ("coalloc_cluster_slots", "Slots of the nodes that may get new work."),
    "free": ("coalloc_cluster_slots_free", "Slots that could take a process now."),
    "power": ("coalloc_cluster_power", "Effective power of these slots, as planned with."),
    "link_gbps": ("coalloc_cluster_link_gbps", "Capacity of its link; +Inf: unlimited."),
    "link_used_gbps": ("coalloc_cluster_link_used_gbps", "Booked by the jobs that run."),
    "waiting_there": ("coalloc_cluster_jobs_waiting_there", "In the batch system's own queue."),
    "drained": ("coalloc_cluster_drained", "By an operator, 1 or 0."),
    "clock_ahead_s": (
        "coalloc_cluster_clock_ahead_seconds",
        "Its executor's clock before the daemon's; NaN: not said.",
    ),
}
"""Field of `ClusterFigures`, name of its metric and help text."""


class Metrics:
    """The daemon's figures, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = prometheus.CollectorRegistry()
        self._server: tuple[Any, Thread] | None = None
        self._counted: Counter[tuple[str, str]] = Counter()
        self._reasons: set[str] = set()
        self._clusters: set[str] = set()
        gauge = partial(prometheus.Gauge, registry=registry)
        counter = partial(prometheus.Counter, registry=registry)
        histogram = partial(prometheus.Histogram, registry=registry)
        prometheus.ProcessCollector(registry=registry)
        build = prometheus.Info("coalloc_build", "This daemon.", registry=registry)
        build.info({"version": coalloc.__version__, "python": platform.python_version()})

        self.rounds = counter("coalloc_rounds", "Rounds finished.", ["policy", "status"])
        self.rounds_failed = counter("coalloc_rounds_failed", "Rounds that ended without a plan.")
        self.policy_failures = counter(
            "coalloc_policy_failures", "Solves without a usable plan.", ["policy"]
        )
        self.solve_s = histogram(
            "coalloc_solve_seconds", "Time to solve a round.", ["policy"], buckets=SOLVE_S
        )
        self.phase_s = histogram(
            "coalloc_round_phase_seconds",
            "Time of a round's phase: assemble, solve or commit.",
            ["phase"],
            buckets=PHASE_S,
        )
        self.gap = gauge("coalloc_plan_gap_ratio", "(objective - bound) / bound, NaN: none.")
        self.rule_cost = gauge(
            "coalloc_rule_cost_weighted_seconds",
            "Weight times completion that a rule costs the plan; NaN: not computed.",
            ["rule"],
        )
        self.rule_cost_limit = gauge(
            "coalloc_rule_cost_bound_weighted_seconds",
            "The most that a rule can cost; NaN: not known.",
            ["rule"],
        )
        self.rule_held = gauge(
            "coalloc_rule_jobs_held", "Jobs that only a plan without the rule places.", ["rule"]
        )
        self.rules_at = gauge(
            "coalloc_rule_costs_timestamp_seconds",
            "Begin of the round that these are of, seconds since 1970; 0: none yet.",
        )
        self.round_at = gauge(
            "coalloc_round_timestamp_seconds", "When a round ended last, seconds since 1970."
        )
        self.solver_warm = gauge("coalloc_solver_warm", "All its code is compiled, 1 or 0.")
        self.solver_requests = counter(
            "coalloc_solver_requests", "Requests to the solver's processes.", ["status"]
        )

        self.jobs = gauge("coalloc_jobs", "Active jobs.", ["state"])
        self.waiting = gauge("coalloc_jobs_waiting", "Waiting jobs.", ["reason"])
        self.started = counter("coalloc_jobs_started", "Jobs started.")
        self.coallocated = counter("coalloc_jobs_coallocated", "Jobs started on several clusters.")
        self.ended = counter("coalloc_jobs_ended", "Jobs ended, without tasks.", ["state"])
        self.wait_s = histogram(
            "coalloc_job_wait_seconds", "From submission to first start.", buckets=WAIT_S
        )
        self.slowdown = histogram(
            "coalloc_job_slowdown",
            "Wait and run time by run time, which counts as 10 s at least.",
            buckets=SLOWDOWN,
        )
        self.idle_node_s = counter(
            "coalloc_idle_node_seconds", "Held by parts of jobs before their start, or in vain."
        )
        self.moves = counter(
            "coalloc_moves",
            "Jobs ordered out of a batch system's queue, gone, or granted nodes before.",
            ["step"],
        )
        self.starts_held = gauge(
            "coalloc_start_interval_held_ratio",
            "Starts in their 90 % interval, of the newest; NaN: none had one.",
            ["promise"],
        )
        self.interval_s = gauge(
            "coalloc_start_interval_seconds", "Median width of these intervals.", ["promise"]
        )
        self.start_error_s = gauge(
            "coalloc_start_error_seconds",
            "Median distance of these starts from the expected ones.",
            ["promise"],
        )
        self.skew_s = histogram(
            "coalloc_start_skew_seconds",
            "Between the first processes of a job's parts.",
            buckets=SKEW_S,
        )

        self.stale = gauge("coalloc_clusters_stale", "Clusters not read.")
        self.of_cluster = {
            field: gauge(name, text, ["cluster"]) for field, (name, text) in OF_CLUSTER.items()
        }
        self.share_kept = gauge(
            "coalloc_share_nodes_kept", "Nodes kept from local jobs.", ["cluster"]
        )
        self.local_delay = gauge(
            "coalloc_local_delay_seconds",
            "Delay that kept nodes cause to local jobs, of the last hour.",
            ["cluster", "of"],
        )
        self.outbox = gauge("coalloc_outbox_messages", "Orders not acknowledged.", ["cluster"])
        self.dropped = counter(
            "coalloc_messages_dropped", "Messages refused or not delivered.", ["reason"]
        )

        self.commit_s = histogram("coalloc_store_commit_seconds", "A commit.", buckets=COMMIT_S)
        self.writable = gauge("coalloc_store_writable", "The store takes writes, 1 or 0.")
        self.store_bytes = gauge("coalloc_store_bytes", "Size of the store's files.")
        self.disk_free = gauge("coalloc_disk_free_bytes", "Free on the store's disk.")
        self.disk_size = gauge("coalloc_disk_size_bytes", "Size of the store's disk.")
        self.surveyed_at = gauge(
            "coalloc_survey_timestamp_seconds",
            "When clusters, queue and disk were looked at last, seconds since 1970.",
        )
        self.notifications = counter(
            "coalloc_notifications", "Notifications sent, failed or dropped.", ["outcome"]
        )
        for step in MOVES.values():
            self.moves.labels(step)
        for state in ENDED:
            self.ended.labels(str(state))
        for status in STATUSES:
            self.solver_requests.labels(status)
        for outcome in ("sent", "failed", "dropped"):
            self.notifications.labels(outcome)

    def recorded(self, event: AppendEvent, record: JobRecord | None = None) -> None:
        """Count an event of the stream, and of which job it is."""
        self.idle_node_s.inc(event.fields.get("idle_node_s", 0.0))
        if event.kind in MOVES:
            self.moves.labels(MOVES[event.kind]).inc()
        is_whole = record is not None and not record.flow
        if event.kind == "job_started":
            self.started.inc()
            if is_whole and record is not None and record.started is not None:
                self.wait_s.observe(max(0.0, record.started - record.submitted))
            skew_ms = event.fields.get("skew_ms")
            if skew_ms is not None:
                self.coallocated.inc()
                self.skew_s.observe(skew_ms / 1e3)
        elif event.kind == "job_ended" and is_whole and record is not None:
            self.ended.labels(str(event.fields.get("state", record.state))).inc()
            if record.started is not None and record.ended is not None:
                run_s = max(BOUND_S, record.ended - record.started)
                self.slowdown.observe(max(1.0, (record.ended - record.submitted) / run_s))

    def handled(
        self, event: Event, effects: Sequence[Effect], spent_s: float, *, failed: bool
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
            self.phase_s.labels("solve").observe(event.solve_s)
            self.phase_s.labels("commit").observe(spent_s)
        elif isinstance(event, SolveFailed):
            self.policy_failures.labels(event.policy).inc()
            if failed:
                self.rounds_failed.inc()
        elif any(isinstance(effect, Solve) for effect in effects):
            self.phase_s.labels("assemble").observe(spent_s)

    def round_finished(self, effect: RoundFinished, now: float) -> None:
        """Count a round."""
        self.rounds.labels(effect.policy, effect.status).inc()
        self.solve_s.labels(effect.policy).observe(effect.solve_s)
        self.gap.set(float("nan") if effect.gap is None else effect.gap)
        self.stale.set(effect.stale)
        self.round_at.set(now)

    def costed(self, found: RuleCostsRow) -> None:
        """Take over what the rules cost in a round."""
        none = float("nan")
        for metric in (self.rule_cost, self.rule_cost_limit, self.rule_held):
            metric.clear()
        for rule, row in found.rules.items():
            self.rule_cost.labels(rule).set(none if row.cost is None else row.cost)
            self.rule_cost_limit.labels(rule).set(none if row.at_most is None else row.at_most)
            self.rule_held.labels(rule).set(none if row.held is None else row.held)
        self.rules_at.set(found.time)

    def sample(
        self, state: State, orders_waiting: Mapping[str, int], faults: Mapping[str, int]
    ) -> None:
        """Take over what is counted elsewhere.

        Parameters
        ----------
        orders_waiting : mapping of cluster to number
        faults : mapping of reason to number
            Since the start of the daemon.
        """
        self.jobs.labels("waiting").set(len(state.waiting))
        self.jobs.labels("placed").set(len(state.placed))
        for name, there in state.clusters.items():
            share = None if there.reading is None else there.reading.share
            if share is not None:
                self.share_kept.labels(name).set(share.kept)
                self.local_delay.labels(name, "mean").set(share.delay_mean_s)
                self.local_delay.labels(name, "max").set(share.delay_max_s)
        for cluster, count in orders_waiting.items():
            self.outbox.labels(cluster).set(count)
        self._catch_up("dropped", self.dropped, faults)

    def survey(self, found: Survey) -> None:
        """Take over what was looked at just now."""
        for reason in self._reasons - found.waiting.keys():
            self.waiting.labels(reason).set(0)
        for reason, count in found.waiting.items():
            self.waiting.labels(reason).set(count)
        self._reasons |= found.waiting.keys()
        for name in self._clusters - found.clusters.keys():
            for metric in self.of_cluster.values():
                metric.remove(name)
        self._clusters = set(found.clusters)
        for name, cluster in found.clusters.items():
            self._set_cluster(name, cluster)
        self.stale.set(sum(not cluster.up for cluster in found.clusters.values()))
        self.solver_warm.set(found.solver_warm)
        self.writable.set(found.writable)
        self.store_bytes.set(found.store_bytes)
        if found.disk is not None:
            self.disk_size.set(found.disk[0])
            self.disk_free.set(found.disk[1])
        self._catch_up("solver", self.solver_requests, found.solver_requests)
        self._catch_up("notified", self.notifications, found.notifications)
        for row in found.starts:
            if row.lead == ALL:
                none = float("nan")
                self.starts_held.labels(row.kind).set(none if row.held is None else row.held)
                self.interval_s.labels(row.kind).set(none if row.width_s is None else row.width_s)
                self.start_error_s.labels(row.kind).set(row.error_s)
        self.surveyed_at.set(found.time)

    def _set_cluster(self, name: str, cluster: ClusterFigures) -> None:
        values = cluster.values()
        for field, metric in self.of_cluster.items():
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
