"""Contents of a Gantt chart: a plan and the running work."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from coalloc.model.plan import Placement, Plan
from coalloc.model.values import replace

AT_ONCE_S = 1.0
"""Placements that start so soon after the plan was made were started with it, seconds."""


class Picture(Struct, frozen=True, kw_only=True):
    """Contents of a chart."""

    plan: Plan
    """Planned placements, then those that run."""
    begin: float | None = None
    """Left end, seconds on the plan's axis; None: the first start."""
    now: float | None = None
    """Where the line for now is; None: nowhere."""
    running: int = 0
    """How many placements, the last ones, run already."""

    def is_running(self, index: int) -> bool:
        """Tell if a placement runs already."""
        return index >= len(self.plan.placements) - self.running


def picture_of(plan: Plan, running: Sequence[Placement], made: float, now: float) -> Picture:
    """A plan beside what runs; `made` is when the plan was made.

    What has begun of the plan is left out: if it still runs, it is among `running`.
    """
    begun = {(one.job, one.task) for one in running}

    def is_to_come(place: Placement) -> bool:
        runs = (place.job, place.task) in begun
        if place.start > now or (runs and place.chunks is None):
            return not runs or place.chunks is not None
        return not runs and not (now > made + AT_ONCE_S and place.start <= made + AT_ONCE_S)

    planned = tuple(filter(is_to_come, plan.placements))
    return Picture(
        plan=replace(plan, placements=(*planned, *running)),
        begin=min(made, now),
        now=now,
        running=len(running),
    )
