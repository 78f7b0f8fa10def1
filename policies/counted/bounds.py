"""Lower bounds by resource: each alone is one machine, which no plan can load more.

Notes
-----
Of item j, a_j is the least amount times seconds of a resource that it takes in any mode, p_j its
least run time; m is what all usable nodes, or the licences, have of the resource. Its head r_j is
the longest path of p to it, from releases on, its tail q_j that behind it. The last end is at least
r_j + p_j + q_j, and h + sum a_j / m + t over all items with r_j >= h and q_j >= t. Where all times
are whole, so is the least last end of one cluster. In any plan the mean busy times of items weigh
at least what Smith's order gives on one machine of speed m, and an item ends p_j / 2 after its own
(Eastman, Even and Isaacs, "Bounds for the optimal scheduling of n jobs on m processors", 1964), or
later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil

import numpy as np

from coalloc.model.shape import demands, supplies
from coalloc.policies.counted.planning import CountedQueue
from coalloc.policies.kernel.instance.graph import graph_of
from coalloc.policies.kernel.instance.modes import Item

ROUNDING = 1e-9


def bound_of(queue: CountedQueue, *, weighs: bool) -> float | None:
    """The largest bound of the makespan, or of the weighted completion; None: of no use."""
    items, nodes = queue.items, [queue.intake.nodes[n] for n in queue.tables.nodes]
    if not items or not nodes:
        return None
    power = max(node.power for node in nodes)
    ratios = [(node.cpus or node.slots) / node.slots for node in nodes]
    each = {"cpus": min(ratios), "slots": 1.0 / max(ratios)}
    sizes = Counter[str]()
    for node in nodes:
        sizes.update({"slots": node.slots, "cpus": node.cpus or node.slots})
        sizes.update({"memory": node.memory_mb or 0, **supplies(node.resources)})
    if any(node.memory_mb is None for node in nodes):
        del sizes["memory"]
    for k, name, size in queue.tables.pools:
        if k < 0 or name not in queue.snapshot.resources:
            sizes[_pool(name)] += size
    times = [[min(item.limit, m[1] / power + m[2]) for m in item.modes] for item in items]
    runs = [min(every) for every in times]
    graph = graph_of(items)
    heads = [max(item.release - queue.snapshot.time, 0.0) for item in items]
    for j in graph.order.tolist():
        heads[j] = max([heads[j], *(heads[p] + runs[p] for p, _ in items[j].parents)])
    tails: list[float] = graph.tail(np.array(runs)).tolist()
    ends = [head + p for head, p in zip(heads, runs, strict=True)]
    weights = [item.job.weight if item.task is None else 0.0 for item in items]
    lasts = sum(w * end for w, end in zip(weights, ends, strict=True))
    if not weighs:
        lasts = max(end + tail for end, tail in zip(ends, tails, strict=True))
    values = [lasts]
    for name, size in (+sizes).items():
        areas = [min(_areas(item, name, power, each)) / size for item in items]
        if not weighs:
            values.append(_between(heads, areas, tails))
            continue
        done = total = 0.0
        for j in sorted(range(len(items)), key=lambda j: areas[j] / (weights[j] or 1e-300)):
            done += areas[j]
            total += weights[j] * (done - areas[j] / 2.0 + runs[j] / 2.0)
        values.append(total)
    bound = max(values)
    even = len(queue.snapshot.clusters) == 1 == len({node.power for node in nodes})
    alone = even and not queue.tables.held and not queue.intake.reservations
    if alone and not weighs and all(t.is_integer() for t in sum(times, heads)):
        bound = ceil(bound * (1.0 - ROUNDING))
    return bound * (1.0 - ROUNDING)


def _between(heads: Sequence[float], areas: Sequence[float], tails: Sequence[float]) -> float:
    """The most that any items take after the least of their heads, before the least of their tails.

    What a resource takes of them, in seconds, is `areas`.
    """
    order = np.argsort(tails)[::-1]
    head, area, tail = (np.array(column)[order] for column in (heads, areas, tails))
    return max(
        float((h + np.cumsum(np.where(head >= h, area, 0.0)) + tail)[head >= h].max())
        for h in np.unique(head)
    )


def _pool(name: str) -> str:
    """Name of licences, which no resource of a node has."""
    return f"job {name}"


def _areas(item: Item, name: str, power: float, least: Mapping[str, float]) -> Iterator[float]:
    """Amount times seconds of a resource that each mode takes at least.

    `least`: CPUs of a slot, and slots of a CPU.
    """
    shape, each = item.shape, float(demands(item.shape.per_proc).get(name, 0))
    on_node, on_job = float(demands(shape.per_node).get(name, 0)), 0.0
    if name == "cpus":
        each = float(shape.cpus_per_proc or least[name])
    elif name == "slots":
        each = shape.cpus_per_proc * least[name] if shape.cpus_per_proc else 1.0
    elif name.startswith("job "):
        each, on_job = 0.0, float(shape.per_job.get(name.removeprefix("job "), 0))
    elif name == "memory":
        each, on_node = float(item.job.memory_mb_per_proc), float(shape.memory_mb_per_node)
    for procs, scaled, fixed, _ in item.modes:
        seconds = min(scaled / power + fixed, item.limit)
        yield (each * procs + on_node * shape.min_nodes + on_job) * seconds
