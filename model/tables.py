"""The fields of the snapshot and plan formats (DESIGN: File formats)."""

from __future__ import annotations

from coalloc.model.fields import Field, Table
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
    "power": Field(kind="number", low=0, above=True, high=1, default=1.0, doc="Effective power."),
    "slots": Field(
        kind="integer", low=1, high=1_000_000, default=1, doc="Processes at the same time."
    ),
    "features": Field(kind="texts", default=[], doc="Features a job may ask for."),
    "memory_mb": Field(kind="integer", low=0, nullable=True, doc="Memory, MiB; null is unlimited."),
    "free_at": Field(
        kind="number", doc="No slot is usable before, s; default the snapshot's time."
    ),
    "state": Field(
        kind="text", choices=tuple(NodeState), default="up", doc="Only up nodes get new work."
    ),
}

CLUSTER: Table = {
    "name": Field(kind="text", needed=True, doc="Unique name."),
    "link_gbps": Field(
        kind="number", low=0, nullable=True, doc="Capacity to the switch, Gbit/s; null unlimited."
    ),
    "intra_gbps": Field(
        kind="number", low=0, above=True, nullable=True, doc="Inside, Gbit/s; null unlimited."
    ),
    "link_latency_s": Field(kind="number", low=0, default=0.0, doc="Latency of the link, s."),
    "intra_latency_s": Field(kind="number", low=0, default=0.0, doc="Latency inside, s."),
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
    "weight": Field(kind="number", low=0, default=1.0, doc="Weight in weighted completion."),
    "submitted": Field(kind="number", doc="Submit time, s; default the snapshot's time."),
    "earliest": Field(kind="number", doc="No start before, s; default submitted."),
    "time_limit": Field(
        kind="number", low=0, above=True, nullable=True, doc="Kill time, s of run time."
    ),
    "sigma": Field(
        kind="number", low=0, high=1, default=1.0, doc="Weight of processing against communication."
    ),
    "clusters": Field(kind="texts", nullable=True, doc="Clusters that may run it; null any."),
    "features": Field(kind="texts", default=[], doc="Features every node must have."),
    "memory_mb_per_proc": Field(kind="integer", low=0, default=0, doc="MiB per process."),
    "after": Field(kind="texts", default=[], doc="Ids of jobs that must have ended."),
    "held": Field(kind="flag", default=False, doc="Not to be planned."),
    "passed_over": Field(
        kind="integer", low=0, default=0, doc="Later jobs started while it waited."
    ),
}

PROC_GBPS = Field(kind="number", low=0, default=0.0, doc="Peak bandwidth of one process, Gbit/s.")
RIGID: Table = {
    **JOB,
    "procs": Field(kind="integer", low=1, high=10**9, needed=True, doc="Number of processes."),
    "base_time": Field(
        kind="number", low=0, above=True, doc="Run time on dedicated full-speed nodes, s."
    ),
    "proc_gbps": PROC_GBPS,
}
MOLDABLE: Table = {
    **JOB,
    "times": Field(kind="numbers", low=0, above=True, doc="Times on 1, 2, ... processes, s."),
    "speedup": Field(kind="any", doc="Speed-up model instead of times."),
    "min_procs": Field(kind="integer", low=1, high=10**9, doc="Smallest allotment."),
    "max_procs": Field(kind="integer", low=1, high=10**9, doc="Largest allotment."),
    "proc_gbps": Field(
        kind="number", low=0, nullable=True, doc="As for rigid; absent: one cluster only."
    ),
}
WORKFLOW: Table = {
    **JOB,
    "tasks": Field(kind="any", needed=True, doc="Tasks."),
    "edges": Field(kind="any", default=[], doc="Precedence with data."),
    "started": Field(kind="any", default=[], doc="Tasks that run or have run."),
}
DIVISIBLE: Table = {
    **JOB,
    "work": Field(
        kind="number", low=0, above=True, needed=True, doc="Work, s on one full-speed node."
    ),
    "chunk_s": Field(kind="number", low=0, above=True, needed=True, doc="Length of a chunk, s."),
}

TASK: Table = {
    "id": Field(kind="text", needed=True, doc="Unique in its workflow."),
    "work": Field(kind="number", low=0, needed=True, doc="Work, s on one full-speed node."),
    "parallel_fraction": Field(kind="number", low=0, high=1, default=0.0, doc="Share that scales."),
    "min_procs": Field(kind="integer", low=1, high=10**9, default=1, doc="Smallest allotment."),
    "max_procs": Field(
        kind="integer", low=1, high=10**9, doc="Largest allotment; default min_procs."
    ),
    "comm_gb": Field(kind="number", low=0, default=0.0, doc="All-to-all volume, GB."),
}
EDGE: Table = {
    "from": Field(kind="text", needed=True, doc="Parent task."),
    "to": Field(kind="text", needed=True, doc="Child task."),
    "gb": Field(kind="number", low=0, default=0.0, doc="Data, GB."),
}
STARTED: Table = {
    "task": Field(kind="text", needed=True, doc="Task id; not one of `tasks`."),
    "clusters": Field(kind="texts", needed=True, doc="Where it runs or ran."),
    "end": Field(kind="number", needed=True, doc="Known or expected end, s."),
}

