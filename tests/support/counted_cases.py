"""Random queues with shapes, a judge of their plans, and EASY on dictionaries.

Nothing here is shared with the engine but the model's values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf
from random import Random
from typing import Any

from coalloc.model.plan import Plan
from coalloc.model.shape import Shape
from coalloc.model.snapshot import Snapshot

ALL = "all"


def random_case(draws: Random, *, easy: bool = False) -> dict[str, Any]:
    """A snapshot as JSON; `easy`: what `easy_starts` knows."""
    pick = draws.choice
    clusters: list[dict[str, Any]] = [
        {
            "name": name,
            "link_gbps": pick([0.4, 1.0, 5.0]),
            "resources": {} if easy else pick([{}, {"lic": 2}, {"lic": 3}]),
            "nodes": [
                {
                    "name": f"{name}{n}",
                    "slots": slots,
                    "cpus": pick([slots, slots, slots * 2]),
                    "cpus_per_core": pick([1, 1, 1, 2]),
                    "memory_mb": pick([None, 8, 16]),
                    "power": 1.0 if easy else pick([1.0, 1.0, 0.5]),
                    "resources": pick([{}, {"gpu:a": 2}, {"gpu:a": 1, "gpu:b": 1}, {"gpu": 2}]),
                    "features": pick([[], [], ["f"]]),
                    "state": pick(["up"] * 8 + ["draining"]),
                }
                for n in range(draws.randint(1, 4))
                for slots in [pick([1, 2, 4, 4, 8])]
            ],
        }
        for name in ("a", "b")[: 1 if easy else draws.randint(1, 2)]
    ]
    queue = [_random_job(draws, n, easy=easy) for n in range(draws.randint(1, 9))]
    running = []
    for number, node in enumerate(clusters[0]["nodes"]):
        if draws.random() < 0.4:
            one = {"id": f"r{number}", "nodes": {node["name"]: 1}, "start": -5.0}
            one["end"] = float(draws.randint(1, 12))
            if draws.random() < 0.5 and node["memory_mb"]:
                one["memory_mb"] = {node["name"]: draws.randint(0, 8)}
            if draws.random() < 0.5 and node["resources"]:
                one["resources"] = {node["name"]: {next(iter(node["resources"])): 1}}
            running.append(one)
    reservations = []
    if not easy and draws.random() < 0.4:
        name = pick([node["name"] for cluster in clusters for node in cluster["nodes"]])
        start = float(draws.randint(0, 9))
        reservations.append(
            {"id": "v", "nodes": [name], "start": start, "end": start + 7.0, "jobs": ["j0"]}
        )
    return {
        "format": "coalloc-snapshot/1",
        "clusters": clusters,
        "queue": queue,
        "running": running,
        "reservations": reservations,
        "resources": {} if easy else pick([{}, {"lic": 3}, {"site": 2}]),
        "overrun_s": 0.0,
    }


def _random_job(draws: Random, n: int, *, easy: bool) -> dict[str, Any]:
    pick = draws.choice
    procs = pick([1, 1, 2, 2, 3, 4, 6])
    shape: dict[str, Any] = {
        "cpus_per_proc": pick([0, 1, 1, 1, 2, 3]),
        "memory_mb_per_node": pick([0, 0, 2, 5]),
        "min_nodes": min(procs, pick([1, 1, 1, 2, 3])),
        "exclusive": draws.random() < 0.1,
        "all_memory": draws.random() < 0.1,
        "per_node": pick([{}, {}, {}, {}, {"gpu": 1}, {"gpu:a": 1}]),
        "per_proc": pick([{}, {}, {}, {}, {}, {"gpu": 1}]),
    }
    if draws.random() < 0.3:
        shape["procs_per_node"] = draws.randint(1, 3)
    if draws.random() < 0.3:
        fewest = -(-procs // shape.get("procs_per_node", procs))
        shape["max_nodes"] = max(shape["min_nodes"], fewest, draws.randint(1, 3))
    if not easy and draws.random() < 0.3:
        shape["per_job"] = pick([{"lic": 1}, {"site": 1}])
    job = {"id": f"j{n}", "kind": "rigid", "procs": procs, "base_time": float(draws.randint(1, 9))}
    if draws.random() < 0.85:
        job["shape"] = shape
    if shape["all_memory"]:
        shape["memory_mb_per_node"] = 0
    else:
        job["memory_mb_per_proc"] = pick([0, 0, 0, 1, 3])
    if not easy:
        job |= {"proc_gbps": pick([0.0, 0.1, 0.5]), "weight": pick([1.0, 3.0])}
        job |= {"features": pick([[], [], ["f"]]), "earliest": pick([0.0, 0.0, 4.0])}
        if draws.random() < 0.2:
            job["after"] = [f"j{draws.randint(0, n)}"]
        if draws.random() < 0.2:
            job |= {"kind": "moldable", "times": [9.0, 6.0, 5.0, 4.0][: draws.randint(1, 4)]}
            del job["procs"], job["base_time"]
            shape["min_nodes"] = 1
            shape.pop("max_nodes", None)
    return job


def needs(shape: Shape, memory: int, node: Any, procs: int) -> dict[str, float]:
    """What a job takes of a node, by name; a family counts its types."""
    out: Any = Counter()
    for amounts, times in ((shape.per_node, 1), (shape.per_proc, procs)):
        for name, count in amounts.items():
            out[name] += count * times
            if ":" in name:
                out[name.partition(":")[0]] += count * times
    out["slots"] = procs
    if shape.cpus_per_proc:
        cores = -(-procs * shape.cpus_per_proc // node.cpus_per_core)
        out["slots"] = -(-cores * node.cpus_per_core * node.slots // (node.cpus or node.slots))
    out["memory"] = shape.memory_mb_per_node + memory * procs
    if shape.all_memory:
        out["memory"] = node.memory_mb or 0
    if shape.exclusive:
        out |= {name: size for name, size in sizes(node).items() if name != "memory"}
    return dict(out)


def sizes(node: Any) -> dict[str, float]:
    """What a node has, by name."""
    out: Any = Counter()
    for name, count in node.resources.items():
        if ":" in name:
            out[name.partition(":")[0]] += count
    out = Counter({name: max(count, node.resources.get(name, 0)) for name, count in out.items()})
    memory = inf if node.memory_mb is None else node.memory_mb
    return {**node.resources, **out, "slots": node.slots, "memory": memory}


def held(snapshot: Snapshot) -> list[tuple[str, float, float, dict[str, float]]]:
    """Node, begin, end and amounts of what runs."""
    nodes = {node.name: node for _, node in snapshot.nodes()}
    out = []
    for work in snapshot.running:
        for name, slots in work.nodes.items():
            taken: Any = Counter()
            node = nodes[name]
            for kind, count in work.resources.get(name, {}).items():
                taken[kind] += count
                if ":" in kind:
                    taken[kind.partition(":")[0]] += count
            share = (node.memory_mb or 0) * slots // node.slots
            amounts: dict[str, float] = {
                **taken,
                "slots": slots,
                "memory": work.memory_mb.get(name, share),
            }
            out.append((name, -inf, max(work.end, snapshot.time + snapshot.overrun_s), amounts))
    return out


def faults(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Whatever is wrong with a plan of rigid and moldable jobs."""
    out, jobs = [], {job.id: job for job in snapshot.queue}
    nodes = {node.name: node for _, node in snapshot.nodes()}
    home = {node.name: cluster for cluster, node in snapshot.nodes()}
    uses: list[tuple[str, float, float, dict[str, float]]] = held(snapshot)
    rows: dict[str, dict[str, float]] = {name: sizes(node) for name, node in nodes.items()}
    pools = {f"{c.name}/": dict(c.resources) for c in snapshot.clusters}
    pools |= {"/": dict(snapshot.resources)}
    rows |= {name: {k: float(v) for k, v in has.items()} for name, has in pools.items()}
    for cluster in snapshot.clusters:
        rows[f"{cluster.name}/"]["link"] = cluster.link_gbps * (1 + 1e-9)
    alone = []
    for one in plan.placements:
        job, shape = jobs[one.job], jobs[one.job].shape
        procs, count = sum(one.nodes.values()), len(one.nodes)
        if not shape.min_nodes <= count <= (shape.max_nodes or count):
            out.append(f"{job.id}: {count} nodes")
        if max(one.nodes.values()) > (shape.procs_per_node or procs):
            out.append(f"{job.id}: {one.nodes}")
        if procs != getattr(job, "procs", procs) or one.start < job.earliest:
            out.append(f"{job.id}: {procs} processes at {one.start}")
        if any(not set(job.features) <= set(nodes[name].features) for name in one.nodes):
            out.append(f"{job.id}: features")
        if any(nodes[name].state.value != "up" for name in one.nodes):
            out.append(f"{job.id}: state")
        if any(p.job in job.after and p.end > one.start for p in plan.placements):
            out.append(f"{job.id}: {job.after}")
        inside: Counter[str] = Counter()
        for name, n in one.nodes.items():
            amounts = needs(shape, job.memory_mb_per_proc, nodes[name], n)
            uses.append((name, one.start, one.end, amounts))
            inside[home[name].name] += n
            if shape.exclusive:
                alone.append((name, one.start, one.end, job.id))
            for kept in snapshot.reservations:
                meets = one.start < kept.end and kept.start < one.end
                if meets and name in kept.nodes and job.id not in kept.jobs:
                    out.append(f"{job.id}: reserved {name}")
        for name, n in inside.items():
            load = getattr(job, "proc_gbps", 0.0) or 0.0
            load = load * n * (procs - n) / (procs - 1) if procs > n else 0.0
            own: dict[str, float] = {
                k: v for k, v in shape.per_job.items() if k in rows[f"{name}/"]
            }
            uses.append((f"{name}/", one.start, one.end, {"link": load, **own}))
            for licence in shape.per_job:
                if licence not in rows[f"{name}/"] and licence not in rows["/"]:
                    out.append(f"{job.id}: no {licence}")
        site: dict[str, float] = {k: v for k, v in shape.per_job.items() if k in rows["/"]}
        uses.append(("/", one.start, one.end, site))
    for row, at, _, _ in uses:
        there = [use for use in uses if use[0] == row and use[1] <= at < use[2]]
        if at == -inf or not any(use[1] > -inf for use in there):
            continue
        total: Counter[str] = Counter()
        for use in there:
            total.update(use[3])
        for name, amount in total.items():
            ours = any(use[1] > -inf and use[3].get(name) for use in there)
            if ours and amount > rows[row].get(name, 0):
                out.append(f"{row} at {at}: {amount} {name} of {rows[row].get(name, 0)}")
    for name, start, end, who in alone:
        if sum(use[0] == name and use[1] < end and start < use[2] for use in uses) > 1:
            out.append(f"{who}: not alone on {name}")
    return out


