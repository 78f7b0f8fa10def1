"""The fields of the snapshot and plan formats (DESIGN: File formats)."""

from __future__ import annotations

from coalloc.model import ranges
from coalloc.model.fields import Field, Table, amount
from coalloc.model.plan import Reason, Status
from coalloc.model.platform import NodeState

SNAPSHOT_FORMAT = "coalloc-snapshot/1"
PLAN_FORMAT = "coalloc-plan/1"

NODE: Table = {
    "name": Field(
        kind="text",
        needed=True,
        doc="Unique name; a node set such as a[1-4] stands for equal nodes.",
    ),
    "power": amount(ranges.POWER, "Effective power.", default=1.0),
    "slots": Field(
        kind="integer", low=1, high=1_000_000, default=1, doc="Processes at the same time."
    ),
    "features": Field(kind="texts", default=[], doc="Features a job may ask for."),
    "memory_mb": amount(
        ranges.MEMORY_MB, "Memory, MiB; null is unlimited.", kind="integer", nullable=True
    ),
    "free_at": amount(ranges.EVENT, "No slot is usable before, s; default the snapshot's time."),
    "state": Field(
        kind="text", choices=tuple(NodeState), default="up", doc="Only up nodes get new work."
    ),
}

CLUSTER: Table = {
    "name": Field(kind="text", needed=True, doc="Unique name."),
    "link_gbps": amount(
        ranges.GBPS, "Capacity to the switch, Gbit/s; null unlimited.", nullable=True
    ),
    "intra_gbps": amount(ranges.INSIDE_GBPS, "Inside, Gbit/s; null unlimited.", nullable=True),
    "link_latency_s": amount(ranges.LATENCY, "Latency of the link, s.", default=0.0),
    "intra_latency_s": amount(ranges.LATENCY, "Latency inside, s.", default=0.0),
    "stale": Field(kind="flag", default=False, doc="The last reading failed; gets no new work."),
    "nodes": Field(kind="any", needed=True, doc="Nodes."),
}

JOB: Table = {
    "id": Field(kind="text", needed=True, doc="Unique id."),
    "kind": Field(
        kind="text",
        needed=True,
        choices=("rigid", "moldable", "workflow", "divisible"),
        doc="Kind.",
    ),
    "weight": amount(ranges.WEIGHT, "Weight in weighted completion.", default=1.0),
    "submitted": amount(ranges.INSTANT, "Submit time, s; default the snapshot's time."),
    "earliest": amount(ranges.INSTANT, "No start before, s; default submitted."),
    "time_limit": amount(ranges.SPAN, "Kill time, s of run time.", nullable=True),
    "sigma": amount(ranges.SHARE, "Weight of processing against communication.", default=1.0),
    "clusters": Field(kind="texts", nullable=True, doc="Clusters that may run it; null any."),
    "features": Field(kind="texts", default=[], doc="Features every node must have."),
    "memory_mb_per_proc": amount(ranges.MEMORY_MB, "MiB per process.", kind="integer", default=0),
    "after": Field(kind="texts", default=[], doc="Ids of jobs that must have ended."),
    "held": Field(kind="flag", default=False, doc="Not to be planned."),
    "passed_over": Field(
        kind="integer", low=0, default=0, doc="Later jobs started while it waited."
    ),
    "priority": amount(
        ranges.PRIORITY, "Of jobs that waited too long, those with more go first.", default=0.0
    ),
}