SPEEDUPS: dict[str, Table] = {
    "amdahl": {
        "model": Field(kind="text", needed=True, doc="amdahl"),
        "time": Field(kind="number", low=0, above=True, needed=True, doc="Time on one process, s."),
        "parallel_fraction": Field(
            kind="number", low=0, high=1, needed=True, doc="Share that scales."
        ),
    },
    "downey": {
        "model": Field(kind="text", needed=True, doc="downey"),
        "time": Field(kind="number", low=0, above=True, needed=True, doc="Time on one process, s."),
        "A": Field(kind="number", low=1, needed=True, doc="Average parallelism."),
        "sigma": Field(
            kind="number", low=0, needed=True, doc="Variance of parallelism (Downey's sigma)."
        ),
    },
    "table": {
        "model": Field(kind="text", needed=True, doc="table"),
        "procs": Field(kind="integers", low=1, needed=True, doc="Rising process counts."),
        "times": Field(kind="numbers", low=0, above=True, needed=True, doc="Their times, s."),
    },
}

RUNNING: Table = {
    "id": Field(kind="text", needed=True, doc="Id of the job."),
    "nodes": Field(
        kind="counts", low=1, high=1_000_000, needed=True, doc="Slots taken on each node."
    ),
    "start": Field(kind="number", needed=True, doc="Start, s."),
    "end": Field(kind="number", needed=True, doc="Expected end, s."),
    "link_gbps": Field(kind="loads", low=0, default={}, doc="Load on the links, Gbit/s."),
    "ours": Field(kind="flag", default=True, doc="False for the batch system's own jobs."),
}
RESERVATION: Table = {
    "id": Field(kind="text", needed=True, doc="Id."),
    "nodes": Field(kind="texts", needed=True, doc="Node names or node sets."),
    "start": Field(kind="number", needed=True, doc="Start, s."),
    "end": Field(kind="number", needed=True, doc="End, s."),
    "jobs": Field(kind="texts", default=[], doc="Jobs that may use it."),
}
SNAPSHOT: Table = {
    "format": Field(kind="text", needed=True, choices=(SNAPSHOT_FORMAT,), doc="Name and version."),
    "time": Field(kind="number", default=0.0, doc="Now, s."),
    "overrun_s": Field(
        kind="number", low=0, default=60.0, doc="A job past its end is expected to go on, s."
    ),
    "clusters": Field(kind="any", needed=True, doc="Clusters."),
    "queue": Field(kind="any", default=[], doc="Waiting jobs in arrival order."),
    "running": Field(kind="any", default=[], doc="Work that occupies slots."),
    "reservations": Field(kind="any", default=[], doc="Reserved nodes."),
}

PLACEMENT: Table = {
    "job": Field(kind="text", needed=True, doc="Job id."),
    "task": Field(kind="text", doc="Task id, in a workflow."),
    "start": Field(kind="number", needed=True, doc="Start, s."),
    "end": Field(kind="number", needed=True, doc="Planned end, s."),
    "nodes": Field(
        kind="counts",
        low=1,
        high=1_000_000,
        needed=True,
        doc="Processes on each node, in rank order.",
    ),
    "sc": Field(kind="number", low=1, default=1.0, doc="Accepted communication slowdown."),
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
    "value": Field(kind="number", needed=True, doc="Reached."),
    "bound": Field(kind="number", nullable=True, doc="Lower bound; null none."),
    "deferred": Field(kind="integer", low=0, default=0, doc="Jobs without a start."),
}
FRONT_POINT: Table = {
    "cmax": Field(kind="number", needed=True, doc="Makespan, s."),
    "weighted_completion": Field(kind="number", needed=True, doc="Sum of weight times completion."),
    "cmax_bound": Field(kind="number", nullable=True, doc="Lower bound."),
    "weighted_completion_bound": Field(kind="number", nullable=True, doc="Lower bound."),
    "pareto_gap": Field(kind="number", nullable=True, doc="Certified gap."),
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
    "pareto_gap": Field(kind="number", nullable=True, doc="Smallest gap of the front."),
    "certificates": Field(kind="any", default=[], doc="Proofs of the bounds."),
}
