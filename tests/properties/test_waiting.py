"""Replays under `auto`: no job waits longer than is stated, and equal jobs start as they came.

By the fixed limit, and by what EASY by arrival was expected to make each wait; in floods of small
jobs wide ones wait at most twice as long as under EASY, and ten minutes.

`make nightly` draws new worlds. Defects that are planted in the rule are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
from coalloc.policies.auto.overdue import Waits
from coalloc.simulation.replay import replay
from coalloc.simulation.trace import Trace
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import Workload
from tests.support.floods import WIDE, flood

WAIT_LIMIT_S = 30.0
SAME_S = 1e-5
FLOOR_S = 5.0
"""Least wait of an overdue job in these worlds, whose jobs run for seconds."""
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


def replayed(seed: int, flows: float = 0.0, coallocation: str = "sooner") -> Trace:
    options = {"wait_limit": WAIT_LIMIT_S, "coallocation": coallocation}
    trace = replay(*world(seed, flows), "auto", options)
    assert verify(trace) == []
    return trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Expecting:
    """A replay by expectations alone, and when its jobs were to be overdue."""

    trace: Trace
    due: Mapping[str, float]


def expecting(seed: int, coallocation: str = "sooner") -> Expecting:
    """Without the fixed limit: what a job's first round notes of it holds."""
    due: dict[str, float] = {}
    expected = Waits.expected

    def noted(waits: Waits, left: Ints, starts: Floats) -> dict[str, float]:
        notes = expected(waits, left, starts)
        for job, at in notes.items():
            assert due.setdefault(job, at) == at
        return notes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overdue, "FLOOR_S", FLOOR_S)
        patch.setattr(Waits, "expected", noted)
        options = {"wait_limit": None, "coallocation": coallocation}
        trace = replay(*world(seed), "auto", options)
    assert verify(trace) == []
    return Expecting(trace=trace, due=due)


def started_too_late(found: Expecting) -> list[str]:
    """Jobs that started after the bound; one is overdue, too, once an equal one behind it is."""
    trace, due = found.trace, found.due
    runs = [(n, one) for n, one in enumerate(trace.workload.jobs) if one.job.id in due]
    weakest = min(n.power for c in trace.slot_map.platform.clusters for n in c.nodes)
    longest = max(one.job.base_time for one in trace.workload.jobs) / weakest
    at: dict[int, float] = {}
    for n, one in runs:
        alike = (o for m, o in runs if m >= n and _kind(o) == _kind(one))
        at[n] = min(due[o.job.id] for o in alike)
    late = []
    for n, one in runs:
        before = sum((at[m], m) < (at[n], n) and trace.start[m] > at[n] for m in at)
        if trace.start[n] > at[n] + (before + 1) * longest + SAME_S:
            late.append(one.job.id)
    return late


def _kind(logged: LoggedJob) -> tuple[str, int, float]:
    return logged.user, logged.job.procs, logged.job.base_time


def wide_waited_too_long(seed: int, seconds: float, most_nodes: int = 64, **options: Any) -> bool:
    """Whether a wide job of a flood waits longer than twice its wait under EASY and ten minutes."""
    case = flood(seed, seconds, most_nodes)
    wide = np.array([logged.user == WIDE for logged in case.workload.jobs])
    starts = [
        replay(case.workload, case.platform, policy, {"coallocation": case.coallocation, **given})
        for policy, given in (("auto", options), ("easy", {}))
    ]
    mine, easy = (trace.start[wide] - trace.workload.submit[wide] for trace in starts)
    return bool((mine > 2.0 * easy + 600.0).any())


def waited_too_long(trace: Trace) -> list[str]:
    """Jobs, and tasks, that started after the bound that `policies.auto.online` states."""
    jobs = [logged.job for logged in trace.workload.jobs]
    submit = since(trace)
    weakest = min(n.power for c in trace.slot_map.platform.clusters for n in c.nodes)
    longest = max(job.base_time for job in jobs) / weakest
    found = []
    for j in np.flatnonzero(trace.ran):
        late = submit[j] + WAIT_LIMIT_S
        if trace.start[j] <= late:
            continue
        sooner = (submit < submit[j]) | ((submit == submit[j]) & (np.arange(len(jobs)) < j))
        before = int(((trace.start > late) & sooner).sum())
        if trace.start[j] > late + (before + 1) * longest + SAME_S:
            found.append(jobs[j].id)
    return found


