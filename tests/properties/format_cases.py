"""Random snapshots and plans, as a reader would return them."""

from __future__ import annotations

from math import inf
from typing import Any

from hypothesis import strategies as st

from coalloc.model import ranges
from coalloc.model.jobs import (
    MOST_CHUNKS,
    DivisibleJob,
    Edge,
    Job,
    MoldableJob,
    RigidJob,
    Started,
    Task,
    WorkflowJob,
)
from coalloc.model.plan import Deferred, FrontPoint, Objective, Placement, Plan, Reason, Status
from coalloc.model.platform import Cluster, Node, NodeState
from coalloc.model.ranges import Range
from coalloc.model.shape import ONE_SLOT, Shape
from coalloc.model.snapshot import Reservation, Running, Snapshot
from coalloc.model.speedup import AmdahlSpeedup, DowneySpeedup, Speedup, repaired

NODES = ("a1", "a2", "b/1", "node-3.example", "é7", "a b")
CLUSTERS = ("alpha", "beta β")
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


def within(range_: Range) -> st.SearchStrategy[float]:
    """Amounts of a range."""
    amounts = st.floats(range_.low, range_.high)
    return st.just(0.0) | amounts if range_.zero else amounts


instants, events, spans = within(ranges.INSTANT), within(ranges.EVENT), within(ranges.SPAN)
derived, shares, gbps = within(ranges.DERIVED), within(ranges.SHARE), within(ranges.GBPS)
features = st.lists(texts, max_size=3).map(tuple)
memory = st.integers(0, 10**12)
amounts = st.dictionaries(texts, st.integers(1, 10**9), max_size=2)
pieces = st.builds(
    Shape,
    cpus_per_proc=st.integers(0, 10**6),
    memory_mb_per_node=memory,
    procs_per_node=st.none() | st.integers(1, 10**9),
    per_proc=amounts,
)
shapes = st.builds(Shape, exclusive=st.booleans(), per_node=amounts, per_job=amounts) | pieces
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | derived | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    return Node(
        name=name,
        power=draw(within(ranges.POWER)),
        slots=draw(st.integers(1, 10**6)),
        cpus=draw(st.none() | st.integers(1, 10**6)),
        resources=draw(amounts),
        features=draw(features),
        memory_mb=draw(st.none() | memory),
        free_at=draw(events),
        state=draw(st.sampled_from(NodeState)),
    )


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Cluster, ...]:
    return tuple(
        Cluster(
            name=name,
            nodes=tuple(draw(nodes(node)) for node in NODES[start : start + 3]),
            link_gbps=draw(st.just(inf) | gbps),
            intra_gbps=draw(st.just(inf) | within(ranges.INSIDE_GBPS)),
            link_latency_s=draw(within(ranges.LATENCY)),
            intra_latency_s=draw(within(ranges.LATENCY)),
            stale=draw(st.booleans()),
            resources=draw(amounts),
        )
        for name, start in zip(CLUSTERS, (0, 3), strict=True)
    )


@st.composite
def speedups(draw: st.DrawFn) -> tuple[Speedup, int, int]:
    """Draw a model and a range that it offers."""
    low = draw(st.integers(1, 1000))
    high = draw(st.integers(low, 10**9))
    match draw(st.integers(0, 2)):
        case 0:
            return AmdahlSpeedup(time_1=draw(spans), parallel_fraction=draw(shares)), low, high
        case 1:
            parallelism = draw(within(ranges.PARALLELISM))
            variance = draw(within(ranges.VARIANCE))
            return (
                DowneySpeedup(time_1=draw(spans), parallelism=parallelism, variance=variance),
                low,
                high,
            )
        case _:
            counts = tuple(sorted(draw(st.sets(st.integers(1, 10**9), min_size=1, max_size=5))))
            measured = tuple(draw(spans) for _ in counts)
            return repaired(counts, measured)[0], counts[0], counts[-1]


@st.composite
def workflow(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(texts, min_size=1, max_size=4, unique=True))
    tasks = []
    for name in names:
        low = draw(st.integers(1, 10**9))
        tasks.append(
            Task(
                id=name,
                work=draw(within(ranges.TASK_WORK)),
                parallel_fraction=draw(shares),
                min_procs=low,
                max_procs=draw(st.integers(low, 10**9)),
                comm_gb=draw(within(ranges.DATA_GB)),
                shape=draw(st.none() | shapes),
            )
        )
    edges = tuple(
        Edge(parent=names[i], child=names[k], gb=draw(within(ranges.DATA_GB)))
        for k in range(len(names))
        for i in range(k)
        if draw(st.booleans())
    )
    started = tuple(
        Started(
            task=name,
            clusters=tuple(draw(st.lists(st.sampled_from(CLUSTERS), min_size=1, max_size=2))),
            end=draw(events),
        )
        for name in draw(st.lists(texts, max_size=2, unique=True))
        if name not in names
    )
    edges += tuple(
        Edge(parent=one.task, child=name, gb=draw(within(ranges.DATA_GB)))
        for one in started
        for name in names
        if draw(st.booleans())
    )
    return {"tasks": tuple(tasks), "edges": edges, "started": started}


