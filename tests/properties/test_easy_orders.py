"""EASY under orders of its own starts what an independent simulation of one cluster starts."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.adapters.formats.platforms import Platform, read_platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.simulation.replay import replay
from coalloc.simulation.workload import Workload, read_workload
from tests.support.easy_oracle import Job, Key, starts

ROOT = Path(__file__).resolve().parents[2]
KTH = "data/swf/KTH-SP2-1996-2.1-cln.swf.gz"
SLOTS = 8
KEYS: Mapping[str, Key] = {
    "arrival": lambda job, waited: 0.0,
    "shortest": lambda job, waited: job.estimate,
    "smallest-area": lambda job, waited: job.estimate * job.procs,
    "f2": lambda job, waited: (
        math.sqrt(job.estimate) * job.procs + 25600 * math.log10(max(job.submit, 1.0))
    ),
    "wfp3": lambda job, waited: -((waited / job.estimate) ** 3) * job.procs,
    "unicef": lambda job, waited: -waited / (math.log2(max(job.procs, 2)) * job.estimate),
}


@st.composite
def logs(draw: st.DrawFn) -> list[Job]:
    jobs, submit = [], 0.0
    for _ in range(draw(st.integers(1, 25))):
        submit += draw(st.integers(0, 4))
        estimate = float(draw(st.integers(1, 20)))
        run = draw(st.sampled_from([estimate, estimate, max(1.0, estimate // 3)]))
        procs = draw(st.integers(1, SLOTS))
        jobs.append(Job(submit=submit, procs=procs, estimate=estimate, run=run))
    return jobs


def workload(jobs: list[Job]) -> Workload:
    made = [
        RigidJob(
            id=str(n),
            submitted=job.submit,
            earliest=job.submit,
            procs=job.procs,
            base_time=job.estimate,
        )
        for n, job in enumerate(jobs, 1)
    ]
    logged = [
        LoggedJob(job=rigid, run_s=job.run, killed=False, number=n, line=n)
        for n, (rigid, job) in enumerate(zip(made, jobs, strict=True))
    ]
    return Workload(name="random", jobs=tuple(logged))


@given(
    logs(),
    st.sampled_from(sorted(KEYS)),
    st.sampled_from(sorted(KEYS)),
    st.sampled_from([None, 0.0, 9.0, 30.0]),
)
@settings(max_examples=60)
def test_starts_of_one_cluster(
    jobs: list[Job], queue: str, backfill: str, limit: float | None
) -> None:
    platform = Platform(
        name="one", clusters=(Cluster(name="a", nodes=(Node(name="a1", slots=SLOTS),)),)
    )
    options = {"queue_order": queue, "backfill_order": backfill, "wait_limit": limit}
    trace = replay(workload(jobs), platform, "easy", options)
    wanted = starts(jobs, SLOTS, KEYS[queue], KEYS[backfill], math.inf if limit is None else limit)
    assert trace.start.tolist() == pytest.approx(wanted, abs=1e-6)


def test_starts_on_kth(shared_file: Callable[[str], Path]) -> None:
    log = read_workload([shared_file(KTH)], limit=1000)
    jobs = [
        Job(
            submit=logged.job.submitted,
            procs=logged.job.procs,
            estimate=logged.job.base_time,
            run=logged.run_s,
        )
        for logged in log.jobs
    ]
    platform = read_platform(ROOT / "etc/platforms/kth-sp2.toml")
    for policy, order in (("easy-spf", "shortest"), ("easy-saf", "smallest-area")):
        trace = replay(log, platform, policy)
        wanted = starts(jobs, 100, KEYS[order], KEYS[order], 86_400.0)
        assert trace.start.tolist() == wanted
        assert int(np.sum(trace.start - log.submit >= 86_400.0)) > 5
