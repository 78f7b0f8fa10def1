"""Plans: placements, deferrals, objective and bound."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

NOTES = "notes"
"""Key of a plan's stats: an object that the same policy is handed again in the next round."""


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


class Placement(Struct, frozen=True, kw_only=True):
    """The nodes, start and end of a job, of a workflow's task, or of a piece of a divisible job.

    Attributes
    ----------
    nodes : mapping of node name to number of processes
        In rank order.
    sc : float
        Static communication slowdown accepted for this placement, at least 1.
    chunks : int or None
        Of a piece: how many chunks its processes share.
    """

    job: str
    start: float
    end: float
    nodes: Mapping[str, int]
    task: str | None = None
    sc: float = 1.0
    chunks: int | None = None


class Deferred(Struct, frozen=True, kw_only=True):
    """A job without a start in this plan, with one reason."""

    job: str
    reason: Reason
    detail: str = ""
    task: str | None = None


class Objective(Struct, frozen=True, kw_only=True):
    """The objective: its name, the value reached, and the bound proved.

    Attributes
    ----------
    name : str
        ``makespan``, ``weighted_completion`` or ``total_execution``.
    bound : float or None
        A lower bound; None where none was sought.
    deferred : int
        Jobs without a start; values compare only where the same jobs are deferred.
    """

    name: str
    value: float
    bound: float | None = None
    deferred: int = 0

    @property
    def gap(self) -> float | None:
        """(value - bound) / bound, or None without a bound."""
        if self.bound is None:
            return None
        if self.value <= self.bound:
            return 0.0
        return (self.value - self.bound) / self.bound if self.bound > 0.0 else None


class FrontPoint(Struct, frozen=True, kw_only=True):
    """One schedule of a bi-criteria front."""

    cmax: float
    weighted_completion: float
    cmax_bound: float | None
    weighted_completion_bound: float | None
    pareto_gap: float | None
    placements: tuple[Placement, ...]


class Plan(Struct, frozen=True, kw_only=True):
    """The decision of one policy on one snapshot."""

    policy: str
    status: Status
    objective: Objective
    placements: tuple[Placement, ...] = ()
    deferred: tuple[Deferred, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)
    front: tuple[FrontPoint, ...] = ()
    chosen: int | None = None
    pareto_gap: float | None = None
    certificates: tuple[Mapping[str, Any], ...] = ()