@st.composite
def jobs(draw: st.DrawFn, name: str) -> Job:
    common: dict[str, Any] = {
        "id": name,
        "weight": draw(within(ranges.WEIGHT)),
        "submitted": draw(instants),
        "earliest": draw(instants),
        "time_limit": draw(st.none() | spans),
        "sigma": draw(shares),
        "clusters": draw(st.none() | st.lists(st.sampled_from(CLUSTERS)).map(tuple)),
        "features": draw(features),
        "memory_mb_per_proc": draw(memory),
        "shape": draw(st.just(ONE_SLOT) | pieces),
        "after": draw(st.lists(texts, max_size=2).map(tuple)),
        "held": draw(st.booleans()),
        "passed_over": draw(st.integers(0, 10**6)),
    }
    match draw(st.integers(0, 3)):
        case 0:
            return RigidJob(
                procs=draw(st.integers(1, 10**9)),
                base_time=draw(spans),
                proc_gbps=draw(gbps),
                **common,
            )
        case 1:
            speedup, low, high = draw(speedups())
            rate = draw(st.none() | gbps)
            return MoldableJob(
                speedup=speedup, min_procs=low, max_procs=high, proc_gbps=rate, **common
            )
        case 2:
            return WorkflowJob(**draw(workflow()), **common)
        case _:
            work = draw(within(ranges.WORK))
            chunk = max(draw(spans), work / MOST_CHUNKS * 1.1)
            return DivisibleJob(work=work, chunk_s=chunk, **common)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    platform = draw(clusters())
    slots = {node.name: node.slots for cluster in platform for node in cluster.nodes}
    running, reservations = [], []
    for name in draw(st.lists(texts, max_size=2, unique=True)):
        start, end = sorted([draw(events), draw(events)])
        some = draw(st.sets(st.sampled_from(NODES), min_size=1))
        running.append(
            Running(
                id=name,
                nodes={node: draw(st.integers(1, slots[node])) for node in sorted(some)},
                start=start,
                end=end,
                link_gbps=draw(
                    st.dictionaries(st.sampled_from(CLUSTERS), within(ranges.LOAD_GBPS))
                ),
                ours=draw(st.booleans()),
                memory_mb=draw(st.fixed_dictionaries({}, optional=dict.fromkeys(some, memory))),
                resources=draw(st.fixed_dictionaries({}, optional=dict.fromkeys(some, amounts))),
                per_job=draw(amounts),
            )
        )
        if start < end:
            reservations.append(
                Reservation(
                    id=name,
                    nodes=tuple(draw(st.lists(st.sampled_from(NODES), unique=True))),
                    start=start,
                    end=end,
                    jobs=draw(features),
                )
            )
    names = draw(st.lists(texts, max_size=3, unique=True))
    return Snapshot(
        time=draw(instants),
        clusters=platform,
        queue=tuple(draw(jobs(name)) for name in names),
        running=tuple(running),
        reservations=tuple(reservations),
        overrun_s=draw(within(ranges.OVERRUN)),
        resources=draw(amounts),
    )


placements = st.builds(
    Placement,
    job=texts,
    task=st.none() | texts,
    start=derived,
    end=derived,
    nodes=st.dictionaries(st.sampled_from(NODES), st.integers(1, 10**6)),
    sc=within(ranges.SLOWDOWN),
)
many = st.lists(placements, max_size=3).map(tuple)
bounds = st.none() | derived
points = st.builds(
    FrontPoint,
    cmax=derived,
    weighted_completion=derived,
    cmax_bound=bounds,
    weighted_completion_bound=bounds,
    pareto_gap=bounds,
    placements=many,
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    front = tuple(draw(st.lists(points, max_size=2)))
    return Plan(
        policy=draw(texts),
        status=draw(st.sampled_from(Status)),
        objective=Objective(
            name=draw(st.sampled_from(["makespan", "weighted_completion", "total_execution"])),
            value=draw(derived),
            bound=draw(bounds),
            deferred=draw(st.integers(0, 10**6)),
        ),
        placements=draw(many),
        deferred=tuple(
            draw(
                st.lists(
                    st.builds(
                        Deferred,
                        job=texts,
                        task=st.none() | texts,
                        reason=st.sampled_from(Reason),
                        detail=st.text(st.characters(codec="utf-8")),
                    ),
                    max_size=3,
                )
            )
        ),
        options=draw(st.dictionaries(texts, json_values, max_size=3)),
        stats=draw(st.dictionaries(texts, json_values, max_size=3)),
        front=front,
        chosen=draw(st.integers(0, len(front) - 1)) if front else None,
        pareto_gap=draw(bounds) if front else None,
        certificates=tuple(draw(st.lists(st.dictionaries(texts, json_values), max_size=2))),
    )
