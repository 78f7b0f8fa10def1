"""Plans: placements, deferrals, objective and bound."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from coalloc.model.ranges import Count, Derived, Name, Procs, Slots, Slowdown

if TYPE_CHECKING:
    from coalloc.model.snapshot import Snapshot

PLAN_FORMAT = "coalloc-plan/1"
ObjectiveName = Literal["makespan", "weighted_completion", "total_execution"]

NOTES = "notes"
"""Key of a plan's stats: an object that the same policy is handed again in the next round."""
OVERDUE = "overdue"
"""Entry of the notes: when waiting jobs go first, by id, seconds."""


class Status(StrEnum):
    """The end of a search; running out of time is never an optimum."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    TIME_LIMIT = "time_limit"
    HEURISTIC = "heuristic"
    INFEASIBLE = "infeasible"


class Reason(StrEnum):
    """Reason why a job has no start in a plan; exactly one each round."""

    INFEASIBLE = "infeasible"
    """Can never run: more than exists."""
    INSUFFICIENT = "insufficient"
    """Could run, but not with what is usable now (nodes down, draining, cluster stale)."""
    HELD = "held"
    DEPENDENCY = "dependency"
    """Waits for a job that is not in this plan."""
    BEGIN_TIME = "begin_time"
    """May not start yet, and the policy plans starts now only."""
    UNSUPPORTED = "unsupported"
    """The policy does not plan this kind of job."""
    NOT_SELECTED = "not_selected"
    """Left out of this round on purpose."""
    OUT_OF_TIME = "out_of_time"
    """The search ended before the job was placed."""
    SUPERSEDED = "superseded"
    """Planned to start now, but the state changed before the commit."""
    BACKING_OFF = "backing_off"
    """An executor refused it a moment ago."""
    UNKNOWN = "unknown"


class Placement(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """The nodes, start and end of a job, of a workflow's task, or of a piece of a divisible job."""

    job: Name
    """Job id."""
    task: str | None = None
    """Task id, in a workflow."""
    start: Derived
    """Start, s."""
    end: Derived
    """Planned end, s."""
    nodes: Mapping[str, Slots]
    """Processes on each node, in rank order."""
    sc: Slowdown = 1.0
    """Accepted static communication slowdown."""
    chunks: Procs | None = None
    """Chunks of this piece of a divisible job, which its processes share."""


class Deferred(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A job without a start in this plan, with one reason."""

    job: Name
    """Job id."""
    task: str | None = None
    """Task id, in a workflow."""
    reason: Reason
    """Why it has no start."""
    detail: str = ""
    """The reason in words."""


class Objective(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The objective: its name, the value reached, and the bound proved."""

    name: ObjectiveName
    """Objective."""
    value: Derived
    """Reached."""
    bound: Derived | None = None
    """Lower bound; null where none was sought."""
    deferred: Count = 0
    """Jobs without a start; values compare only where the same jobs are deferred."""

    @property
    def gap(self) -> float | None:
        """(value - bound) / bound, or None without a bound."""
        return None if self.bound is None else gap_of(self.value, self.bound)


def gap_of(value: float, bound: float) -> float | None:
    """(value - bound) / bound, or None where the bound proves nothing."""
    if value <= bound:
        return 0.0
    return (value - bound) / bound if bound > 0.0 else None


class FrontPoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One schedule of a bi-criteria front."""

    cmax: Derived
    """Makespan, s."""
    weighted_completion: Derived
    """Sum of weight times completion."""
    cmax_bound: Derived | None = None
    """Lower bound."""
    weighted_completion_bound: Derived | None = None
    """Lower bound."""
    pareto_gap: Derived | None = None
    """Certified gap."""
    placements: tuple[Placement, ...]
    """Placements."""


class Plan(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="format",
    tag=PLAN_FORMAT,
    forbid_unknown_fields=True,
):
    """The decision of one policy on one snapshot."""

    policy: Name
    """Registry name."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The policy's options."""
    status: Status
    """How the search ended."""
    objective: Objective
    """Objective."""
    placements: tuple[Placement, ...] = ()
    """Jobs with a start."""
    deferred: tuple[Deferred, ...] = ()
    """Jobs without one."""
    stats: Mapping[str, Any] = field(default_factory=dict)
    """Work, seed, times."""
    front: tuple[FrontPoint, ...] = ()
    """Non-dominated schedules."""
    chosen: Count | None = None
    """Index into front."""
    pareto_gap: Derived | None = None
    """Smallest gap of the front."""
    certificates: tuple[Mapping[str, Any], ...] = ()
    """Proofs of the bounds."""

    def to_dict(self) -> dict[str, Any]:
        """The plan as the JSON object of ``coalloc-plan/1``."""
        from coalloc.model.formats.plan_json import write_plan

        return write_plan(self)

    def write(self, path: str | PathLike[str]) -> None:
        """Write the plan as JSON, which ``coalloc check`` reads."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    def plot(
        self, path: str | PathLike[str] | None = None, *, snapshot: Snapshot | None = None
    ) -> str:
        """Draw the plan as a Gantt chart, and write it if there is a path.

        With the `snapshot`, clusters are named and split jobs have a colour of their own. Returns
        SVG; a notebook shows a plan in the same way.
        """
        from coalloc.model.pictures.plans import gantt

        nodes = () if snapshot is None else snapshot.nodes()
        svg = gantt(self, {node.name: cluster.name for cluster, node in nodes})
        if path is not None:
            Path(path).write_text(svg, encoding="utf-8")
        return svg

    _repr_svg_ = plot

    def __str__(self) -> str:
        from coalloc.model.pictures.plans import text

        return text(self)
