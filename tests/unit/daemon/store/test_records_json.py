"""Job records as the store keeps them read back equal."""

from __future__ import annotations

import pytest

from coalloc.core.base.records import JobRecord, JobState, PartRecord
from coalloc.daemon.store.records_json import read_launch, read_record, write_object
from coalloc.model.jobs import Job, MoldableJob, RigidJob
from coalloc.model.sites.batch_options import BatchOptions
from coalloc.model.sites.parts import Launch, PartState
from coalloc.model.speedup import AmdahlSpeedup, TableSpeedup

JOBS: tuple[Job, ...] = (
    RigidJob(id="1", procs=4, base_time=60.0),
    RigidJob(
        id="1", procs=4, base_time=60.0, sigma=0.3, proc_gbps=0.075, weight=2.0, submitted=5.0,
        earliest=9.0, time_limit=100.0, clusters=("a", "b"), features=("ib",),
        memory_mb_per_proc=100, after=("7",), held=True, passed_over=3,
    ),
    MoldableJob(
        id="1", speedup=AmdahlSpeedup(time_1=9.0, parallel_fraction=0.5), min_procs=1, max_procs=8
    ),
    MoldableJob(
        id="1", speedup=TableSpeedup(procs=(1, 4), times=(8.0, 3.0)), min_procs=1, max_procs=4,
        proc_gbps=0.1,
    ),
)  # fmt: skip


@pytest.mark.parametrize("job", JOBS)
def test_a_record_reads_back_equal(job: Job) -> None:
    record = JobRecord(
        id="1_3",
        job=job,
        name="n",
        user="ann",
        uid=5,
        gid=6,
        command="solver",
        submitted=5.0,
        state=JobState.RUNNING,
        sources={"sigma": "user"},
        needs=(("afterok", "7"),),
        array_index=3,
        attempt=2,
        parts=(
            PartRecord(cluster="a", index=0, nodes={"a1": 2}, first_rank=0),
            PartRecord(
                cluster="b", index=1, nodes={"b1": 2}, first_rank=2, state=PartState.FINISHED,
                exit_code=3, started=1.0, ended=2.0, reason="exited", detail="rank 2",
            ),
        ),
        link_gbps={"a": 0.5},
        deadline=7.0,
        skew_s=0.002,
        batch=BatchOptions(account="chem", passed=("--exclude=n1",)),
        throttle=5,
        finish_by=9.0,
    )  # fmt: skip
    assert read_record(write_object(record)) == record


def test_a_fresh_record_is_short_and_reads_back_equal() -> None:
    record = JobRecord(id="1", job=JOBS[0], name="n", user="ann")
    assert read_record(write_object(record)) == record
    assert len(write_object(record)) < 300


def test_a_launch_reads_back_equal() -> None:
    launch = Launch(argv=("a", "b c"), script="#!/bin/sh\n", env={"A": "1\n"}, cwd="/x")
    assert read_launch(write_object(launch)) == launch
