"""Options of policies: their tables, and reading them from a command line or from JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from coalloc.model.errors import InputError
from coalloc.model.fields import Field, Table, shown
from coalloc.model.values import replace
from coalloc.policies.moldable.preference import check_preference
from coalloc.policies.oas.scenario_times import check_run_times

GUARD = Field(
    kind="integer",
    low=0,
    nullable=True,
    default=None,
    doc="Jobs passed over this often are booked first, the others around them; 0 or null is off.",
)
OBJECTIVE = Field(
    kind="text",
    choices=("makespan", "weighted_completion"),
    default="makespan",
    doc="What the plan reports as its objective.",
)

COMMON: Table = {
    "objective": OBJECTIVE,
    "power_step": Field(
        kind="number",
        low=0,
        high=1,
        default=0.0,
        doc="Powers are rounded down to this step before nodes are grouped; 0 keeps them exact.",
    ),
    "coallocation": Field(
        kind="text",
        choices=("sooner", "needed", "forbidden"),
        synonyms=(("allowed", "sooner"), ("preferred-single", "needed")),
        default="sooner",
        doc="When a job is split: where it ends sooner (or: allowed), where no cluster could hold "
        "it (or: preferred-single), or never.",
    ),
    "coallocate_moldable": Field(
        kind="flag", default=False, doc="Split moldable jobs that name no proc_gbps, too."
    ),
    "guard_after": GUARD,
}
"""Options of every policy on the kernel."""

STRICT: Table = {
    **COMMON,
    "skip": Field(
        kind="flag", default=False, doc="Let later jobs start while an earlier one does not fit."
    ),
}

EASY_ORDERS: Mapping[str, str] = {
    "easy": "arrival",
    "easy-spf": "shortest",
    "easy-saf": "smallest-area",
    "easy-f1": "f1",
    "easy-f2": "f2",
    "easy-f3": "f3",
    "easy-f4": "f4",
    "easy-wfp3": "wfp3",
    "easy-unicef": "unicef",
}
"""The forms of EASY, and the order that each gives its queue and its backfilling."""


ORDERS = (*EASY_ORDERS.values(), "fewest", "most", "longest")
"""Orders that EASY's queue and its backfilling can have."""


WAIT_LIMIT = Field(
    kind="number",
    low=0,
    nullable=True,
    default=86_400.0,
    doc="Seconds; jobs that have waited so long go first, in arrival order; null: none do.",
)


def easy_options(name: str) -> Table:
    """Options of a form of EASY."""
    order = EASY_ORDERS[name]
    return {
        **COMMON,
        "queue_order": Field(
            kind="text",
            choices=ORDERS,
            default=order,
            doc="Order in which jobs start, and of which the first that does not fit keeps a "
            "reservation; formulas in docs/policies/easy.md.",
        ),
        "backfill_order": Field(
            kind="text",
            choices=ORDERS,
            default=order,
            doc="Order in which later jobs may start beside that reservation.",
        ),
        "wait_limit": WAIT_LIMIT,
    }


SJBF: Table = {**COMMON, "wait_limit": WAIT_LIMIT}

SEARCH: Table = {
    "window": Field(
        kind="integer",
        low=1,
        default=100,
        doc="Jobs that are searched: the most passed over, then the heaviest, then the first; the "
        "others are listed behind them.",
    ),
    "patience": Field(
        kind="integer",
        low=0,
        nullable=True,
        default=10_000,
        doc="Moves per searched job without an improvement that end the search; null: never.",
    ),
    "exact_work": Field(
        kind="integer",
        low=0,
        default=20_000_000,
        doc="Nodes that the exact search of a small window may explore; 0 leaves it out.",
    ),
}
"""Options of the search of `oas`."""

SCENARIOS: Table = {
    "scenarios": Field(
        kind="integer",
        low=0,
        high=1000,
        default=0,
        doc="Samples of run times and arrivals that orders are judged on; 0: on the estimates.",
    ),
    "scenario_objective": Field(
        kind="text",
        choices=("mean", "p90"),
        default="mean",
        doc="Of the objective's values in the samples: their mean, or their 90th percentile.",
    ),
    "run_times": Field(
        kind="text",
        default="history",
        check=check_run_times,
        doc="Real by planned run time in the samples: history, exact, lognormal:MU,SIGMA (of its "
        "logarithm) or uniform:LOW,HIGH.",
    ),
    "run_time_ratios": Field(
        kind="numbers",
        low=0,
        above=True,
        default=(),
        doc="Ratios of real to planned run time that stand for a history where there is none.",
    ),
    "arrivals": Field(
        kind="number",
        low=0,
        default=0.0,
        doc="Jobs per hour that may arrive before the plan's end, drawn like those in the queue.",
    ),
}
"""Options of `oas` for scenarios."""

OAS: Table = {
    **COMMON,
    "objective": Field(
        kind="text",
        choices=("makespan", "weighted_completion", "makespan_then_weighted_completion"),
        default="makespan",
        doc="What is minimised; of the last, the plan reports the makespan.",
    ),
    "saturation_threshold": Field(
        kind="number",
        low=1,
        default=1.0,
        doc="How far links may be loaded beyond their capacity, slowing down who uses them.",
    ),
    **SEARCH,
    **SCENARIOS,
}


