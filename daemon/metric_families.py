"""The daemon's metrics by subject: names, labels, buckets and help texts."""

from __future__ import annotations

from functools import partial

import prometheus_client as prometheus

from coalloc.core.base.records import ENDED
from coalloc.model.event_kinds import EventKind

SOLVE_S = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
PHASE_S = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
SKEW_S = (0.0001, 0.0003, 0.001, 0.002, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
COMMIT_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
WAIT_S = (1, 10, 60, 300, 900, 3600, 10_800, 21_600, 43_200, 86_400, 259_200, 604_800)
SLOWDOWN = (1.0, 1.5, 2, 3, 5, 10, 30, 100, 300, 1000)
STATUSES = ("done", "killed", "crashed", "error")
"""Ends of a request to the solver's processes, see `daemon.solver.pool`."""
MOVES = {
    EventKind.MOVE_ORDERED: "ordered",
    EventKind.JOB_MOVED: "moved",
    EventKind.MOVE_OVERTAKEN: "overtaken",
}
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


class RoundMetrics:
    """Rounds, their solves and their phases."""

    def __init__(self, registry: prometheus.CollectorRegistry) -> None:
        gauge = partial(prometheus.Gauge, registry=registry)
        counter = partial(prometheus.Counter, registry=registry)
        histogram = partial(prometheus.Histogram, registry=registry)
        self.finished = counter("coalloc_rounds", "Rounds finished.", ["policy", "status"])
        self.failed = counter("coalloc_rounds_failed", "Rounds that ended without a plan.")
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
        self.ended_at = gauge(
            "coalloc_round_timestamp_seconds", "When a round ended last, seconds since 1970."
        )


class RuleMetrics:
    """Costs of the rules in the last round whose costs were computed."""

    def __init__(self, registry: prometheus.CollectorRegistry) -> None:
        gauge = partial(prometheus.Gauge, registry=registry)
        self.cost = gauge(
            "coalloc_rule_cost_weighted_seconds",
            "Weight times completion that a rule costs the plan; NaN: not computed.",
            ["rule"],
        )
        self.cost_limit = gauge(
            "coalloc_rule_cost_bound_weighted_seconds",
            "The most that a rule can cost; NaN: not known.",
            ["rule"],
        )
        self.held = gauge(
            "coalloc_rule_jobs_held", "Jobs that only a plan without the rule places.", ["rule"]
        )
        self.begun_at = gauge(
            "coalloc_rule_costs_timestamp_seconds",
            "Begin of the round that these are of, seconds since 1970; 0: none yet.",
        )


class SolverMetrics:
    """The solver's processes."""

    def __init__(self, registry: prometheus.CollectorRegistry) -> None:
        gauge = partial(prometheus.Gauge, registry=registry)
        counter = partial(prometheus.Counter, registry=registry)
        self.warm = gauge("coalloc_solver_warm", "All its code is compiled, 1 or 0.")
        self.requests = counter(
            "coalloc_solver_requests", "Requests to the solver's processes.", ["status"]
        )
        for status in STATUSES:
            self.requests.labels(status)


class JobMetrics:
    """Jobs, from submission to end."""

    def __init__(self, registry: prometheus.CollectorRegistry) -> None:
        gauge = partial(prometheus.Gauge, registry=registry)
        counter = partial(prometheus.Counter, registry=registry)
        histogram = partial(prometheus.Histogram, registry=registry)
        self.active = gauge("coalloc_jobs", "Active jobs.", ["state"])
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
        for step in MOVES.values():
            self.moves.labels(step)
        for state in ENDED:
            self.ended.labels(str(state))


class StartMetrics:
    """Starts against their expected times, and the parts of a job against each other."""

    def __init__(self, registry: prometheus.CollectorRegistry) -> None:
        gauge = partial(prometheus.Gauge, registry=registry)
        histogram = partial(prometheus.Histogram, registry=registry)
        self.held = gauge(
            "coalloc_start_interval_held_ratio",
            "Starts in their 90 % interval, of the newest; NaN: none had one.",
            ["promise"],
        )
        self.interval_s = gauge(
            "coalloc_start_interval_seconds", "Median width of these intervals.", ["promise"]
        )
        self.error_s = gauge(
            "coalloc_start_error_seconds",
            "Median distance of these starts from the expected ones.",
            ["promise"],
        )
        self.skew_s = histogram(
            "coalloc_start_skew_seconds",
            "Between the first processes of a job's parts.",
            buckets=SKEW_S,
        )


class ClusterMetrics:
    """Clusters, their executors and their messages."""

    def __init__(self, registry: prometheus.CollectorRegistry) -> None:
        gauge = partial(prometheus.Gauge, registry=registry)
        counter = partial(prometheus.Counter, registry=registry)
        self.stale = gauge("coalloc_clusters_stale", "Clusters not read.")
        self.of = {
            field: gauge(name, text, ["cluster"]) for field, (name, text) in OF_CLUSTER.items()
        }
        self.share_kept = gauge(
            "coalloc_share_nodes_kept", "Nodes kept from local jobs.", ["cluster"]
        )
        self.local_delay = gauge(
            "coalloc_local_delay_seconds",
            "Longest that a local job that waits was delayed by kept nodes.",
            ["cluster"],
        )
        self.outbox = gauge("coalloc_outbox_messages", "Orders not acknowledged.", ["cluster"])
        self.dropped = counter(
            "coalloc_messages_dropped", "Messages refused or not delivered.", ["reason"]
        )


class StoreMetrics:
    """The store, its disk and its commits."""

    def __init__(self, registry: prometheus.CollectorRegistry) -> None:
        gauge = partial(prometheus.Gauge, registry=registry)
        histogram = partial(prometheus.Histogram, registry=registry)
        self.commit_s = histogram("coalloc_store_commit_seconds", "A commit.", buckets=COMMIT_S)
        self.writable = gauge("coalloc_store_writable", "The store takes writes, 1 or 0.")
        self.bytes = gauge("coalloc_store_bytes", "Size of the store's files.")
        self.disk_free = gauge("coalloc_disk_free_bytes", "Free on the store's disk.")
        self.disk_size = gauge("coalloc_disk_size_bytes", "Size of the store's disk.")
