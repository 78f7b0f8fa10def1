"""Options of the policies that plan for one instant, and of programs."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from coalloc.policies.options import (
    CoallocateMoldable,
    Coallocation,
    GuardAfter,
    Options,
    PowerStep,
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
    """Options of `mbpc` and `pas`."""

    saturation_threshold: Threshold = 1.0
