"""Replays under `auto`: no job waits longer than is stated, and equal jobs start as they came.

By what EASY by arrival was expected to make each wait, with and without a limit; in floods of small
jobs wide ones wait at most twice as long as under EASY, and ten minutes, in a few 25.

`make nightly` draws new worlds. Defects that are planted in the rule are found.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.jobs import Edge, RigidJob, Task, WorkflowJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.values import replace
from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.auto import online, overdue
from coalloc.policies.auto.overdue import OVERLOAD, Waits
from coalloc.policies.base import Budget
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.simulation.replay import replay
from coalloc.simulation.trace import Trace
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import Workload
from tests.support.floods import WIDE, flood

WAIT_LIMIT_S = 30.0
SAME_S = 1e-5
ROUNDED_S = 1e-3
"""To which notes are."""
FLOOR_S = 5.0
"""Least wait of an overdue job in these worlds, whose jobs run for seconds."""
LONGER = frozenset({9, 20, 21, 27, 30})
"""Floods in which limits of ten times the run times let many others start before a wide job."""
PLANTED_WITHIN = 12
"""Worlds in which a planted defect is found."""


def world(seed: int, flows: float = 0.0) -> tuple[Workload, Platform]:
    """More work than nodes, users whose jobs take a tenth of what they say, and equal jobs.

    Parameters
    ----------
    flows : float
        Share of the jobs that are workflows of two to four tasks as long and wide as the job.
    """
    draw = Random(seed)
    sizes = [6] if draw.random() < 0.5 else [4, 3]
    powers = draw.choice([(1.0, 1.0), (1.0, 0.5)])
    clusters = tuple(
        Cluster(
            name=name,
            nodes=tuple(Node(name=f"{name}{n}", power=power) for n in range(size)),
            link_gbps=1.0,
        )
        for name, size, power in zip("ab", sizes, powers, strict=False)
    )
    shares = [draw.choice([0.1, 0.5, 1.0]) for _ in range(3)]
    sorts = [(draw.randint(1, 6), float(draw.choice([5, 10, 20, 40]))) for _ in range(4)]
    jobs, submit = [], 0.0
    for number in range(1, 41):
        submit += draw.randint(0, 5)
        procs, estimate = draw.choice(sorts)
        user = draw.randrange(3)
        run = max(1.0, estimate * shares[user])
        if draw.random() < 0.2:  # the prediction is wrong
            run = estimate
        job = RigidJob(
            id=str(number), submitted=submit, earliest=submit, procs=procs, base_time=estimate
        )
        logged = LoggedJob(
            job=job, run_s=run, killed=False, number=number, line=number, user=str(user)
        )
        if flows and draw.random() < flows:
            logged = replace(logged, flow=flow_of(job, draw.randint(2, 4), draw.random() < 0.5))
        jobs.append(logged)
    return Workload(name=str(seed), jobs=tuple(jobs)), Platform(name="w", clusters=clusters)


def flow_of(job: RigidJob, count: int, chained: bool) -> WorkflowJob:
    """A chain of tasks like this job, or a fork; no wider than the smallest cluster."""
    names, width = [f"t{n}" for n in range(count)], min(job.procs, 3)
    tasks = tuple(
        Task(id=name, work=job.base_time, min_procs=width, max_procs=width) for name in names
    )
    edges = tuple(
        Edge(parent=names[n - 1] if chained else names[0], child=names[n]) for n in range(1, count)
    )
    return WorkflowJob(
        id=job.id, submitted=job.submitted, earliest=job.earliest, tasks=tasks, edges=edges
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expecting:
    """A replay, and when its jobs and tasks were to be overdue."""

    trace: Trace
    due: Mapping[str, float]
    rounds: Sequence[float]
    """When rounds were: between them, what ends is answered along the last plan."""

    def found_so(self, due: float) -> float:
        """When a round finds one overdue."""
        later = bisect_left(self.rounds, due)
        return self.rounds[later] if later < len(self.rounds) else due


def expecting(
    seed: int, flows: float = 0.0, coallocation: str = "sooner", limit: float | None = WAIT_LIMIT_S
) -> Expecting:
    """Replay under `auto`, and check each noted due time against the limit and EASY's wait."""
    due: dict[str, float] = {}
    rounds: list[float] = []
    read, expected = Waits.read, Waits.expected

    def reading(planner: Planner, budget: Budget) -> Waits:
        waits = read(planner, budget)
        rounds.append(waits.now)
        return waits

    def noted(waits: Waits, left: Ints, starts: Floats) -> dict[str, float]:
        notes = expected(waits, left, starts)
        for n, easy in zip(left, starts[left] - waits.planner.snapshot.time, strict=True):
            if isfinite(easy) and limit is not None:
                most = max(limit, OVERLOAD * easy)
                assert notes[waits.keys[n]] <= waits.now + most + ROUNDED_S
        for job, at in notes.items():
            assert due.setdefault(job, at) == at
        return notes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overdue, "FLOOR_S", FLOOR_S)
        patch.setattr(Waits, "read", reading)
        patch.setattr(Waits, "expected", noted)
        options = {"wait_limit": limit, "coallocation": coallocation}
        trace = replay(*world(seed, flows), "auto", options)
    assert verify(trace) == []
    return Expecting(trace=trace, due=due, rounds=rounds)


