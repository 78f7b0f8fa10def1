"""Options of the published models."""

from __future__ import annotations

from coalloc.model.fields import Field, Table
from coalloc.model.values import replace
from coalloc.policies.options import COMMON

NOW: Table = {
    **{name: field for name, field in COMMON.items() if name != "objective"},
    "select": Field(
        kind="text",
        choices=("arrival", "skip", "largest"),
        default="arrival",
        doc="Jobs are taken by arrival up to the first that does not fit, or later ones too, "
        "or by falling size.",
    ),
}
"""What every policy understands that plans for one instant."""

MIP: Table = {
    "solver": Field(
        kind="text", choices=("highs", "cbc"), default="highs", doc="Who solves the model."
    ),
    "solver_seconds": Field(
        kind="number",
        low=0,
        above=True,
        nullable=True,
        default=None,
        doc="The solver stops after this long, s; null: the caller's limits alone.",
    ),
    "largest_model": Field(
        kind="integer",
        low=0,
        default=50_000,
        doc="A model of more variables is not built: the first plan stands.",
    ),
}

THRESHOLD = Field(
    kind="number",
    low=1,
    high=1000,
    default=1.0,
    doc="How far a link may be loaded beyond its capacity (SC); 1 forbids saturation.",
)

PUBLISHED: Table = {
    **NOW,
    **MIP,
    "sc": Field(
        kind="text",
        choices=("clamped", "printed"),
        default="clamped",
        doc="SC is at least 1, or falls below 1 where links are not full, as equation (8) has it.",
    ),
}
MBPC: Table = {
    **NOW,
    **MIP,
    "engine": Field(
        kind="text",
        choices=("auto", "search", "mip"),
        default="auto",
        doc="Search over levels of power, or the program; auto: the search where its tables are "
        "small.",
    ),
    "saturation_threshold": THRESHOLD,
}
JPN: Table = {
    **NOW,
    **MIP,
    "ties": Field(
        kind="text",
        choices=("first", "strong", "weak", "random"),
        default="first",
        doc="Among allocations of least traffic: the first clusters and nodes, those that run "
        "soonest or longest, or any, by the seed.",
    ),
}
CBS: Table = {
    **NOW,
    "chunk": Field(
        kind="number",
        low=0,
        above=True,
        high=1,
        default=0.75,
        doc="Share of a job's processes that one cluster must hold.",
    ),
}
SLOTS: Table = {
    **{name: field for name, field in COMMON.items() if name != "objective"},
    **MIP,
    "largest_model": Field(
        kind="integer",
        low=0,
        default=500_000,
        doc="A model of more rows and columns, about, is not built: the first plan stands.",
    ),
    "engine": Field(
        kind="text",
        choices=("search", "mip"),
        default="search",
        doc="The exact search with run times rounded up to slots, or the published program.",
    ),
    "saturation_threshold": replace(THRESHOLD, high=32),
    "slot": Field(
        kind="text",
        default="50%",
        doc="Length of a slot: seconds, or a share of the mean base time such as 50%.",
    ),
    "slots": Field(
        kind="integer",
        low=1,
        high=1_000_000,
        nullable=True,
        default=None,
        doc="Slots of the program (theta); null: as many as the best simple order needs.",
    ),
}
