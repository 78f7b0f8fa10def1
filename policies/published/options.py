"""Options of the published policies."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from coalloc.policies.allocation.options import (
    InstanceOptions,
    NowOptions,
    ProgramOptions,
    SolverSeconds,
)
from coalloc.policies.options import CommonOptions, Objective

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


class PublishedOptions(ProgramOptions, frozen=True, kw_only=True):
    """Options of `mbpc-published`."""

    sc: Annotated[
        Literal["clamped", "printed"],
        Meta(
            description="SC is at least 1, or falls below 1 where links are not full, as equation "
            "(8) has it.",
        ),
    ] = "clamped"


class JpnOptions(ProgramOptions, frozen=True, kw_only=True):
    """Options of `jpn`."""

    ties: Annotated[
        Literal["first", "strong", "weak", "random"],
        Meta(
            description="Among allocations of least traffic: the first clusters and nodes, those "
            "that run soonest or longest, or any, by the seed.",
        ),
    ] = "first"


class CbsOptions(NowOptions, frozen=True, kw_only=True):
    """Options of `cbs`."""

    chunk: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="Share of a job's processes that one cluster must hold.",
        ),
    ] = 0.75


class SlotsOptions(InstanceOptions, frozen=True, kw_only=True):
    """Options of `oas-slots`."""

    solver_seconds: SolverSeconds = None
    largest_model: Annotated[
        int,
        Meta(
            ge=0,
            description="A model of more rows and columns, about, is not built: the first plan "
            "stands.",
        ),
    ] = 500_000
    engine: Annotated[
        Literal["search", "mip"],
        Meta(
            description="The exact search with run times rounded up to slots, or the published "
            "program.",
        ),
    ] = "search"
    saturation_threshold: Annotated[
        float,
        Meta(
            ge=1,
            le=32,
            description="How far a link may be loaded beyond its capacity (SC); 1 forbids "
            "saturation.",
        ),
    ] = 1.0
    slot: Annotated[
        str,
        Meta(
            description="Length of a slot: seconds, or a share of the mean base time such as 50%.",
        ),
    ] = "50%"
    slots: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        Meta(
            description="Slots of the program (theta); null: as many as the best simple order "
            "needs.",
        ),
    ] = None


class DemtOptions(CommonOptions, frozen=True, kw_only=True):
    """Options of `demt`."""

    objective: Objective = "weighted_completion"
    guess: Annotated[
        Literal["reached", "accepted", "both"],
        Meta(
            description="The approximate makespan: what the two-shelf allotments reach, the "
            "smallest guess accepted, or the better schedule of both.",
        ),
    ] = "both"
    selection: Selection = "auto"
    shuffles: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000,
            description="Random orders of the shelves that are tried after the order by length.",
        ),
    ] = 20


class BicriteriaBatchOptions(CommonOptions, frozen=True, kw_only=True):
    """Options of `bicriteria-batch`."""

    selection: Selection = "auto"


class MappedOptions(CommonOptions, frozen=True, kw_only=True):
    """What every policy understands that maps by earliest finish time."""

    insertion: Insertion = True
    edge_data: Annotated[
        bool,
        Meta(
            description="Data between tasks count in the priorities; the plan charges them in any "
            "case.",
        ),
    ] = True


class MHeftImpOptions(MappedOptions, frozen=True, kw_only=True):
    """Options of `m-heft-imp`."""

    improvement: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="One more process must shorten the run by this share.",
        ),
    ] = 0.1


class MHeftEffOptions(MappedOptions, frozen=True, kw_only=True):
    """Options of `m-heft-eff`."""

    efficiency: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Least efficiency of an allotment, t(1) / (p t(p)).",
        ),
    ] = 0.5


class MHeftMaxOptions(MappedOptions, frozen=True, kw_only=True):
    """Options of `m-heft-max`."""

    share: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="Share of a cluster's slots that one task may take.",
        ),
    ] = 0.5


class CpaOptions(MappedOptions, frozen=True, kw_only=True):
    """Options of `hcpa` and `mcpa`."""

    packing: Annotated[
        bool,
        Meta(
            description="A task takes fewer processes than allotted where it ends no later so.",
        ),
    ] = True


class McaHeftOptions(CommonOptions, frozen=True, kw_only=True):
    """Options of `mca-heft`."""

    mca: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(
            description="MCA: tasks with more seconds of work per GB of communication, times their "
            "parallel fraction, may be spread over clusters; null: by mca_share.",
        ),
    ] = None
    mca_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Share of the tasks that lie above MCA where mca is null.",
        ),
    ] = 0.37
    mca_max: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="MCAMAX: share of all nodes that one task may take.",
        ),
    ] = 0.25
    mca_imp: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="MCAIMP: one more process must shorten the run by this share.",
        ),
    ] = 0.005
    free: Annotated[
        Literal["level", "time"],
        Meta(
            description="Free nodes are what earlier tasks of the level left, or what is free when "
            "the task's data are there.",
        ),
    ] = "level"
    insertion: Insertion = False
    nodes: Annotated[
        Literal["least-loaded", "best-fit"],
        Meta(
            description="Without insertion: of equal nodes those that became free first, or last.",
        ),
    ] = "least-loaded"
    edge_data: Annotated[
        bool,
        Meta(
            description="Data between tasks count in the ranks; the plan charges them in any case.",
        ),
    ] = False
