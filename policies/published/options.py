"""Options of the published policies.

The docstring of a class that serves one policy is what the list of policies says of it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from coalloc.policies.options import (
    CoallocateMoldable,
    Coallocation,
    CommonOptions,
    GuardAfter,
    Objective,
    Options,
    PowerStep,
    WorkflowLinks,
)

SolverSeconds = Annotated[
    Annotated[float, Meta(gt=0)] | None,
    Meta(
        description="The solver stops after this long, s; null: the caller's limits alone.",
    ),
]
Threshold = Annotated[
    float,
    Meta(
        ge=1,
        le=1000,
        description="How far a link may be loaded beyond its capacity (SC); 1 forbids saturation.",
    ),
]
Selection = Annotated[
    Literal["auto", "knapsack", "greedy"],
    Meta(
        description="What fills a shelf: the knapsack, by weight / processors, or the first where "
        "it is small.",
    ),
]
Insertion = Annotated[
    bool,
    Meta(
        description="Use gaps between earlier placements; else nodes are free behind all they are "
        "given.",
    ),
]


class InstanceOptions(Options, frozen=True, kw_only=True):
    """Options of every policy with an objective of its own."""

    power_step: PowerStep = 0.0
    coallocation: Coallocation = "sooner"
    coallocate_moldable: CoallocateMoldable = False
    guard_after: GuardAfter = None


class NowOptions(InstanceOptions, frozen=True, kw_only=True):
    """Options of every policy that plans for one instant."""

    select: Literal["arrival", "skip", "largest"] = "arrival"
    """Jobs are taken by arrival up to the first that does not fit, or later ones too, or by falling
    size.
    """


class ProgramOptions(NowOptions, frozen=True, kw_only=True):
    """Those of them that solve a program."""

    solver_seconds: SolverSeconds = None
    largest_model: Annotated[int, Meta(ge=0)] = 50_000
    """A model of more variables is not built: the first plan stands."""


class MbpcOptions(ProgramOptions, frozen=True, kw_only=True):
    """Jobs that fit now, placed together for the least run times."""

    saturation_threshold: Threshold = 1.0


class PublishedOptions(ProgramOptions, frozen=True, kw_only=True):
    """MBPC by the paper's own model, a variable per job and node."""

    sc: Literal["clamped", "printed"] = "clamped"
    """SC is at least 1, or falls below 1 where links are not full, as equation (8) has it."""
    engine: Literal["mip", "search"] = "mip"
    """The program itself, or the tables of `mbpc` where they serve, which prove what it cannot."""


class JpnOptions(ProgramOptions, frozen=True, kw_only=True):
    """Jobs that fit now, with the least traffic."""

    ties: Literal["first", "strong", "weak", "random"] = "first"
    """Among allocations of least traffic: the first clusters and nodes, those that run soonest or
    longest, or any, by the seed.
    """


class CbsOptions(NowOptions, frozen=True, kw_only=True):
    """Options of `cbs`."""

    chunk: Annotated[float, Meta(gt=0, le=1)] = 0.75
    """Share of a job's processes that one cluster must hold."""


class SlotsOptions(InstanceOptions, frozen=True, kw_only=True):
    """Order and allocation in time slots: the published model, repaired."""

    solver_seconds: SolverSeconds = None
    largest_model: Annotated[int, Meta(ge=0)] = 500_000
    """A model of more rows and columns, about, is not built: the first plan stands."""
    engine: Literal["search", "mip"] = "search"
    """The exact search with run times rounded up to slots, or the published program."""
    saturation_threshold: Annotated[float, Meta(ge=1, le=32)] = 1.0
    """How far a link may be loaded beyond its capacity (SC); 1 forbids saturation."""
    slot: str = "50%"
    """Length of a slot: seconds, or a share of the mean base time such as 50%."""
    slots: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Slots of the program (theta); null: as many as the best simple order needs."""


class DemtOptions(CommonOptions, frozen=True, kw_only=True):
    """Moldable jobs on shelves of doubling length, for makespan and weighted completion."""

    objective: Objective = "weighted_completion"
    guess: Literal["reached", "accepted", "both"] = "both"
    """The approximate makespan: what the two-shelf allotments reach, the smallest guess accepted,
    or the better schedule of both.
    """
    selection: Selection = "auto"
    shuffles: Annotated[int, Meta(ge=0, le=100_000)] = 20
    """Random orders of the shelves that are tried after the order by length."""


class BicriteriaBatchOptions(CommonOptions, frozen=True, kw_only=True):
    """Moldable jobs in batches: what arrives meanwhile waits for the next one."""

    selection: Selection = "auto"


class MappedOptions(CommonOptions, frozen=True, kw_only=True):
    """Workflows by rank, where and as wide as a task ends first."""

    insertion: Insertion = True
    edge_data: bool = True
    """Data between tasks count in the priorities; the plan charges them in any case."""


class MHeftImpOptions(MappedOptions, frozen=True, kw_only=True):
    """M-HEFT, while a process more still gains much."""

    improvement: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """One more process must shorten the run by this share."""


class MHeftEffOptions(MappedOptions, frozen=True, kw_only=True):
    """M-HEFT, while a task stays efficient."""

    efficiency: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Least efficiency of an allotment, t(1) / (p t(p))."""


class MHeftMaxOptions(MappedOptions, frozen=True, kw_only=True):
    """M-HEFT, up to a share of each cluster."""

    share: Annotated[float, Meta(gt=0, le=1)] = 0.5
    """Share of a cluster's slots that one task may take."""


class CpaOptions(MappedOptions, frozen=True, kw_only=True):
    """Options of `hcpa` and `mcpa`."""

    packing: bool = True
    """A task takes fewer processes than allotted where it ends no later so."""


class McaHeftOptions(CommonOptions, frozen=True, kw_only=True):
    """Workflows by level, tasks that compute much spread over clusters."""

    mca: Annotated[float, Meta(ge=0)] | None = None
    """MCA: tasks with more seconds of work per GB of communication, times their parallel fraction,
    may be spread over clusters; null: by mca_share.
    """
    mca_share: Annotated[float, Meta(ge=0, le=1)] = 0.37
    """Share of the tasks that lie above MCA where mca is null."""
    mca_max: Annotated[float, Meta(gt=0, le=1)] = 0.25
    """MCAMAX: share of all nodes that one task may take."""
    mca_imp: Annotated[float, Meta(ge=0, le=1)] = 0.005
    """MCAIMP: one more process must shorten the run by this share."""
    free: Literal["level", "time"] = "level"
    """Free nodes are what earlier tasks of the level left, or what is free when the task's data are
    there.
    """
    insertion: Insertion = False
    workflow_links: WorkflowLinks = "idle"
    nodes: Literal["least-loaded", "best-fit"] = "least-loaded"
    """Without insertion: of equal nodes those that became free first, or last."""
    edge_data: bool = False
    """Data between tasks count in the ranks; the plan charges them in any case."""
