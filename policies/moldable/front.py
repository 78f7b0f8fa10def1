"""From the schedules of a pool of processors to schedules of the snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from coalloc.policies.base import never
from coalloc.policies.kernel.decoding import Schedule
from coalloc.policies.moldable.archive import Archive, Point
from coalloc.policies.moldable.comparators import parents_first
from coalloc.policies.moldable.demt_laying import Layer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Laid:
    """A schedule of the snapshot."""

    schedule: Schedule

    @property
    def cmax(self) -> float:
        """Makespan, seconds from the snapshot's time."""
        return self.schedule.makespan

    @property
    def total(self) -> float:
        """Weighted completion."""
        return self.schedule.weighted_completion


def lay_front(
    layer: Layer, archive: Archive[Point], stop: Callable[[], bool] = never
) -> Archive[Laid]:
    """Lay points of the queue's archive on the snapshot; at least one, whatever `stop` says.

    Where the queue is exact, these are the schedules themselves. Elsewhere each gives the kernel an
    order and allotments, or only the order.
    """
    found: Archive[Laid] = Archive()
    if layer.is_exact:
        for point in archive.points:
            found.add(Laid(schedule=layer.measured(point.rows, point.start)))
        return found
    unplaced = len(layer.planner.items) + 1
    for schedule in _decoded(layer, archive.points):
        if schedule.unplaced < unplaced:
            found, unplaced = Archive(), schedule.unplaced
        if schedule.unplaced == unplaced:
            found.add(Laid(schedule=schedule))
        if stop():
            break
    return found


def _decoded(layer: Layer, points: list[Point]) -> Iterator[Schedule]:
    planner = layer.planner
    for point in points:
        order = np.argsort(point.start, kind="stable")
        yield layer.decode(order, point.rows)
        listed = parents_first(order.tolist(), planner.items)
        yield layer.decode(np.array(listed, dtype=np.int64), point.rows, "insert")
        for decoder in ("event", "insert"):
            yield planner.decode(listed, decoder)


__all__ = ["Laid", "lay_front"]
