"""The judge of an administrator's acts finds what it is there to find."""

from __future__ import annotations

import pytest

from tests.slurm.administrator import Act, judged
from tests.slurm.open_jobs import Item
from tests.slurm.open_stream import Seen

NARROW = Item(name="o1", is_ours=True, at=0.0, width=1, run_s=5.0, limit_min=1, clusters=("alpha",))
WIDE = Item(
    name="o1", is_ours=True, at=0.0, width=7, run_s=5.0, limit_min=1, clusters=("alpha", "beta")
)
LONG = Item(
    name="o1", is_ours=True, at=0.0, width=1, run_s=20.0, limit_min=0.2, clusters=("alpha",)
)
LOCAL = Item(name="o1", is_ours=False, at=0.0, width=1, run_s=5.0, limit_min=1, clusters=("alpha",))


def ran(where: str, item: Item, at: float, *more: float) -> Seen:
    """Marks of each process: that it began then in a cluster, and ran for five seconds."""
    keys = [str(rank) for rank in range(item.width)] if item.is_ours else ["alpha"]
    times = [at, *more]
    return Seen(
        began=dict.fromkeys(keys, times),
        ended={key: [at + 5.0] for key in keys},
        where={key: [(where, "n1")] * len(times) for key in keys},
    )


def cut(where: str, item: Item, at: float) -> Seen:
    """Marks of processes that did not come to their ends."""
    seen = ran(where, item, at)
    return Seen(began=seen.began, where=seen.where)


@pytest.mark.parametrize(
    ("kind", "item", "seen", "state", "fault"),
    [
        # All acts are done at 100 in alpha, and taken back at 110, those that are.
        ("cancel", NARROW, ran("beta", NARROW, 120.0), "completed", ""),
        ("cancel", NARROW, ran("alpha", NARROW, 120.0), "completed", "ran where"),
        ("cancel", NARROW, Seen(), "cancelled", "ended as cancelled"),
        ("cancel", NARROW, cut("alpha", NARROW, 99.0), "cancelled", ""),
        ("cancel", NARROW, ran("alpha", NARROW, 99.0, 120.0), "completed", "began twice"),
        ("cancel", WIDE, Seen(), "cancelled", ""),
        ("cancel_by_owner", NARROW, Seen(), "cancelled", ""),
        ("cancel_by_owner", NARROW, ran("beta", NARROW, 120.0), "completed", "ran after"),
        ("cancel_by_owner", NARROW, Seen(), "held", "ended as held"),
        ("cancel_running", NARROW, cut("alpha", NARROW, 99.0), "cancelled", ""),
        ("cancel_running", NARROW, ran("alpha", NARROW, 96.0), "completed", ""),
        ("cancel_running", NARROW, cut("alpha", NARROW, 99.0), "lost", "ended as lost"),
        ("hold", NARROW, ran("beta", NARROW, 106.0), "completed", ""),
        ("hold", NARROW, ran("alpha", NARROW, 112.0), "completed", ""),
        ("hold", NARROW, ran("alpha", NARROW, 106.0), "completed", "ran where it was held"),
        ("hold_by_owner", NARROW, ran("beta", NARROW, 106.0), "completed", "ran while"),
        ("hold_by_owner", NARROW, Seen(), "held", "ended as held"),
        ("extend", LONG, ran("alpha", LONG, 95.0), "completed", ""),
        ("extend", LONG, cut("alpha", LONG, 95.0), "timeout", "ended as timeout"),
        ("extend", LONG, cut("alpha", LONG, 89.0), "timeout", ""),  # it was about to end
        ("extend", LONG, cut("beta", LONG, 95.0), "timeout", ""),  # another claim's limit
        ("cancel_local", LOCAL, ran("alpha", LOCAL, 120.0), "", "ran after"),
        ("hold_local", LOCAL, ran("alpha", LOCAL, 106.0), "", "ran while"),
        ("extend_local", LOCAL, Seen(), "", "began"),
        ("drain", NARROW, ran("alpha", NARROW, 106.0), "completed", ""),
        ("drain", NARROW, Seen(), "lost", "began"),
        ("drain", LONG, cut("alpha", LONG, 95.0), "timeout", ""),
    ],
)
def test_acts_are_judged(kind: str, item: Item, seen: Seen, state: str, fault: str) -> None:
    act = Act(kind=kind, cluster="alpha", target="o1", at=99.9, done=100.0, undone=110.0)
    if kind == "drain":
        act.target = "alpha1"
    keys = {str(rank) for rank in range(item.width)} if item.is_ours else {"alpha"}
    found = judged([item], [act], {"o1": seen}, {"o1": state}, lambda _: keys)
    assert bool(found) == bool(fault), found
    assert not fault or fault in found[0]