def filled(job: Any, room: Mapping[str, int]) -> Mapping[str, int]:
    """The processes of a job on as few nodes as may be, the last the fullest that will do."""
    left, values = job.procs, list[int]()
    while left:
        want = left - max(job.shape.min_nodes - len(values) - 1, 0)
        free = list((Counter(room.values()) - Counter(values)).elements())
        value = min((n for n in free if n >= want), default=max(free))
        values.append(value)
        left -= min(value, want)
    left, out = job.procs, {}
    for name, n in room.items():
        if n in values:
            values.remove(n)
            out[name] = min(n, left - len(values))
            left -= out[name]
    return out


def easy_starts(snapshot: Snapshot) -> dict[str, float]:
    """EASY by arrival on one cluster of equal powers: the start of each job that fits ever."""
    nodes = [node for _, node in snapshot.nodes() if node.state.value == "up"]
    uses = held(snapshot)
    starts: dict[str, float] = {}
    queue: Any = snapshot.queue
    caps: dict[str, int] = {job.id: job.procs for job in queue}

    def most(job: Any, node: Any, t: float, e: float) -> int:
        """Processes that fit on a node all the time."""
        there = [use for use in uses if use[0] == node.name and use[1] < e and t < use[2]]
        if job.shape.exclusive and any(use[3]["slots"] for use in there):
            return 0
        best = 0
        for procs in range(1, min(caps[job.id], job.shape.procs_per_node or 99) + 1):
            wanted, good = needs(job.shape, job.memory_mb_per_proc, node, procs), True
            for at in {t, *(use[1] for use in there if use[1] > t)}:
                total = Counter(wanted)
                for use in there:
                    if use[1] <= at < use[2]:
                        total.update(use[3])
                good = good and all(
                    total[name] <= sizes(node).get(name, 0) for name, n in wanted.items() if n
                )
            best = procs if good else best
        return best

    def chosen(job: Any, t: float) -> Mapping[str, int] | None:
        """Nodes that have room for a job from `t` on; None: too few."""
        room = {node.name: most(job, node, t, t + job.base_time) for node in nodes}
        room = {name: n for name, n in room.items() if n}
        high = job.shape.max_nodes or len(nodes)
        if len(room) < job.shape.min_nodes:
            return None
        if sum(sorted(room.values(), reverse=True)[:high]) < job.procs:
            return None
        return filled(job, room)

    def place(job: Any, t: float, found: Mapping[str, int]) -> None:
        starts[job.id] = t
        by_name = {node.name: node for node in nodes}
        for name, n in found.items():
            amounts = needs(job.shape, job.memory_mb_per_proc, by_name[name], n)
            uses.append((name, t, t + job.base_time, amounts))

    never = {job.id for job in queue if chosen(job, 1e9) is None}
    # nodes are told apart by their room for as many processes as any job of a form has
    for job in queue:
        alike = [j for j in queue if j.id not in never and j.shape == job.shape]
        alike = [j for j in alike if j.memory_mb_per_proc == job.memory_mb_per_proc]
        caps[job.id] = max((j.procs for j in alike), default=job.procs)
    t, head = 0.0, -inf
    while True:
        for job in queue:
            if job.id in starts or job.id in never:
                continue
            if (found := chosen(job, t)) is not None:
                place(job, t, found)
            elif head <= t:
                times = sorted({use[2] for use in uses if use[2] > t})
                tried = ((at, chosen(job, at)) for at in times)
                at, found = next(((at, one) for at, one in tried if one is not None), (t, None))
                if found is None:
                    never.add(job.id)
                else:
                    place(job, at, found)
                    head = at
        later = [use[2] for use in uses if use[2] > t]
        if not later or len(starts) + len(never) == len(queue):
            return starts
        t = min(later)
