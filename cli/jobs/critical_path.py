"""The critical path of each workflow in a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coalloc.model.plan import Plan
from coalloc.runtime.texts import length

Edges = Mapping[str, Sequence[tuple[str, str]]]
"""Of each workflow, parents with their children."""

NAMED = 6


def critical_paths(plan: Plan, edges: Edges) -> dict[str, list[int]]:
    """Of each workflow, the chain of tasks that ends last: its placements, by rising start.

    From the task that ends last back to its parent that ends last, and so on: the chain whose delay
    delays the workflow. Tasks that have ended or run already are in no plan, nor here.
    """
    places: dict[str, dict[str, int]] = {}
    for index, placement in enumerate(plan.placements):
        if placement.task is not None:
            places.setdefault(placement.job, {})[placement.task] = index
    out = {}
    for job, of in places.items():
        parents: dict[str, list[int]] = {}
        for parent, child in edges.get(job, ()):
            if parent in of and child in of:
                parents.setdefault(child, []).append(of[parent])
        last: int | None = max(of.values(), key=lambda i: plan.placements[i].end)
        path: list[int] = []
        while last is not None:
            path.append(last)
            before = parents.get(plan.placements[last].task or "", ())
            last = max(before, key=lambda i: plan.placements[i].end, default=None)
        out[job] = path[::-1]
    return out


def path_lines(plan: Plan, paths: Mapping[str, Sequence[int]]) -> list[str]:
    """Each critical path in a line."""
    lines = []
    for job, path in paths.items():
        tasks = [plan.placements[i].task or "" for i in path]
        if len(tasks) > NAMED:
            tasks = [*tasks[: NAMED - 2], f"({len(tasks) - NAMED + 1} more)", tasks[-1]]
        seconds = plan.placements[path[-1]].end - plan.placements[path[0]].start
        lines.append(f"critical path of {job}, {length(seconds)}: {' > '.join(tasks)}")
    return lines
