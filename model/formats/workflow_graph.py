"""Tasks and edges of a workflow: whether they are a graph without cycles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown
from coalloc.model.jobs import Edge, Started, Task


def check_graph(
    tasks: Sequence[Task], edges: Sequence[Edge], where: str, started: Sequence[Started] = ()
) -> None:
    """Refuse duplicate ids, unknown ends of an edge, and cycles, naming the task."""
    if not started and _are_in_order(tasks, edges):
        return
    names: set[str] = set()
    for i, task in enumerate(tasks):
        if task.id in names:
            raise InputError(f"{where}.tasks[{i}].id", f"{shown(task.id)} is used twice")
        names.add(task.id)
    begun: set[str] = set()
    for i, one in enumerate(started):
        if one.task in names:
            raise InputError(f"{where}.started[{i}].task", f"{shown(one.task)} is among the tasks")
        if one.task in begun:
            raise InputError(f"{where}.started[{i}].task", f"{shown(one.task)} is named twice")
        begun.add(one.task)
    waits = dict.fromkeys(names, 0)
    children: dict[str, list[str]] = {name: [] for name in names}
    for i, edge in enumerate(edges):
        if edge.child in begun:
            raise InputError(f"{where}.edges[{i}].to", f"task {shown(edge.child)} has started")
        for end, name in (("from", edge.parent), ("to", edge.child)):
            if name not in names and not (end == "from" and name in begun):
                raise InputError(f"{where}.edges[{i}].{end}", f"there is no task {shown(name)}")
        if edge.parent in begun:
            continue
        waits[edge.child] += 1
        children[edge.parent].append(edge.child)
    ready = [task.id for task in tasks if not waits[task.id]]
    done = 0
    while ready:
        done += 1
        for child in children[ready.pop()]:
            waits[child] -= 1
            if not waits[child]:
                ready.append(child)
    if done < len(tasks):
        stuck = next(task.id for task in tasks if waits[task.id])
        raise InputError(f"{where}.edges", f"task {shown(stuck)} lies on or behind a cycle")


def _are_in_order(tasks: Collection[Task], edges: Iterable[Edge]) -> bool:
    """Every task comes once, and after its parents: so there is no cycle, and no end is missing.

    True of most files; where it is not, `check_graph` says what there is.
    """
    place = {task.id: n for n, task in enumerate(tasks)}
    if len(place) < len(tasks):
        return False
    missing = len(place)
    return all(place.get(e.parent, missing) < place.get(e.child, -1) for e in edges)