PROC_GBPS = amount(ranges.GBPS, "Peak bandwidth of one process, Gbit/s.", default=0.0)
ONE_CLUSTER = Field(kind="flag", default=False, doc="Never split over several clusters.")
RIGID: Table = {
    **JOB,
    "procs": Field(kind="integer", low=1, high=10**9, needed=True, doc="Number of processes."),
    "base_time": amount(ranges.SPAN, "Run time on dedicated full-speed nodes, s."),
    "proc_gbps": PROC_GBPS,
    "one_cluster": ONE_CLUSTER,
}
MOLDABLE: Table = {
    **JOB,
    "times": amount(ranges.SPAN, "Times on 1, 2, ... processes, s.", kind="numbers"),
    "speedup": Field(kind="any", doc="Speed-up model instead of times."),
    "min_procs": Field(kind="integer", low=1, high=10**9, doc="Smallest allotment."),
    "max_procs": Field(kind="integer", low=1, high=10**9, doc="Largest allotment."),
    "proc_gbps": amount(ranges.GBPS, "As for rigid; absent: one cluster only.", nullable=True),
    "one_cluster": ONE_CLUSTER,
}
WORKFLOW: Table = {
    **JOB,
    "tasks": Field(kind="any", needed=True, doc="Tasks."),
    "edges": Field(kind="any", default=[], doc="Precedence with data."),
    "started": Field(kind="any", default=[], doc="Tasks that run or have run."),
}
DIVISIBLE: Table = {
    **JOB,
    "work": amount(ranges.WORK, "Work, s on one full-speed node.", needed=True),
    "chunk_s": amount(ranges.SPAN, "Length of a chunk, s.", needed=True),
}

TASK: Table = {
    "id": Field(kind="text", needed=True, doc="Unique in its workflow."),
    "work": amount(ranges.TASK_WORK, "Work, s on one full-speed node.", needed=True),
    "parallel_fraction": amount(ranges.SHARE, "Share that scales.", default=0.0),
    "min_procs": Field(kind="integer", low=1, high=10**9, default=1, doc="Smallest allotment."),
    "max_procs": Field(
        kind="integer", low=1, high=10**9, doc="Largest allotment; default min_procs."
    ),
    "comm_gb": amount(ranges.DATA_GB, "All-to-all volume, GB.", default=0.0),
}
EDGE: Table = {
    "from": Field(kind="text", needed=True, doc="Parent task."),
    "to": Field(kind="text", needed=True, doc="Child task."),
    "gb": amount(ranges.DATA_GB, "Data, GB.", default=0.0),
}
STARTED: Table = {
    "task": Field(kind="text", needed=True, doc="Task id; not one of `tasks`."),
    "clusters": Field(kind="texts", needed=True, doc="Where it runs or ran."),
    "end": amount(ranges.EVENT, "Known or expected end, s.", needed=True),
}

SPEEDUPS: dict[str, Table] = {
    "amdahl": {
        "model": Field(kind="text", needed=True, doc="amdahl"),
        "time": amount(ranges.SPAN, "Time on one process, s.", needed=True),
        "parallel_fraction": amount(ranges.SHARE, "Share that scales.", needed=True),
    },
    "downey": {
        "model": Field(kind="text", needed=True, doc="downey"),
        "time": amount(ranges.SPAN, "Time on one process, s.", needed=True),
        "A": amount(ranges.PARALLELISM, "Average parallelism.", needed=True),
        "sigma": amount(ranges.VARIANCE, "Variance of parallelism (Downey's sigma).", needed=True),
    },
    "table": {
        "model": Field(kind="text", needed=True, doc="table"),
        "procs": Field(
            kind="integers", low=1, high=10**9, needed=True, doc="Rising process counts."
        ),
        "times": amount(ranges.SPAN, "Their times, s.", kind="numbers", needed=True),
    },
}