def since(trace: Trace) -> Floats:
    """Times since which jobs wait: their submission; of tasks, the end of their last parent."""
    runs = trace.workload.jobs
    out = np.array([logged.job.submitted for logged in runs])
    row = {(one.flow.id, one.task): n for n, one in enumerate(runs) if one.flow and one.task}
    for n, one in enumerate(runs):
        for edge in one.flow.edges if one.flow and one.task else ():
            if edge.child == one.task and one.flow:
                out[n] = max(out[n], trace.end[row[one.flow.id, edge.parent]])
    return out


def overtaken(trace: Trace) -> list[str]:
    """Jobs that an equal one of the same user, which came later, has overtaken."""
    latest: dict[tuple[str, int, float], float] = {}
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
    trace = replayed(seed)
    assert trace.ran.all()
    assert waited_too_long(trace) == []
    assert overtaken(trace) == []


@pytest.mark.slow
@given(st.integers(0, 2**32))
@settings(max_examples=8)
def test_waits_of_tasks_are_bounded(seed: int) -> None:
    trace = replayed(seed, 0.3)
    assert trace.ran.all()
    assert waited_too_long(trace) == []
    assert overtaken(trace) == []


@pytest.mark.slow
@given(st.integers(0, 2**32))
@settings(max_examples=8)
def test_it_is_so_where_no_job_may_be_split(seed: int) -> None:
    """There all that waits has reservations."""
    trace = replayed(seed, coallocation="forbidden")
    largest = max(len(cluster.nodes) for cluster in trace.slot_map.platform.clusters)
    assert trace.ran.tolist() == [one.job.procs <= largest for one in trace.workload.jobs]
    assert waited_too_long(trace) == []
    assert overtaken(trace) == []


@given(st.integers(0, 2**32), st.sampled_from(["sooner", "forbidden"]))
@settings(max_examples=8)
def test_waits_are_bounded_by_what_easy_was_expected_to_do(seed: int, coallocation: str) -> None:
    found = expecting(seed, coallocation)
    assert started_too_late(found) == []
    assert overtaken(found.trace) == []


def test_a_wide_job_does_not_wait_for_the_end_of_a_flood() -> None:
    assert not wide_waited_too_long(1, 2500.0, most_nodes=16)
    assert wide_waited_too_long(1, 2500.0, most_nodes=16, wait_factor=None)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_no_wide_job_does(seed: int) -> None:
    assert not wide_waited_too_long(seed, 18_000.0 if seed % 8 == 0 else 5_400.0)


def test_tasks_that_are_never_overdue_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Waits, "overdue", _never_overdue)
    assert any(waited_too_long(replayed(seed, 0.3)) for seed in range(PLANTED_WITHIN))


def _latest_first(queue: online.OnlineQueue) -> Iterator[tuple[str, Ints]]:
    """A defect: of equal jobs the one that came last goes first."""
    count = queue.weights.size
    keys = queue.jobs.seconds * queue.jobs.procs
    keys[queue.first] = -np.inf
    yield "latest", np.lexsort((-np.arange(count), keys))


def _never_overdue(waits: Waits) -> Ints:
    """A defect: no job has ever waited too long."""
    return online.NONE


@pytest.mark.parametrize(
    ("module", "name", "defect", "found"),
    [
        (Waits, "overdue", _never_overdue, waited_too_long),
        (online, "orders", _latest_first, overtaken),
    ],
)
def test_a_planted_defect_is_found(
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    name: str,
    defect: Callable[..., object],
    found: Callable[[Trace], list[str]],
) -> None:
    monkeypatch.setattr(module, name, defect)
    assert any(found(replayed(seed)) for seed in range(PLANTED_WITHIN))


def test_expectations_that_hold_nothing_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Waits, "overdue", _never_overdue)
    assert any(started_too_late(expecting(seed)) for seed in range(PLANTED_WITHIN))
