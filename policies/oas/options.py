"""Options of `oas`: its search, and its scenarios."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from coalloc.policies.oas.scenario_times import check_run_times
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
        description="Nodes that the exact search of a small window may explore; 0 leaves it out.",
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
    exact_work: ExactWork = 20_000_000
    scenarios: Annotated[int, Meta(ge=0, le=1000)] = 0
    """Samples of run times and arrivals that orders are judged on; 0: on the estimates."""
    scenario_objective: Literal["mean", "p90"] = "mean"
    """Of the objective's values in the samples: their mean, or their 90th percentile."""
    run_times: Annotated[str, Meta(extra={"check": check_run_times})] = "history"
    """Real by planned run time in the samples: history, exact, lognormal:MU,SIGMA (of its
    logarithm) or uniform:LOW,HIGH.
    """
    run_time_ratios: tuple[Annotated[float, Meta(gt=0)], ...] = ()
    """Ratios of real to planned run time that stand for a history where there is none."""
    arrivals: Annotated[float, Meta(ge=0)] = 0.0
    """Jobs per hour that may arrive before the plan's end, drawn like those in the queue."""
