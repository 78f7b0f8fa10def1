"""The exact search of projects: known optima, bounds where times have no measure, and why not."""

from collections.abc import Callable
from math import pi
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from coalloc.model.jobs import WorkflowJob
from coalloc.model.plan import Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import never
from coalloc.policies.checking.check import check
from coalloc.policies.counted.exact import ExactProject
from coalloc.policies.kernel.counted.project import Project
from coalloc.simulation.reproduce.psplib import read_projects
from coalloc.simulation.reproduce.solving import solve
from tests.unit.policies.counted.test_project import drawn, shortest

OPTIMA = {"j305_3": 76, "j3025_9": 84, "j3029_1": 85, "j3041_9": 92, "j3045_5": 86}
"""Of projects whose bounds by resource lie below, and where no simple order is the best."""


def planned(snapshot: Snapshot, work: int = 40_000, **options: Any) -> Plan:
    plan = solve(snapshot, "workflow", options, work=work).plan
    assert check(snapshot, plan).ok
    return plan


def test_proves_what_is_known_of_the_library(shared_file: Callable[[str], Path]) -> None:
    projects = read_projects(shared_file("data/psplib/single-mode-odd.json.gz"))
    known = {one.name: one.snapshot() for one in projects if one.name in OPTIMA}
    for name, least in OPTIMA.items():
        plan = planned(known[name], 24_000_000, patience=None)
        assert (plan.status, plan.objective.value) == (Status.OPTIMAL, least), name
        assert plan.objective.bound == least, name
        assert "exact_search" not in plan.stats, name
        bred = planned(known[name], 200_000, patience=None, exact_work=0)
        assert bred.status is Status.HEURISTIC, name


def test_bounds_hold_where_times_have_no_measure() -> None:
    proved = 0
    for seed in range(8):
        project = drawn(Random(seed), 6)
        snapshot, least = project.snapshot(), pi * shortest(project)
        (job,) = snapshot.queue
        assert isinstance(job, WorkflowJob)
        tasks = tuple(replace(task, work=task.work * pi) for task in job.tasks)
        plan = planned(replace(snapshot, queue=(replace(job, tasks=tasks),)))
        assert plan.objective.value == pytest.approx(least, rel=1e-9), seed
        assert plan.objective.bound is not None
        assert plan.objective.bound <= least * (1.0 + 1e-9), seed
        proved += plan.objective.bound >= least * (1.0 - 1e-5)
    assert proved == 8


def test_says_why_nothing_is_searched_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = drawn(Random(5), 61).snapshot()
    assert planned(snapshot).stats["exact_search"] == "none: more than 60 jobs"
    monkeypatch.setattr("coalloc.policies.counted.exact.cp_model", lambda: None)
    assert planned(snapshot).stats["exact_search"] == "none: ortools is not installed"
    assert "exact_search" not in planned(snapshot, exact_work=0).stats


def test_finds_what_ends_a_second_sooner_or_that_nothing_does() -> None:
    columns: dict[str, Any] = {"length": np.array([2.0, 3.0]), "take": np.array([[3.0], [3.0]])}
    columns |= {"size": np.array([4.0]), "child_first": np.zeros(3, np.int64)}
    project = cast(Project, SimpleNamespace(**columns, child=np.zeros(0, np.int64)))
    for reached, found in ((6.0, True), (5.0, False)):
        search = ExactProject(project, 100_000, None, seed=0)
        order, _ = search.run(reached, 10_000_000, never, alone=True)
        assert (order is not None) == found
        assert (search.ended, search.bound) == (True, 5.0)
