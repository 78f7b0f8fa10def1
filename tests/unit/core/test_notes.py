"""What policies note for their next round: kept by name, written, and found again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coalloc.core.base.effects import SaveNotes, Solve
from coalloc.core.base.events import Solved
from coalloc.core.coordinator import StoredState
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.sqlite import Store
from coalloc.model.plan import NOTES
from coalloc.model.values import replace
from tests.support.core_site import Site, first_fit


def saved(site: Site) -> list[SaveNotes]:
    return [effect for effect in site.effects if isinstance(effect, SaveNotes)]


def next_solve(site: Site) -> Solve:
    """The solve that another submission asks for."""
    site.submit(2)
    return site.pending_solves[-1]


def answer(site: Site, solve: Solve, policy: str, notes: Mapping[str, Any] | None = None) -> None:
    plan = replace(first_fit(solve.snapshot), policy=policy)
    if notes is not None:
        plan = replace(plan, stats={NOTES: notes})
    site.do(Solved(round=solve.round, plan=plan, solve_s=0.0))


def test_a_policy_is_handed_its_own_notes_and_no_others() -> None:
    site = Site({"a": 9}, solving=False, policy="mine")
    first = next_solve(site)
    assert first.notes == {}
    answer(site, first, "other", {"x": 1})
    second = next_solve(site)
    assert second.notes == {}
    answer(site, second, "mine", {"x": 2})
    assert next_solve(site).notes == {"x": 2}


def test_a_plan_without_notes_keeps_the_earlier_ones_and_equal_ones_are_written_once() -> None:
    site = Site({"a": 9}, solving=False, policy="mine")
    answer(site, next_solve(site), "mine", {"x": 2})
    answer(site, next_solve(site), "mine")
    answer(site, next_solve(site), "plain", {"y": 3})
    answer(site, next_solve(site), "mine", {"x": 2})
    assert next_solve(site).notes == {"x": 2}
    assert [(effect.policy, effect.notes) for effect in saved(site)] == [
        ("mine", {"x": 2}),
        ("plain", {"y": 3}),
    ]


def test_what_is_no_object_is_no_note() -> None:
    site = Site({"a": 9}, solving=False, policy="mine")
    solve = next_solve(site)
    plan = replace(first_fit(solve.snapshot), policy="mine", stats={NOTES: 7})
    site.do(Solved(round=solve.round, plan=plan, solve_s=0.0))
    assert not saved(site)


def test_notes_outlive_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    members = {"members": [["1", None, 3, 2.5]], "number": 4}
    site = Site({"a": 9}, solving=False, policy="mine")
    answer(site, next_solve(site), "mine", {"x": 1})
    answer(site, next_solve(site), "mine", members)
    store = Store(path)
    try:
        store.commit(saved(site))
        remembered = recall(store, 10).remembered
    finally:
        store.close()
    assert remembered.learning.notes == {"mine": members}
    past = StoredState(learning=remembered.learning)
    again = Site({"a": 9}, solving=False, policy="mine", remembered=past)
    assert next_solve(again).notes == members
