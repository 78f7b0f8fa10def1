"""Plans of workflows as records of the replaying program.

Notes
-----
A task is one round: every process computes work * (1 - pf + pf / n) full-speed seconds, then sends
its part of the task's data to all others, `comm_gb` in all. Flows are bound to the rates with which
they take as long as the plan says on links that nobody else uses.

Data on an edge go from a node of their own beside the parent to one beside the child, at most as
fast as the slowest link of all clusters of both, from the parent's end on; the child begins at its
planned start or when all of them are there. Time inside clusters and latencies are not replayed:
`records` refuses snapshots that have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

from coalloc.model.cost import task_time
from coalloc.model.jobs import Edge, Task, WorkflowJob
from coalloc.model.plan import Placement, Plan
from coalloc.model.snapshot import Snapshot
from tests.simgrid.plans import BYTES_PER_GBIT, FULL_SPEED_FLOP_PER_S, platform
from tests.simgrid.program import run

BYTES_PER_GB = 1e9


def replay_workflow(
    program: Path, snapshot: Snapshot, plan: Plan, **arguments: Any
) -> Mapping[str, tuple[Placement, float]]:
    """Run the plan of one workflow; each task's placement and its end in the replay, seconds."""
    times = run(program, list(records(snapshot, plan)), **arguments)
    return {
        placement.task: (placement, snapshot.time + times[f"t{n}"][1])
        for n, placement in enumerate(plan.placements)
        if placement.task is not None
    }


def records(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Yield the program's input; tasks are named by their number among the placements."""
    (job,) = snapshot.queue
    if not isinstance(job, WorkflowJob):
        raise ValueError(f"job {job.id} is no workflow")
    for cluster in snapshot.clusters:
        if cluster.intra_gbps < inf or cluster.link_latency_s > 0.0:
            raise ValueError(f"cluster {cluster.name} has a network or a latency of its own")
    yield from platform(snapshot)
    tasks = {task.id: task for task in job.tasks}
    nodes = {node.name: n for n, (_, node) in enumerate(snapshot.nodes())}
    numbers = {placement.task: n for n, placement in enumerate(plan.placements)}
    for n, placement in enumerate(plan.placements):
        assert placement.task is not None
        yield from _task(snapshot, tasks[placement.task], placement, f"t{n}", nodes)
    for x, edge in enumerate(job.edges):
        parent, child = numbers[edge.parent], numbers[edge.child]
        ends = plan.placements[parent], plan.placements[child]
        used = [set(clusters_of(snapshot, placement)) for placement in ends]
        if edge.gb > 0.0 and used[0] != used[1]:
            yield from _transfer(snapshot, edge, *ends, f"e{x}")
            yield f"after e{x} t{parent}"
            yield f"after t{child} e{x}"
        else:
            yield f"after t{child} t{parent}"


def clusters_of(snapshot: Snapshot, placement: Placement) -> Mapping[str, int]:
    """Processes on each cluster that a placement uses."""
    out: dict[str, int] = {}
    for cluster, node in snapshot.nodes():
        if node.name in placement.nodes:
            out[cluster.name] = out.get(cluster.name, 0) + placement.nodes[node.name]
    return out


def _task(
    snapshot: Snapshot, task: Task, placement: Placement, name: str, nodes: Mapping[str, int]
) -> Iterator[str]:
    inside = clusters_of(snapshot, placement)
    procs = sum(inside.values())
    by_name = {cluster.name: cluster for cluster in snapshot.clusters}
    fraction = task.parallel_fraction
    flop = task.work * (1.0 - fraction + fraction / procs) * FULL_SPEED_FLOP_PER_S
    yield f"task {name} {placement.start - snapshot.time!r} 1 {flop!r} 0"
    for node, count in placement.nodes.items():
        for _ in range(count):
            yield f"rank {name} n{nodes[node]}"
    power = min(node.power for _, node in snapshot.nodes() if node.name in placement.nodes)
    alone = task.work / power * (1.0 - fraction + fraction / procs)
    talking = task_time(task, inside, power, by_name) - alone
    if talking > 1e-9:
        bytes_each = task.comm_gb * BYTES_PER_GB / (procs * (procs - 1))
        for one in range(procs):
            for other in range(procs):
                if one != other:
                    yield f"flow {name} {one} {other} {bytes_each!r} {bytes_each / talking!r}"


def _transfer(
    snapshot: Snapshot, edge: Edge, parent: Placement, child: Placement, name: str
) -> Iterator[str]:
    """A task of two ranks on nodes of their own, without computing."""
    number = {cluster.name: k for k, cluster in enumerate(snapshot.clusters)}
    link = {cluster.name: cluster.link_gbps for cluster in snapshot.clusters}
    ours, theirs = clusters_of(snapshot, parent), clusters_of(snapshot, child)
    source, target = min(
        ((a, b) for a in ours for b in theirs if a != b),
        key=lambda ends: (min(link[ends[0]], link[ends[1]]), ends),
    )
    slowest = min(link[cluster] for cluster in (*ours, *theirs))
    for end, cluster in (("a", source), ("b", target)):
        yield f"node {name}{end} c{number[cluster]} 1.0 1"
    yield f"task {name} 0 1 0 0"
    yield f"rank {name} {name}a"
    yield f"rank {name} {name}b"
    rate = slowest * BYTES_PER_GBIT
    yield f"flow {name} 0 1 {edge.gb * BYTES_PER_GB!r} {rate!r}"
