"""What the checker sweeps agrees with looking at every instant, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.model.jobs import Job, MoldableJob, RigidJob, Task, WorkflowJob
from coalloc.model.plan import Placement
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Reservation, Running, Snapshot
from coalloc.model.speedup import AmdahlSpeedup
from coalloc.model.values import replace
from coalloc.policies.checking.check import occupation_violations

END = 10
NODES = ("a1", "a2", "b1", "b2", "c1")
CLUSTERS = ("a", "b", "c")


WHOLE = st.integers(0, END - 1)
COUNTS = st.dictionaries(st.sampled_from(NODES), st.integers(1, 2), min_size=1, max_size=3)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Snapshot, list[Placement]]:
    """Draw whole seconds only, so that no tolerance decides; overloads are frequent."""
    clusters = tuple(draw_cluster(draw, name) for name in CLUSTERS)
    drawn = [draw_job(draw, str(i)) for i in range(draw(st.integers(0, 6)))]
    running = tuple(draw_running(draw, f"r{i}") for i in range(draw(st.integers(0, 2))))
    reservations = tuple(draw_reservation(draw, f"s{i}") for i in range(draw(st.integers(0, 2))))
    snapshot = Snapshot(
        clusters=clusters,
        queue=tuple(job for job, _ in drawn),
        running=running,
        reservations=reservations,
        overrun_s=draw(st.sampled_from([0.0, 1.0, 3.0])),
    )
    return snapshot, [placement for _, placement in drawn]


def draw_cluster(draw: st.DrawFn, name: str) -> Cluster:
    return Cluster(
        name=name,
        link_gbps=draw(st.sampled_from([inf, 0.25, 0.5, 1.0])),
        nodes=tuple(
            Node(
                name=node,
                slots=draw(st.integers(1, 3)),
                memory_mb=draw(st.none() | st.integers(1, 12)),
            )
            for node in NODES
            if node[0] == name
        ),
    )


def draw_job(draw: st.DrawFn, id: str) -> tuple[Job, Placement]:
    """A job, or a workflow of one task, with its placement."""
    nodes = draw(COUNTS)
    start, length = draw(WHOLE), draw(st.integers(0, 4))
    fields: dict[str, Any] = {
        "id": id,
        "proc_gbps": draw(st.sampled_from([0.0, 0.125, 0.25])),
        "memory_mb_per_proc": draw(st.integers(0, 4)),
    }
    job: Job
    kind = draw(st.sampled_from(["rigid", "moldable", "task"]))
    if kind == "task":
        del fields["proc_gbps"]
        task = Task(id="t", work=1.0, max_procs=9, comm_gb=draw(st.sampled_from([0.0, 1.0])))
        job = WorkflowJob(tasks=(task,), **fields)
    elif kind == "rigid":
        job = RigidJob(procs=sum(nodes.values()), base_time=1.0, **fields)
    else:
        speedup = AmdahlSpeedup(time_1=1.0, parallel_fraction=0.5)
        job = MoldableJob(speedup=speedup, min_procs=1, max_procs=9, **fields)
    sc = draw(st.sampled_from([1.0, 1.0, 1.5, 2.0]))
    task_id = "t" if kind == "task" else None
    end = start + length
    return job, Placement(job=id, task=task_id, start=start, end=end, nodes=nodes, sc=sc)


def draw_running(draw: st.DrawFn, id: str) -> Running:
    gbps = st.sampled_from([0.0, 0.125, 0.5])
    return Running(
        id=id,
        nodes=draw(COUNTS),
        start=-1.0,
        end=draw(WHOLE),
        link_gbps=draw(st.dictionaries(st.sampled_from(CLUSTERS), gbps)),
    )


def draw_reservation(draw: st.DrawFn, id: str) -> Reservation:
    return Reservation(
        id=id,
        nodes=tuple(draw(st.sets(st.sampled_from(NODES), min_size=1, max_size=2))),
        start=(first := draw(WHOLE)),
        end=first + draw(st.integers(1, 3)),
        jobs=tuple(draw(st.sets(st.sampled_from("0123")))),
    )


def naive(snapshot: Snapshot, placements: list[Placement]) -> Iterator[tuple[str, ...]]:
    """Look at every half second; yield (node|memory|link, name) and (reserved, job, node)."""
    jobs = {job.id: job for job in snapshot.queue}
    for at in [second + 0.5 for second in range(END + 5)]:
        here = [p for p in placements if p.start <= at < p.end]
        old = [r for r in snapshot.running if at < max(r.end, snapshot.time + snapshot.overrun_s)]
        for cluster in snapshot.clusters:
            for node in cluster.nodes:
                yield from _node(node, here, old, jobs)
            links = {one.name: one.link_gbps for one in snapshot.clusters}
            total = sum(_load(p, jobs[p.job], cluster.name, links) for p in here)
            total += sum(r.link_gbps.get(cluster.name, 0.0) for r in old)
            for p in here:
                mine = _load(p, jobs[p.job], cluster.name, links)
                sc = 1.0 if p.task else p.sc
                if mine > 0.0 and total > cluster.link_gbps * sc * (1 + 1e-9):
                    yield "link", cluster.name
        for kept in snapshot.reservations:
            for p in here:
                if kept.start <= at < kept.end and p.job not in kept.jobs:
                    for name in set(kept.nodes) & set(p.nodes):
                        yield "reserved", p.job, name


def _node(
    node: Node, here: list[Placement], old: list[Running], jobs: Mapping[str, Any]
) -> Iterator[tuple[str, ...]]:
    new = [p for p in here if node.name in p.nodes]
    used = sum(p.nodes[node.name] for p in new)
    before = [r.nodes.get(node.name, 0) for r in old]
    if new and used + sum(before) > node.slots:
        yield "node", node.name
    if node.memory_mb is not None:
        need = sum(p.nodes[node.name] * jobs[p.job].memory_mb_per_proc for p in new)
        taken = sum(node.memory_mb * slots // node.slots for slots in before)
        if need and need + taken > node.memory_mb:
            yield "memory", node.name


def _load(placement: Placement, job: Any, cluster: str, links: Mapping[str, float]) -> float:
    inside = {k: sum(n for m, n in placement.nodes.items() if m[0] == k) for k in CLUSTERS}
    procs = sum(placement.nodes.values())
    if procs == 1:
        return 0.0
    share = {k: n * (procs - n) / (procs - 1) for k, n in inside.items()}
    if placement.task is None:
        return float(job.proc_gbps) * share[cluster]
    # all of it, in the time that the narrowest link takes for its part
    sent = {k: 8.0 * job.tasks[0].comm_gb * share[k] / procs for k in CLUSTERS}
    seconds = max(sent[k] / links[k] for k in CLUSTERS)
    return sent[cluster] / seconds if seconds > 0.0 and links[cluster] < inf else 0.0


def told(lines: tuple[str, ...]) -> set[tuple[str, ...]]:
    """The violations as `naive` names them."""
    found: set[tuple[str, ...]] = set()
    for line in lines:
        words = line.replace(":", " ").split()
        if words[0] == "node":
            found.add(("memory" if "MiB" in words else "node", words[1]))
        elif words[0] == "link":
            found.add(("link", words[1]))
        elif "reserved" in words:
            found.add(("reserved", words[1], words[words.index("node") + 1]))
    return found


@settings(max_examples=200)
@given(cases())
def test_the_sweeps_agree_with_a_look_at_every_instant(
    case: tuple[Snapshot, list[Placement]],
) -> None:
    snapshot, placements = case
    options = {"saturation_threshold": 2.0}
    assert told(occupation_violations(snapshot, placements, options)) == set(
        naive(snapshot, placements)
    )


@settings(max_examples=50)
@given(cases(), st.integers(-(10**9), 2 * 10**9))
def test_the_origin_of_time_does_not_matter(
    case: tuple[Snapshot, list[Placement]], origin: int
) -> None:
    snapshot, placements = case
    later = Snapshot(
        time=origin,
        clusters=snapshot.clusters,
        queue=snapshot.queue,
        running=tuple(
            Running(
                id=r.id, nodes=r.nodes, start=origin - 1, end=r.end + origin, link_gbps=r.link_gbps
            )
            for r in snapshot.running
        ),
        reservations=tuple(
            Reservation(
                id=r.id, nodes=r.nodes, start=r.start + origin, end=r.end + origin, jobs=r.jobs
            )
            for r in snapshot.reservations
        ),
        overrun_s=snapshot.overrun_s,
    )
    moved = [replace(p, start=p.start + origin, end=p.end + origin) for p in placements]
    options = {"saturation_threshold": 2.0}
    assert told(occupation_violations(later, moved, options)) == told(
        occupation_violations(snapshot, placements, options)
    )
