"""Options of the published workflow policies."""

from __future__ import annotations

from coalloc.model.fields import Field, Table
from coalloc.policies.options import COMMON, SEARCH

MAPPED: Table = {
    **COMMON,
    "insertion": Field(
        kind="flag",
        default=True,
        doc="Use gaps between earlier placements; else nodes are free behind all they are given.",
    ),
    "edge_data": Field(
        kind="flag",
        default=True,
        doc="Data between tasks count in the priorities; the plan charges them in any case.",
    ),
}
"""What every policy understands that maps by earliest finish time."""

M_HEFT_IMP: Table = {
    **MAPPED,
    "improvement": Field(
        kind="number",
        low=0,
        high=1,
        default=0.1,
        doc="One more process must shorten the run by this share.",
    ),
}
M_HEFT_EFF: Table = {
    **MAPPED,
    "efficiency": Field(
        kind="number",
        low=0,
        high=1,
        default=0.5,
        doc="Least efficiency of an allotment, t(1) / (p t(p)).",
    ),
}
M_HEFT_MAX: Table = {
    **MAPPED,
    "share": Field(
        kind="number",
        low=0,
        above=True,
        high=1,
        default=0.5,
        doc="Share of a cluster's slots that one task may take.",
    ),
}
CPA: Table = {
    **MAPPED,
    "packing": Field(
        kind="flag",
        default=True,
        doc="A task takes fewer processes than allotted where it ends no later so.",
    ),
}

MCA_HEFT: Table = {
    **{name: field for name, field in MAPPED.items() if name not in ("insertion", "edge_data")},
    "mca": Field(
        kind="number",
        low=0,
        nullable=True,
        default=None,
        doc="MCA: tasks with more seconds of work per GB of communication, times their parallel "
        "fraction, may be spread over clusters; null: by mca_share.",
    ),
    "mca_share": Field(
        kind="number",
        low=0,
        high=1,
        default=0.37,
        doc="Share of the tasks that lie above MCA where mca is null.",
    ),
    "mca_max": Field(
        kind="number",
        low=0,
        above=True,
        high=1,
        default=0.25,
        doc="MCAMAX: share of all nodes that one task may take.",
    ),
    "mca_imp": Field(
        kind="number",
        low=0,
        high=1,
        default=0.005,
        doc="MCAIMP: one more process must shorten the run by this share.",
    ),
    "free": Field(
        kind="text",
        choices=("level", "time"),
        default="level",
        doc="Free nodes are what earlier tasks of the level left, or what is free when the task's "
        "data are there.",
    ),
    "insertion": Field(
        kind="flag",
        default=False,
        doc="Use gaps between earlier placements; else nodes are free behind all they are given.",
    ),
    "nodes": Field(
        kind="text",
        choices=("least-loaded", "best-fit"),
        default="least-loaded",
        doc="Without insertion: of equal nodes those that became free first, or last.",
    ),
    "edge_data": Field(
        kind="flag",
        default=False,
        doc="Data between tasks count in the ranks; the plan charges them in any case.",
    ),
}

WORKFLOW: Table = {
    **COMMON,
    "patience": SEARCH["patience"],
    "max_coalloc_overhead": Field(
        kind="number",
        low=0,
        default=0.25,
        doc="How much longer a task may take for its communication between clusters, as a share of "
        "its time.",
    ),
}
"""What `workflow` understands."""
