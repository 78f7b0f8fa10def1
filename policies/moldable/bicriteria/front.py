"""From the schedules of a pool of processors to schedules of the snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from coalloc.model.values import replace
from coalloc.policies.base import Budget, never
from coalloc.policies.kernel.instance.decoding import WEIGHTED, Planner, Schedule
from coalloc.policies.kernel.instance.graph import parents_first
from coalloc.policies.moldable.bicriteria.archive import Archive, ParetoPoint
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.queue import of_planner
from coalloc.policies.moldable.two_shelf import two_shelf_schedule
from coalloc.policies.published.demt import ShelfSearch, order_and_rows

LISTED = ("sequential", "list-shelf", "list-lptf", "list-saf", "list-smith")


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
    layer: Layer, archive: Archive[ParetoPoint], stop: Callable[[], bool] = never
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


def _decoded(layer: Layer, points: list[ParetoPoint]) -> Iterator[Schedule]:
    planner = layer.planner
    for point in points:
        order = np.argsort(point.start, kind="stable")
        yield layer.decode(order, point.rows)
        listed = parents_first(order.tolist(), planner.items)
        yield layer.decode(np.array(listed, dtype=np.int64), point.rows, "insert")
        for decoder in ("event", "insert"):
            yield planner.decode(listed, decoder)


def published(planner: Planner, budget: Budget) -> list[Laid]:
    """Schedules of `demt`, by both readings of its makespan, and of what it was compared with."""
    layer = Layer(planner, of_planner(planner))
    found = []
    for guess in ("reached", "accepted"):
        options = {"guess": guess, "selection": "auto", "shuffles": 20, "objective": WEIGHTED}
        search = ShelfSearch(layer, options, replace(budget, work=None))
        found.append(Laid(schedule=search.run().schedule))
    parts = [order_and_rows(name, layer.queue) for name in LISTED]
    schedules = [layer.lay(order, rows) for order, rows in parts]
    found += [Laid(schedule=schedule) for schedule in schedules if schedule is not None]
    shelves = two_shelf_schedule(layer.queue)
    found.append(Laid(schedule=layer.measured(shelves.rows, shelves.start)))
    return found
