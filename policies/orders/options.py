"""Options of the simple orders and of the forms of EASY."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from coalloc.policies.options import CommonOptions

Order = Literal[
    "arrival",
    "shortest",
    "smallest-area",
    "f1",
    "f2",
    "f3",
    "f4",
    "wfp3",
    "unicef",
    "fewest",
    "most",
    "longest",
]
"""Orders that EASY's queue and its backfilling can have."""

EASY_ORDERS: Mapping[str, Order] = {
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

WaitLimit = Annotated[
    Annotated[float, Meta(ge=0)] | None,
    Meta(
        description="Seconds; jobs that have waited so long go first, in arrival order; null: none "
        "do.",
    ),
]
QueueOrder = Annotated[
    Order,
    Meta(
        description="Order in which jobs start, and of which the first that does not fit keeps a "
        "reservation; formulas in docs/policies/easy.md."
    ),
]
BackfillOrder = Annotated[
    Order, Meta(description="Order in which later jobs may start beside that reservation.")
]
WAIT_LIMIT_S = 86_400.0
"""A day."""


class StrictOptions(CommonOptions, frozen=True, kw_only=True):
    """Options of orders in which no job overtakes another."""

    skip: bool = False
    """Let later jobs start while an earlier one does not fit."""


class EasyOptions(CommonOptions, frozen=True, kw_only=True):
    """Options of EASY; its forms differ in the defaults of both orders."""

    queue_order: QueueOrder = "arrival"
    backfill_order: BackfillOrder = "arrival"
    wait_limit: WaitLimit = WAIT_LIMIT_S


class SjbfOptions(CommonOptions, frozen=True, kw_only=True):
    """EASY by run times predicted from the last two runs, shortest backfilled first."""

    wait_limit: WaitLimit = WAIT_LIMIT_S


def easy_options(name: str) -> type[EasyOptions]:
    """Options of a form of EASY."""
    order = EASY_ORDERS[name]

    class FormOptions(EasyOptions, frozen=True, kw_only=True):
        queue_order: QueueOrder = order
        backfill_order: BackfillOrder = order

    return FormOptions
