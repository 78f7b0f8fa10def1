"""Random small snapshots with shapes and placements, and what is wrong with them, by dicts."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from math import ceil
from typing import Any

from coalloc.model.jobs import DivisibleJob, Job, RigidJob, Task, WorkflowJob
from coalloc.model.plan import Placement
from coalloc.model.platform import Cluster, Node
from coalloc.model.shape import Shape
from coalloc.model.snapshot import Running, Snapshot

END = 6
NODES = ("a1", "a2", "b1", "b2")
NAMES = ("gpu", "gpu:a", "gpu:b", "nvme")
LICENCES = ("lic", "fl:x", "fl")

Case = tuple[Snapshot, list[Placement]]
Fault = tuple[str, ...]


def amounts(rng: random.Random, names: tuple[str, ...], most: int, often: float) -> dict[str, int]:
    return {name: rng.randint(1, most) for name in names if rng.random() < often}


def drawn(rng: random.Random) -> Case:
    """Draw whole seconds only, so that no tolerance decides; overloads are frequent."""
    clusters = tuple(
        Cluster(
            name=k,
            nodes=tuple(draw_node(rng, name) for name in NODES if name[0] == k),
            resources=amounts(rng, LICENCES, 4, 0.6),
        )
        for k in "ab"
    )
    units = [draw_job(rng, str(i)) for i in range(rng.randint(1, 5))]
    snapshot = Snapshot(
        clusters=clusters,
        queue=tuple(job for job, _ in units),
        running=tuple(draw_running(rng, f"r{i}") for i in range(rng.randint(0, 2))),
        resources=amounts(rng, LICENCES, 4, 0.4),
        overrun_s=rng.choice([0.0, 1.0, 3.0]),
    )
    return snapshot, [placement for _, placement in units]


def draw_node(rng: random.Random, name: str) -> Node:
    slots = rng.randint(1, 4)
    core = rng.choice([1, 1, 2])
    return Node(
        name=name,
        slots=slots,
        cpus=rng.choice([None, slots * 2, slots * 3, 5]) if slots > 1 or core == 1 else 8,
        cpus_per_core=core,
        memory_mb=rng.choice([None, 0, rng.randint(1, 12), 24]),
        resources=amounts(rng, NAMES, 4, 0.4),
    )


def draw_shape(rng: random.Random, whole: bool) -> Shape:
    fields: dict[str, Any] = {
        "cpus_per_proc": rng.choice([0, 0, 1, 2, 3]),
        "memory_mb_per_node": rng.choice([0, 0, 2]),
        "procs_per_node": rng.choice([None, None, 1, 2]),
        "per_proc": amounts(rng, NAMES, 1, 0.15),
    }
    if whole:
        fields |= {
            "min_nodes": rng.choice([1, 1, 1, 2]),
            "max_nodes": rng.choice([None, None, 1, 2]),
            "exclusive": rng.random() < 0.15,
            "all_memory": rng.random() < 0.1,
            "per_node": amounts(rng, NAMES, 2, 0.15),
            "per_job": amounts(rng, LICENCES, 2, 0.15),
        }
    return Shape(**fields)


def draw_job(rng: random.Random, id: str) -> tuple[Job, Placement]:
    """A job, a task or a piece with its placement."""
    nodes = {name: rng.randint(1, 3) for name in rng.sample(NODES, rng.choice([1, 1, 2, 3]))}
    start = rng.randrange(END)
    fields: dict[str, Any] = {"id": id, "memory_mb_per_proc": rng.choice([0, 0, 1, 3])}
    times: dict[str, Any] = {
        "job": id,
        "start": start,
        "end": start + rng.randint(0, 4),
        "nodes": nodes,
    }
    kind = rng.choice(["rigid", "rigid", "task", "own", "piece"])
    shape = draw_shape(rng, kind != "piece") if rng.random() < 0.8 else Shape()
    if kind == "rigid":
        job = RigidJob(procs=sum(nodes.values()), base_time=1.0, shape=shape, **fields)
        return job, Placement(**times)
    if kind == "piece":
        return DivisibleJob(work=9.0, chunk_s=1.0, shape=shape, **fields), Placement(
            chunks=1, **times
        )
    own = draw_shape(rng, True) if kind == "own" else None
    task = Task(id="t", work=1.0, max_procs=9, shape=own)
    return WorkflowJob(tasks=(task,), shape=shape, **fields), Placement(task="t", **times)


def draw_running(rng: random.Random, id: str) -> Running:
    nodes = dict.fromkeys(rng.sample(NODES, rng.randint(1, 2)), 1)
    return Running(
        id=id,
        nodes=nodes,
        start=-1.0,
        end=rng.randrange(END),
        memory_mb={name: rng.randint(0, 8) for name in nodes if rng.random() < 0.5},
        resources={n: amounts(rng, NAMES, 2, 0.3) for n in nodes if rng.random() < 0.5},
        per_job=amounts(rng, LICENCES, 2, 0.3),
    )


def naive(snapshot: Snapshot, placements: list[Placement]) -> Iterator[Fault]:
    """Look at every half second, and at every placement by itself."""
    jobs = {job.id: job for job in snapshot.queue}
    site, clusters = snapshot.resources, {c.name: c for c in snapshot.clusters}
    for p in placements:
        shape = shape_of(jobs[p.job])
        if len(p.nodes) < shape.min_nodes or len(p.nodes) > (shape.max_nodes or 99):
            yield "nodes", p.job
        if shape.procs_per_node and any(n > shape.procs_per_node for n in p.nodes.values()):
            yield "procs", p.job
        for name in shape.per_job:
            if name not in site and any(name not in clusters[k].resources for k in on(p)):
                yield "nowhere", p.job, name
    for at in [second + 0.5 for second in range(END + 5)]:
        here = [p for p in placements if p.start <= at < p.end]
        old = [r for r in snapshot.running if at < max(r.end, snapshot.time + snapshot.overrun_s)]
        for _, node in snapshot.nodes():
            new = [p for p in here if node.name in p.nodes]
            before = [r for r in old if node.name in r.nodes]
            if any(shape_of(jobs[p.job]).exclusive for p in new) and len(new) + len(before) > 1:
                yield "exclusive", node.name
            ours = Counter[str]()
            for p in new:
                ours += needs(jobs[p.job], node, p.nodes[node.name])
            theirs = Counter[str]()
            for r in before:
                theirs += held(r, node)
            have = {"slots": node.slots, "MiB": node.memory_mb, **stock(node.resources)}
            yield from over(f"node {node.name}", ours, theirs, have)
        for level, has in [*((k, c.resources) for k, c in clusters.items()), ("", site)]:
            mine = [shape_of(jobs[p.job]).per_job for p in here if level in (*on(p), "")]
            known = [r.per_job for r in old if level in (*on(r), "")]
            ours, theirs = (total(each, has) for each in (mine, known))
            yield from over(f"cluster {level}" if level else "site", ours, theirs, has)


def over(
    place: str, ours: Counter[str], theirs: Counter[str], have: Mapping[str, int | None]
) -> Iterator[Fault]:
    for name, count in ours.items():
        size = have.get(name, 0)
        if count and size is not None and count + theirs[name] > size:
            yield "over", place, name


def needs(job: Job, node: Node, procs: int) -> Counter[str]:
    """What so many processes need of a node."""
    shape, slots = shape_of(job), Fraction(procs)
    if shape.cpus_per_proc:
        cores = ceil(Fraction(procs * shape.cpus_per_proc, node.cpus_per_core))
        slots = Fraction(cores * node.cpus_per_core * node.slots, node.cpus or node.slots)
    memory = shape.memory_mb_per_node + job.memory_mb_per_proc * procs
    out = Counter({"slots": ceil(slots), "MiB": memory})
    if shape.all_memory:
        out["MiB"] = node.memory_mb or 0
    for amounts, times in ((shape.per_node, 1), (shape.per_proc, procs)):
        for name, count in amounts.items():
            for key in {name, name.partition(":")[0]}:
                out[key] += count * times
    return out


def held(work: Running, node: Node) -> Counter[str]:
    share = (node.memory_mb or 0) * work.nodes[node.name] // node.slots
    out = Counter({"slots": work.nodes[node.name], "MiB": work.memory_mb.get(node.name, share)})
    return out + Counter(stock(work.resources.get(node.name, {})))


def total(asked: list[Mapping[str, int]], has: Mapping[str, int]) -> Counter[str]:
    out = Counter[str]()
    for amounts in asked:
        for name, count in amounts.items():
            out[name] += count if name in has else 0
    return out


def stock(amounts: Mapping[str, int]) -> dict[str, int]:
    out = dict(amounts)
    for family in {name.partition(":")[0] for name in amounts if ":" in name}:
        typed = sum(n for name, n in amounts.items() if name.startswith(f"{family}:"))
        out[family] = max(typed, out.get(family, 0))
    return out


def shape_of(job: Job) -> Shape:
    own = job.tasks[0].shape if isinstance(job, WorkflowJob) else None
    return own or job.shape


def on(work: Placement | Running) -> set[str]:
    return {name[0] for name in work.nodes}


PATTERNS: list[tuple[str, Callable[[re.Match[str]], Fault]]] = [
    (r"(node \w+): \d+ (?:slots of|processes on) \d+ slots", lambda m: ("over", m[1], "slots")),
    (r"(node \w+|cluster \w+|the site): \d+ (\S+) of \d+ \S+ at", lambda m: ("over", m[1], m[2])),
    (r"node (\w+): is not left to its exclusive job", lambda m: ("exclusive", m[1])),
    (r"job (\w+)(?: task t)?: is on \d nodes, needs", lambda m: ("nodes", m[1])),
    (r"job (\w+)(?: task t)?: has \d processes on a node", lambda m: ("procs", m[1])),
    (r"job (\w+)(?: task t)?: (\S+) is nowhere on", lambda m: ("nowhere", m[1], m[2])),
]


def told(lines: tuple[str, ...]) -> set[Fault]:
    """The violations as `naive` names them; a line of another kind is itself."""
    found: set[Fault] = set()
    for line in lines:
        matches = [name(m) for pattern, name in PATTERNS if (m := re.match(pattern, line))]
        first = matches[0] if matches else (line,)
        found.add(tuple("site" if word == "the site" else word for word in first))
    return found
