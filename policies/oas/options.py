"""Options of `oas`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from coalloc.policies.options import CommonOptions

Window = Annotated[
    int,
    Meta(
        ge=1,
        description="Jobs that are searched: the most passed over, then the heaviest, then the "
        "first; the others are listed behind them.",
    ),
]
Patience = Annotated[
    Annotated[int, Meta(ge=0)] | None,
    Meta(
        description="Moves per searched job without an improvement that end the search; null: "
        "never.",
    ),
]
ExactWork = Annotated[
    int,
    Meta(
        ge=0,
        description="Work of the exact search of a small window, or of at most 60 tasks that share "
        "a node and licences, in millionths of deterministic seconds of `ortools`, which it needs; "
        "0 leaves it out.",
    ),
]
Aim = Annotated[
    Literal["makespan", "weighted_completion", "makespan_then_weighted_completion"],
    Meta(description="What is minimised; of the last, the plan reports the makespan."),
]
PATIENCE = 10_000


class OasOptions(CommonOptions, frozen=True, kw_only=True):
    """Options of `oas`."""

    objective: Aim = "makespan"  # type: ignore[assignment]  # one choice more
    saturation_threshold: Annotated[float, Meta(ge=1)] = 1.0
    """How far links may be loaded beyond their capacity, slowing down who uses them."""
    window: Window = 100
    patience: Patience = PATIENCE
    exact_work: ExactWork = 10_000_000
