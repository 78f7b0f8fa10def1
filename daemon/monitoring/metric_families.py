"""The daemon's metrics by kind: names, help texts, labels and buckets."""

from __future__ import annotations

from typing import NamedTuple

from coalloc.core.base.records import ENDED


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
    "rpcs_per_min": (
        "coalloc_cluster_requests_per_minute",
        "Of its executor to the batch system's controller; NaN: not counted.",
    ),
}
"""Field of `ClusterFigures`, name and help text of the gauge that shows it."""

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
    **{name: Family(text, ("cluster",)) for name, text in OF_CLUSTER.values()},
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