def started_too_late(found: Expecting) -> list[str]:
    """Jobs and tasks that started after the bound that `policies.auto.online` states.

    One is overdue, too, once an equal one behind it is.
    """
    trace, due = found.trace, found.due
    runs = [(n, one) for n, one in enumerate(trace.workload.jobs) if _key(one) in due]
    weakest = min(n.power for c in trace.slot_map.platform.clusters for n in c.nodes)
    longest = max(one.job.base_time for one in trace.workload.jobs) / weakest
    at: dict[int, float] = {}
    for n, one in runs:
        alike = (o for m, o in runs if m >= n and _kind(o) == _kind(one))
        at[n] = min(due[_key(o)] for o in alike)
    late = []
    for n, one in runs:
        since = found.found_so(at[n])
        before = sum((at[m], m) < (at[n], n) and trace.start[m] > since for m in at)
        if trace.start[n] > since + (before + 1) * longest + SAME_S:
            late.append(_key(one))
    return late


def _key(logged: LoggedJob) -> str:
    """Name in the notes."""
    return f"{logged.flow.id} {logged.task}" if logged.flow and logged.task else logged.job.id


def _kind(logged: LoggedJob) -> tuple[str, int, float, str]:
    """Of equal ones; no task is equal to another."""
    task = _key(logged) if logged.task else ""
    return logged.user, logged.job.procs, logged.job.base_time, task


def wide_waited_too_long(
    seed: int, seconds: float, most_nodes: int = 64, *, most_s: float = 600.0, **options: Any
) -> bool:
    """Test if a flood makes a wide job wait for twice its wait under EASY and `most_s` more."""
    case = flood(seed, seconds, most_nodes)
    wide = np.array([logged.user == WIDE for logged in case.workload.jobs])
    starts = [
        replay(case.workload, case.platform, policy, {"coallocation": case.coallocation, **given})
        for policy, given in (("auto", options), ("easy", {}))
    ]
    mine, easy = (trace.start[wide] - trace.workload.submit[wide] for trace in starts)
    return bool((mine > 2.0 * easy + most_s).any())


def overtaken(trace: Trace) -> list[str]:
    """Jobs that an equal one of the same user, which came later, has overtaken."""
    latest: dict[tuple[str, int, float, str], float] = {}
    found = []
    for logged, start in zip(trace.workload.jobs, trace.start, strict=True):
        if logged.task:
            continue
        sort = _kind(logged)
        if start < latest.get(sort, start) - SAME_S:
            found.append(logged.job.id)
        latest[sort] = max(start, latest.get(sort, start))
    return found


@given(st.integers(0, 2**32))
@settings(max_examples=8)
def test_waits_are_bounded_and_equal_jobs_start_as_they_came(seed: int) -> None:
    found = expecting(seed)
    assert found.trace.ran.all()
    assert started_too_late(found) == []
    assert overtaken(found.trace) == []


@pytest.mark.slow
@given(st.integers(0, 2**32))
@settings(max_examples=8)
def test_waits_of_tasks_are_bounded(seed: int) -> None:
    found = expecting(seed, 0.3)
    assert found.trace.ran.all()
    assert started_too_late(found) == []
    assert overtaken(found.trace) == []


@pytest.mark.slow
@given(st.integers(0, 2**32))
@settings(max_examples=8)
def test_it_is_so_where_no_job_may_be_split(seed: int) -> None:
    """There all that waits has reservations."""
    found = expecting(seed, coallocation="forbidden")
    trace = found.trace
    largest = max(len(cluster.nodes) for cluster in trace.slot_map.platform.clusters)
    assert trace.ran.tolist() == [one.job.procs <= largest for one in trace.workload.jobs]
    assert started_too_late(found) == []
    assert overtaken(trace) == []


@given(st.integers(0, 2**32), st.sampled_from(["sooner", "forbidden"]))
@settings(max_examples=8)
def test_without_a_limit_waits_are_bounded_by_what_easy_was_expected_to_do(
    seed: int, coallocation: str
) -> None:
    found = expecting(seed, coallocation=coallocation, limit=None)
    assert started_too_late(found) == []
    assert overtaken(found.trace) == []


def test_a_wide_job_does_not_wait_for_the_end_of_a_flood() -> None:
    assert not wide_waited_too_long(1, 2500.0, most_nodes=16)
    assert wide_waited_too_long(1, 2500.0, most_nodes=16, wait_factor=None)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_no_wide_job_does(seed: int) -> None:
    most_s = 1_500.0 if seed in LONGER else 600.0
    assert not wide_waited_too_long(seed, 18_000.0 if seed % 8 == 0 else 5_400.0, most_s=most_s)


def _latest_first(queue: online.OnlineQueue) -> Iterator[tuple[str, Ints]]:
    """A defect: of equal jobs the one that came last goes first."""
    count = queue.weights.size
    keys = queue.jobs.seconds * queue.jobs.procs
    keys[queue.first] = -np.inf
    yield "latest", np.lexsort((-np.arange(count), keys))


def _never_overdue(waits: Waits) -> Ints:
    """A defect: no job has ever waited too long."""
    return online.NONE


def test_that_equal_jobs_start_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "orders", _latest_first)
    assert any(overtaken(expecting(seed).trace) for seed in range(PLANTED_WITHIN))


@pytest.mark.parametrize(
    ("flows", "limit"), [(0.0, WAIT_LIMIT_S), (0.3, WAIT_LIMIT_S), (0.0, None)]
)
def test_a_bound_that_holds_nothing_is_found(
    monkeypatch: pytest.MonkeyPatch, flows: float, limit: float | None
) -> None:
    monkeypatch.setattr(Waits, "overdue", _never_overdue)
    assert any(
        started_too_late(expecting(seed, flows, limit=limit)) for seed in range(PLANTED_WITHIN)
    )
