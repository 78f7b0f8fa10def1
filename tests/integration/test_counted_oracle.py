"""Plans by counted resources against an exact model in CP-SAT that shares nothing with them."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.counted.bounds import bound_of
from coalloc.policies.counted.needs import needs_counting
from coalloc.policies.counted.planning import CountedQueue
from coalloc.policies.options import options_of, read_options
from coalloc.policies.registry import POLICIES
from tests.integration.test_oas_oracle import oracle
from tests.support.counted_cases import random_case

JOBS = 4
OBJECTIVES = ("makespan", "weighted_completion")
NEAR = 1e-6


def case(seed: int, jobs: int, *, easy: bool = False) -> dict[str, Any]:
    """A snapshot of so many jobs, and the objective of every other seed."""
    body = random_case(Random(seed), easy=easy)
    body["queue"] = body["queue"][:jobs]
    for job in body["queue"]:  # a job may be drawn to wait for itself
        job["after"] = [other for other in job.get("after", []) if other != job["id"]]
    return {"snapshot": body, "objective": OBJECTIVES[seed % 2]}


def planned(name: str, snapshot: Snapshot, objective: str) -> Plan:
    row = POLICIES[name]
    given = {"objective": objective} if "objective" in options_of(row.options) else {}
    return row.solve(snapshot, read_options(given, row.options), Budget(work=2000))


def value_of(snapshot: Snapshot, plan: Plan, objective: str) -> float:
    ends = {one.job: one.end for one in plan.placements}
    if objective == "makespan":
        return max(ends.values(), default=0.0)
    return sum(job.weight * ends[job.id] for job in snapshot.queue if job.id in ends)


def judged(seeds: Iterable[int]) -> list[float]:
    """Hold plans and bounds against the optimum; how much worse each best plan is."""
    cases, gaps = {seed: case(seed, JOBS) for seed in seeds}, []
    for (seed, one), truth in zip(cases.items(), oracle(cases.values()), strict=True):
        snapshot, objective = read_snapshot(one["snapshot"]), one["objective"]
        if not truth["placed"] or not needs_counting(snapshot):
            continue
        (least,), (most,) = truth["bounds"], truth["values"]
        values = []
        for name in ("easy", "fcfs", "conservative", "auto", "oas"):
            plan = planned(name, snapshot, objective)
            placed = [
                job.id for job in snapshot.queue if job.id in {p.job for p in plan.placements}
            ]
            assert set(placed) <= set(truth["placed"]), (seed, name)
            if len(snapshot.clusters) == 1:
                assert placed == truth["placed"], (seed, name)
            if placed == truth["placed"]:
                values.append(value_of(snapshot, plan, objective))
                assert values[-1] >= least - NEAR, (seed, name)
        queue = CountedQueue(snapshot, {"objective": objective})
        bound = bound_of(queue, weighs=objective != "makespan")
        if bound is not None and [item.job.id for item in queue.items] == truth["placed"]:
            assert bound <= most + NEAR, seed
        if values and least > 0.0:
            gaps.append(min(values) / least)
    return gaps


def alone(seeds: Iterable[int]) -> int:
    """Have one job start where CP-SAT says, beside what runs; how many there are."""
    cases = {seed: {**case(seed, 1, easy=True), "objective": "makespan"} for seed in seeds}
    for (seed, one), truth in zip(cases.items(), oracle(cases.values()), strict=True):
        plan = planned("easy", read_snapshot(one["snapshot"]), "makespan")
        assert [placed.end for placed in plan.placements] == truth["values"], seed
    return sum(bool(one["snapshot"]["running"]) for one in cases.values())


def test_no_plan_is_better_than_cp_sat_says() -> None:
    assert len(judged(range(16))) >= 8
    assert alone(range(20)) >= 8


@pytest.mark.nightly
def test_no_plan_of_hundreds_is() -> None:
    gaps = judged(range(16, 516))
    assert sum(gap <= 1.0 + NEAR for gap in gaps) > 0.8 * len(gaps)
    assert alone(range(20, 1020)) >= 400
