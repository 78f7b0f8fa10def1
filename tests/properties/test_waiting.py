"""Replays under `auto`: no job waits longer than is stated, and equal jobs start as they came.

`make nightly` draws new worlds. Defects that are planted in the rule are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.jobs import Edge, RigidJob, Task, WorkflowJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.values import replace
from coalloc.policies.auto import online
from coalloc.policies.auto import policy as auto
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.simulation.replay import replay
from coalloc.simulation.trace import Trace
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import Workload

WAIT_LIMIT_S = 30.0
SAME_S = 1e-5
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


def since(trace: Trace) -> online.Floats:
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
        sort = (logged.user, logged.job.procs, logged.job.base_time)
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


@given(st.integers(0, 2**32))
@settings(max_examples=8)
def test_waits_of_tasks_are_bounded(seed: int) -> None:
    trace = replayed(seed, 0.3)
    assert trace.ran.all()
    assert waited_too_long(trace) == []
    assert overtaken(trace) == []


@given(st.integers(0, 2**32))
@settings(max_examples=8)
def test_it_is_so_where_no_job_may_be_split(seed: int) -> None:
    """There all that waits has reservations."""
    trace = replayed(seed, coallocation="forbidden")
    largest = max(len(cluster.nodes) for cluster in trace.slot_map.platform.clusters)
    assert trace.ran.tolist() == [one.job.procs <= largest for one in trace.workload.jobs]
    assert waited_too_long(trace) == []
    assert overtaken(trace) == []


def test_tasks_that_are_never_overdue_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_is(planner: Planner, wait_limit: float | None) -> online.Ints:
        return online.NONE

    monkeypatch.setattr(auto, "overdue_tasks", none_is)
    assert any(waited_too_long(replayed(seed, 0.3)) for seed in range(PLANTED_WITHIN))


def _latest_first(queue: online.OnlineQueue) -> Iterator[tuple[str, online.Ints]]:
    """A defect: of equal jobs the one that came last goes first."""
    count = queue.weights.size
    keys = queue.jobs.seconds * queue.jobs.procs
    keys[queue.first] = -np.inf
    yield "latest", np.lexsort((-np.arange(count), keys))


def _never_overdue(planner: object, wait_limit: float | None) -> online.Ints:
    """A defect: no job has ever waited too long."""
    return online.NONE


@pytest.mark.parametrize(
    ("module", "name", "defect", "found"),
    [
        (auto, "overdue", _never_overdue, waited_too_long),
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
