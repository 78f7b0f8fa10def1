"""A finished replay as a plan, for the checker.

Seen afterwards, a replay is a plan: every job with its real run time, none before its submission.
So the checker that guards the daemon's plans also says whether a replay is possible, and nothing
of the event loop is trusted: not its counts of slots, not its links, not its run times.
"""

from __future__ import annotations

from collections.abc import Mapping

from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.jobs import Job, MoldableJob, RigidJob
from coalloc.model.plan import Deferred, Objective, Placement, Plan, Reason, Status
from coalloc.model.snapshot import Snapshot
from coalloc.model.speedup import TableSpeedup
from coalloc.model.values import replace
from coalloc.policies.checking.check import check
from coalloc.simulation.flow_runs import as_it_was as flow_as_it_was
from coalloc.simulation.flow_runs import wholes
from coalloc.simulation.trace import Outcome, Trace

_REASONS = {Outcome.REFUSED: Reason.INFEASIBLE, Outcome.WAITING: Reason.INSUFFICIENT}


def verify(trace: Trace) -> list[str]:
    """Return what is impossible in a trace, one line each; empty if nothing is."""
    return list(check(*as_plan(trace)).violations)


def as_plan(trace: Trace) -> tuple[Snapshot, Plan]:
    """Turn a trace into a snapshot, whose queue holds all its jobs, and a plan for it."""
    jobs = trace.workload.jobs
    begin = jobs[0].job.submitted if jobs else 0.0
    clusters = tuple(
        replace(cluster, nodes=tuple(replace(node, free_at=begin) for node in cluster.nodes))
        for cluster in trace.slot_map.platform.clusters
    )
    procs = trace.procs.tolist()
    queue: list[Job] = []
    found = wholes(trace)
    for a, b in zip(found.first.tolist(), found.last.tolist(), strict=True):
        is_flow = bool(jobs[a].task)
        queue.append(
            flow_as_it_was(jobs[a:b], procs[a:b]) if is_flow else as_it_was(jobs[a], procs[a])
        )
    placements, deferred = [], []
    starts, ends = trace.start.tolist(), trace.end.tolist()
    for i, logged in enumerate(jobs):
        task = logged.task or None
        name = logged.flow.id if task and logged.flow else logged.job.id
        if trace.outcome[i] > Outcome.KILLED:
            reason = _REASONS[Outcome(int(trace.outcome[i]))]
            detail = trace.reasons.get(i, "")
            deferred.append(Deferred(job=name, task=task, reason=reason, detail=detail))
            continue
        nodes = node_counts(trace, i)
        placements.append(Placement(job=name, task=task, start=starts[i], end=ends[i], nodes=nodes))
    makespan = max((p.end for p in placements), default=begin) - begin
    plan = Plan(
        policy=trace.policy,
        status=Status.HEURISTIC,
        objective=Objective(
            name="makespan", value=makespan, deferred=len({one.job for one in deferred})
        ),
        placements=tuple(placements),
        deferred=tuple(deferred),
    )
    return Snapshot(time=begin, clusters=clusters, queue=tuple(queue)), plan


def as_it_was(logged: LoggedJob, procs: int) -> RigidJob | MoldableJob:
    """A job with its real run time, which is known on as many processes as it had."""
    job = logged.moldable
    if job is None:
        return replace(logged.job, base_time=logged.run_s)
    table = TableSpeedup(procs=(procs,), times=(logged.real_time(procs),))
    return replace(job, speedup=table, min_procs=procs, max_procs=procs)


def node_counts(trace: Trace, job: int) -> Mapping[str, int]:
    """Return the processes of a job on each of its nodes."""
    table = trace.slot_map
    out: dict[str, int] = {}
    for index in range(int(trace.first[job]), int(trace.first[job + 1])):
        slot, high = int(trace.low[index]), int(trace.high[index])
        node = int(table.node_first.searchsorted(slot, side="right")) - 1
        while slot < high:
            end = min(high, int(table.node_first[node + 1]))
            name = table.node_names[node]
            out[name] = out.get(name, 0) + end - slot
            slot, node = end, node + 1
    return out