def _with_default(field: Field, default: Any) -> Field:
    return replace(field, default=default)


DEMT: Table = {
    **COMMON,
    "objective": _with_default(OBJECTIVE, "weighted_completion"),
    "guess": Field(
        kind="text",
        choices=("reached", "accepted", "both"),
        default="both",
        doc="The approximate makespan: what the two-shelf allotments reach, the smallest guess "
        "accepted, or the better schedule of both.",
    ),
    "selection": Field(
        kind="text",
        choices=("auto", "knapsack", "greedy"),
        default="auto",
        doc="What fills a shelf: the knapsack, by weight / processors, or the first where it is "
        "small.",
    ),
    "shuffles": Field(
        kind="integer",
        low=0,
        high=100_000,
        default=20,
        doc="Random orders of the shelves that are tried after the order by length.",
    ),
}
"""Options of `demt`."""


BATCH: Table = {**COMMON, "selection": DEMT["selection"]}
"""Options of `bicriteria-batch`."""

ROLLING: Table = {
    "form": Field(
        kind="text",
        choices=("auto", "plan", "rolling"),
        default="auto",
        doc="Plan the queue as if nothing more arrived, or in the rolling form; auto: rolling in "
        "the daemon and in simulate.",
    ),
    "guard_after": _with_default(GUARD, 10),
    "allotment": Field(
        kind="text",
        choices=("price", "efficiency"),
        default="price",
        doc="Width of a waiting job in the rolling form: the least weighted cost at the price of "
        "processors now, or the widest of an efficiency that load and queue set.",
    ),
    "squeeze": Field(
        kind="number",
        low=0,
        high=1,
        default=0.6,
        doc="Share of the wanted processors on which a job may start in the rolling form.",
    ),
    "stretch": Field(
        kind="number",
        low=1,
        default=1.3,
        doc="Times the wanted processors that a job may take where nobody waits.",
    ),
    "reserve_after": Field(
        kind="number",
        low=0,
        default=10.0,
        doc="Times its run time that a job has waited when it may keep a reservation; the one "
        "that has waited longest so measured does.",
    ),
}
"""Further options of the rolling form of `bicriteria`."""

AUTO: Table = {
    **COMMON,
    "objective": _with_default(OBJECTIVE, "weighted_completion"),
    "guard_after": _with_default(GUARD, 0),
    "wait_limit": WAIT_LIMIT,
    "order_tolerance": Field(
        kind="number",
        low=0,
        high=1,
        default=0.0,
        doc="Share of the objective that another order must gain before it replaces the first.",
    ),
    "window": SEARCH["window"],
    "patience": _with_default(SEARCH["patience"], 50),
    "exact_work": _with_default(SEARCH["exact_work"], 200_000),
}
"""Options of `auto`."""

BICRITERIA: Table = {
    **COMMON,
    "objective": _with_default(OBJECTIVE, "weighted_completion"),
    "prefer": Field(
        kind="text",
        default="balanced",
        check=check_preference,
        doc="Which point of the front is the plan: cmax, balanced, minsum, or the least weighted "
        "completion of a makespan of at most so many seconds: cmax<=SECONDS.",
    ),
    "search": Field(
        kind="integer",
        low=0,
        default=250_000,
        doc="Jobs that the search may place or price, about 1 s for 400 jobs.",
    ),
    "points": Field(
        kind="integer", low=3, high=100, default=8, doc="Points of the front, at most."
    ),
    "certify": Field(
        kind="flag",
        default=True,
        doc="Seek more prices after the search, that prove a smaller Pareto gap.",
    ),
    **ROLLING,
}
"""Options of `bicriteria`."""


def read_options(given: Mapping[str, Any], table: Table, where: str = "options") -> dict[str, Any]:
    """Complete a mapping of options with the defaults.

    Raises
    ------
    InputError
        ``options.skip: 3 is not true or false``, or the names that exist if one is unknown.
    """
    out = {name: field.default for name, field in table.items()}
    for name, value in given.items():
        out[name] = _known(name, table, where).read(value, f"{where}.{name}")
    return out


def parse_options(texts: Iterable[str], table: Table, where: str = "--set") -> dict[str, Any]:
    """Read ``name=value`` texts; the result holds only what was named.

    Values are JSON; a text needs no quotes.

    Raises
    ------
    InputError
    """
    out: dict[str, Any] = {}
    for text in texts:
        name, equals, raw = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise InputError(where, f"{shown(text)} is not of the form name=value")
        field = _known(name, table, where)
        out[name] = field.read(_value(raw, field), f"{where} {name}")
    return out


def _value(raw: str, field: Field) -> Any:
    if field.kind == "text" and not raw.startswith('"'):
        return raw
    if field.kind == "number":
        try:
            return float(raw)  # takes .5 as well, which JSON does not
        except ValueError:
            pass
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def _known(name: str, table: Table, where: str) -> Field:
    if name not in table:
        names = ", ".join(sorted(table)) or "none"
        raise InputError(f"{where} {name}", f"unknown option; this policy has {names}")
    return table[name]
