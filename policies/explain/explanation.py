"""Contents of an explanation, in figures; frozen.

Times are seconds on the snapshot's axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from coalloc.policies.explain.changes import WhyChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """The resource of which too little is free: most nodes would do if there were enough of it."""

    name: str
    """``slots``, ``memory_mb`` or a counted resource."""
    needed: int
    """On each node, for an equal part of the job; what is free at most where only it lacks."""
    free: int
    beside: Mapping[str, int]
    """What else each node has to have."""
    nodes: int
    """Nodes that suit the job; of these, that would take a part now, or would but for it."""
    fit: int
    but_for_it: int
    wanted: int
    """Nodes that it needs, as placed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Slots that are free for the job."""

    needed: int
    """Processes, as placed."""
    power: float
    """Of the weakest node of its placement; `free_now` counts nodes at least as strong."""
    clusters: tuple[str, ...]
    """Where it is placed."""
    single: bool
    """It may use one cluster only, and `free_now` counts that one."""
    free_now: int
    """Processes that fit now, and at the start."""
    free_then: int
    enders: tuple[str, ...] = ()
    """Jobs that end at the start."""
    short_at: float | None = None
    """Where enough is free now: when too little is left, because of `short_by`."""
    short_left: int = 0
    short_by: tuple[str, ...] = ()
    weaker_now: int = 0
    """Processes that would fit now on weaker nodes."""
    short: Short | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingLink:
    """A link that binds."""

    cluster: str
    at: float
    """When the job could start if the link had no limit."""
    needed: float
    """Gbit/s: what it would then load the link with, what is left at that time, and the whole."""
    free: float
    capacity: float
    full_until: float | None = None
    """From when on there is as much left; None: never."""
    ender: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A constraint that keeps the job, and the effect of relaxing it alone."""

    kind: str
    """``hold dependency tasks earliest features memory clusters split link slots order running
    reachable nodes reservation``."""
    change: WhyChange
    """The relaxation."""
    start: float | None = None
    """Of the job under the relaxation alone; None where that does not help by itself."""
    end: float | None = None
    link: BindingLink | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """One change, or a few together, that was solved: when the job would run."""

    changes: tuple[WhyChange, ...]
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Reasons for which a job waits."""

    job: str
    time: float
    policy: str
    """Whose plan is explained."""
    reason: str
    """``starts_now``, ``waits`` or, without a start, the plan's reason."""
    detail: str = ""
    start: float | None = None
    """Planned; None without a start."""
    end: float | None = None
    slots: Slots | None = None
    constraints: tuple[Constraint, ...] = ()
    """That helps most if relaxed first. Each binds by itself, unless `several`."""
    several: bool = False
    """None of them helps alone; relaxed together they do."""
    counterfactual: Counterfactual | None = None
    complete: bool = True
    """Everything was tried; False where the time was over before."""
    tried: int = 0
    """Changed snapshots that were planned."""


def write_explanation(explanation: Explanation) -> Mapping[str, Any]:
    """The explanation as JSON objects."""
    return asdict(explanation)
