"""Lower bounds by resource: each alone is one machine, which no plan can load more.

Notes
-----
Of item j, a_j is the least amount times seconds of a resource that it takes in any mode, p_j its
least run time, r_j its release; m is what all usable nodes have of the resource. The last end is at
least max(r_j + p_j) and sum a_j / m. In any plan the mean busy times of items weigh at least what
Smith's order gives on one machine of speed m, and an item ends p_j / 2 after its own (Eastman, Even
and Isaacs, "Bounds for the optimal scheduling of n jobs on m processors", 1964), or later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from coalloc.model.shape import demands, supplies
from coalloc.policies.counted.planning import CountedQueue
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
    runs = [min(item.limit, *(m[1] / power + m[2] for m in item.modes)) for item in items]
    ends = [max(i.release - queue.snapshot.time, 0.0) + p for i, p in zip(items, runs, strict=True)]
    weights = [item.job.weight if item.task is None else 0.0 for item in items]
    lasts = sum(w * end for w, end in zip(weights, ends, strict=True)) if weighs else max(ends)
    values = [lasts]
    for name, size in sizes.items():
        areas = [min(_areas(item, name, power, each)) / size for item in items]
        if not weighs:
            values.append(sum(areas))
            continue
        done = total = 0.0
        for j in sorted(range(len(items)), key=lambda j: areas[j] / (weights[j] or 1e-300)):
            done += areas[j]
            total += weights[j] * (done - areas[j] / 2.0 + runs[j] / 2.0)
        values.append(total)
    return max(values) * (1.0 - ROUNDING)


def _areas(item: Item, name: str, power: float, least: Mapping[str, float]) -> Iterator[float]:
    """Amount times seconds of a resource that each mode takes at least.

    `least`: CPUs of a slot, and slots of a CPU.
    """
    shape, each = item.shape, float(demands(item.shape.per_proc).get(name, 0))
    on_node = float(demands(shape.per_node).get(name, 0))
    if name == "cpus":
        each = float(shape.cpus_per_proc or least[name])
    elif name == "slots":
        each = shape.cpus_per_proc * least[name] if shape.cpus_per_proc else 1.0
    elif name == "memory":
        each, on_node = float(item.job.memory_mb_per_proc), float(shape.memory_mb_per_node)
    for procs, scaled, fixed, _ in item.modes:
        seconds = min(scaled / power + fixed, item.limit)
        yield (each * procs + on_node * shape.min_nodes) * seconds