RUNNING: Table = {
    "id": Field(kind="text", needed=True, doc="Id of the job."),
    "nodes": Field(
        kind="counts", low=1, high=1_000_000, needed=True, doc="Slots taken on each node."
    ),
    "start": amount(ranges.EVENT, "Start, s.", needed=True),
    "end": amount(ranges.EVENT, "Expected end, s.", needed=True),
    "link_gbps": amount(ranges.LOAD_GBPS, "Load on the links, Gbit/s.", kind="loads", default={}),
    "ours": Field(kind="flag", default=True, doc="False for the batch system's own jobs."),
}
RESERVATION: Table = {
    "id": Field(kind="text", needed=True, doc="Id."),
    "nodes": Field(kind="texts", needed=True, doc="Node names or node sets."),
    "start": amount(ranges.EVENT, "Start, s.", needed=True),
    "end": amount(ranges.EVENT, "End, s.", needed=True),
    "jobs": Field(kind="texts", default=[], doc="Jobs that may use it."),
}
SNAPSHOT: Table = {
    "format": Field(kind="text", needed=True, choices=(SNAPSHOT_FORMAT,), doc="Name and version."),
    "time": amount(ranges.INSTANT, "Now, s.", default=0.0),
    "overrun_s": amount(
        ranges.OVERRUN, "A job past its end is expected to go on, s.", default=60.0
    ),
    "clusters": Field(kind="any", needed=True, doc="Clusters."),
    "queue": Field(kind="any", default=[], doc="Waiting jobs in arrival order."),
    "running": Field(kind="any", default=[], doc="Work that occupies slots."),
    "reservations": Field(kind="any", default=[], doc="Reserved nodes."),
}

PLACEMENT: Table = {
    "job": Field(kind="text", needed=True, doc="Job id."),
    "task": Field(kind="text", doc="Task id, in a workflow."),
    "start": amount(ranges.DERIVED, "Start, s.", needed=True),
    "end": amount(ranges.DERIVED, "Planned end, s.", needed=True),
    "nodes": Field(
        kind="counts",
        low=1,
        high=1_000_000,
        needed=True,
        doc="Processes on each node, in rank order.",
    ),
    "sc": amount(ranges.SLOWDOWN, "Accepted communication slowdown.", default=1.0),
    "chunks": Field(
        kind="integer", low=1, high=10**9, doc="Chunks of this piece of a divisible job."
    ),
}
DEFERRED: Table = {
    "job": Field(kind="text", needed=True, doc="Job id."),
    "task": Field(kind="text", doc="Task id, in a workflow."),
    "reason": Field(kind="text", needed=True, choices=tuple(Reason), doc="Why it has no start."),
    "detail": Field(kind="text", default="", doc="The reason in words."),
}
OBJECTIVE: Table = {
    "name": Field(
        kind="text",
        needed=True,
        choices=("makespan", "weighted_completion", "total_execution"),
        doc="Objective.",
    ),
    "value": amount(ranges.DERIVED, "Reached.", needed=True),
    "bound": amount(ranges.DERIVED, "Lower bound; null none.", nullable=True),
    "deferred": Field(kind="integer", low=0, default=0, doc="Jobs without a start."),
}
FRONT_POINT: Table = {
    "cmax": amount(ranges.DERIVED, "Makespan, s.", needed=True),
    "weighted_completion": amount(ranges.DERIVED, "Sum of weight times completion.", needed=True),
    "cmax_bound": amount(ranges.DERIVED, "Lower bound.", nullable=True),
    "weighted_completion_bound": amount(ranges.DERIVED, "Lower bound.", nullable=True),
    "pareto_gap": amount(ranges.DERIVED, "Certified gap.", nullable=True),
    "placements": Field(kind="any", needed=True, doc="Placements."),
}
PLAN: Table = {
    "format": Field(kind="text", needed=True, choices=(PLAN_FORMAT,), doc="Name and version."),
    "policy": Field(kind="text", needed=True, doc="Registry name."),
    "options": Field(kind="any", default={}, doc="The policy's options."),
    "status": Field(kind="text", needed=True, choices=tuple(Status), doc="How the search ended."),
    "objective": Field(kind="any", needed=True, doc="Objective."),
    "placements": Field(kind="any", needed=True, doc="Jobs with a start."),
    "deferred": Field(kind="any", default=[], doc="Jobs without one."),
    "stats": Field(kind="any", default={}, doc="Work, seed, times."),
    "front": Field(kind="any", default=[], doc="Non-dominated schedules."),
    "chosen": Field(kind="integer", low=0, nullable=True, doc="Index into front."),
    "pareto_gap": amount(ranges.DERIVED, "Smallest gap of the front.", nullable=True),
    "certificates": Field(kind="any", default=[], doc="Proofs of the bounds."),
}
