"""Divisible jobs on random snapshots: allowed, beside what the policy plans, and above bounds."""

from __future__ import annotations

from math import isclose
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.model.jobs import DivisibleJob
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.checking.proofs import proofs_of
from coalloc.policies.options import read_known
from coalloc.policies.registry import POLICIES
from tests.support.snapshots import snapshots


@st.composite
def divisible_jobs(draw: st.DrawFn, snapshot: Snapshot) -> tuple[DivisibleJob, ...]:
    names = [cluster.name for cluster in snapshot.clusters]
    others = [job.id for job in snapshot.queue] + ["d0", "d1", "d2"]
    return tuple(
        DivisibleJob(
            id=f"d{n}",
            work=draw(st.sampled_from([0.3, 10.0, 77.7, 1000.0])),
            chunk_s=draw(st.sampled_from([0.1, 3.0, 12.5, 2000.0])),
            weight=draw(st.sampled_from([0.0, 1.0, 3.0])),
            time_limit=draw(st.sampled_from([None, None, 2.0, 15.0])),
            submitted=0.0,
            earliest=draw(st.sampled_from([0.0, 0.0, 71.0])),
            clusters=draw(st.none() | st.lists(st.sampled_from(names), min_size=1).map(tuple)),
            features=draw(st.sampled_from([(), (), ("gpu",)])),
            memory_mb_per_proc=draw(st.sampled_from([0, 0, 40, 90])),
            after=tuple(draw(st.lists(st.sampled_from(others), max_size=1))),
        )
        for n in range(draw(st.integers(1, 3)))
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Snapshot, Snapshot]:
    """A snapshot without divisible jobs, and with some."""
    snapshot = draw(snapshots(5))
    rest = tuple(job for job in snapshot.queue if not isinstance(job, DivisibleJob))
    without = replace(snapshot, queue=rest)
    return without, replace(without, queue=(*rest, *draw(divisible_jobs(without))))


def solve(name: str, snapshot: Snapshot, **given: Any) -> Plan:
    policy = POLICIES[name]
    return policy.solve(snapshot, read_known(given, policy.options), Budget(work=500))


@pytest.mark.parametrize("name", ["easy", "mbpc"])
@given(case=cases(), step=st.sampled_from([0.0, 0.3]))
@settings(max_examples=25, deadline=None)
def test_pieces_are_allowed_and_move_nothing(
    name: str, case: tuple[Snapshot, Snapshot], step: float
) -> None:
    without, snapshot = case
    plan = solve(name, snapshot, power_step=step)
    assert check(snapshot, plan).violations == ()
    # Jobs that wait for a divisible one wait for its end, and are in no plan before.
    waiting = {entry.job for entry in plan.deferred}
    alone = solve(name, without, power_step=step)
    if not waiting & {job.id for job in without.queue}:
        kept = [p for p in plan.placements if p.chunks is None]
        assert kept == list(alone.placements)


@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_no_bound_is_above_a_plan(case: tuple[Snapshot, Snapshot]) -> None:
    _, snapshot = case
    plan = solve("easy", snapshot)
    for proof in proofs_of(snapshot, plan, effort="quick"):
        assert proof.bound.value <= proof.value or isclose(
            proof.bound.value, proof.value, rel_tol=1e-9, abs_tol=1e-6
        )
