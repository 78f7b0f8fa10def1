"""From log lines to jobs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from coalloc.adapters.formats.swf import SwfJob, SwfLog, SwfSummary, read_swf
from coalloc.adapters.formats.swf_jobs import (
    JobRule,
    LoggedJob,
    make_jobs,
    read_bandwidth,
    read_sigma,
)
from coalloc.model.errors import InputError


def log_of(*jobs: SwfJob) -> SwfLog:
    return SwfLog(header={}, jobs=jobs, summary=SwfSummary())


def one(rule: JobRule | None = None, **fields: object) -> LoggedJob:
    given = {"number": 1, "submit_s": 0.0, "run_s": 60.0, "allocated": 4, "line": 1} | fields
    made = make_jobs(log_of(SwfJob(**given)), rule)  # type: ignore[arg-type]
    assert len(made.jobs) == 1
    return made.jobs[0]


def test_requested_processors_come_before_allocated_ones() -> None:
    assert one(requested=8).job.procs == 8
    assert one(requested=None).job.procs == 4
    assert one(requested=0).job.procs == 4  # 0 requested is no request


def test_requested_time_is_the_estimate_and_the_run_time_the_truth() -> None:
    logged = one(requested_s=600.0)
    assert (logged.job.base_time, logged.run_s, logged.killed) == (600.0, 60.0, False)


def test_without_requested_time_the_run_time_stands_in() -> None:
    logged = one()
    assert (logged.job.base_time, logged.run_s, logged.killed) == (60.0, 60.0, False)
    assert logged.job.time_limit is None


def test_a_job_is_killed_at_its_estimate() -> None:
    logged = one(requested_s=40.0)
    assert (logged.job.base_time, logged.run_s, logged.killed) == (40.0, 40.0, True)


def test_a_run_time_of_zero_counts_as_a_second() -> None:
    assert one(run_s=0.0).run_s == 1.0
    assert one(run_s=0.0, requested_s=0.5).job.base_time == 1.0


def test_no_communication_is_known_unless_said() -> None:
    job = one().job
    assert (job.sigma, job.proc_gbps, job.clusters) == (1.0, 0.0, None)


def test_what_cannot_be_replayed_is_counted() -> None:
    made = make_jobs(
        log_of(
            SwfJob(number=1, submit_s=5.0, run_s=9.0),
            SwfJob(number=2, submit_s=6.0, allocated=2),
            SwfJob(number=3, submit_s=7.0, allocated=2, run_s=0.0, status=5),
            SwfJob(number=4, submit_s=8.0, allocated=2, run_s=9.0, status=5),  # it ran first
            SwfJob(number=4, submit_s=9.0, allocated=2, run_s=0.0),
        )
    )
    assert made.left_out == {
        "no number of processors": 1,
        "no run time": 1,
        "cancelled before it ran": 1,
    }
    # Times start at the first submission of the log; a repeated number gets an id of its own.
    assert [(j.job.id, j.job.submitted, j.job.earliest) for j in made.jobs] == [
        ("4", 3.0, 3.0),
        ("4.2", 4.0, 4.0),
    ]
    assert made.adjusted["run time below 1 s counted as 1 s"] == 1


def test_memory_is_of_a_process_and_in_an_extended_log_of_a_node() -> None:
    extended = ("{1,1}", "q", "2:ppn=4:x86_64")
    lines = (
        SwfJob(number=1, submit_s=0.0, run_s=9.0, allocated=2, requested_kb=1025.0),
        SwfJob(
            number=2, submit_s=0.0, run_s=9.0, allocated=8, requested_kb=2.0**30, extra=extended
        ),
        SwfJob(number=3, submit_s=0.0, run_s=9.0, allocated=8),
    )
    counted = make_jobs(log_of(*lines), JobRule(counts_memory=True))
    assert [j.job.memory_mb_per_proc for j in counted.jobs] == [2, 256, 0]
    assert counted.adjusted["memory counted"] == 2
    left_out = make_jobs(log_of(*lines))
    assert {j.job.memory_mb_per_proc for j in left_out.jobs} == {0}
    assert left_out.adjusted["memory that is not counted: no node has memory_mb"] == 2


def drawn(count: int, seed: int) -> list[tuple[float, float]]:
    rule = JobRule(
        sigma=read_sigma("uniform:0.2,0.8"), bandwidth=read_bandwidth("choice:10Mbps,1"), seed=seed
    )
    lines = [SwfJob(number=i, submit_s=i, run_s=1.0, allocated=1) for i in range(count)]
    return [(j.job.sigma, j.job.proc_gbps) for j in make_jobs(log_of(*lines), rule).jobs]


def test_draws_repeat_and_do_not_depend_on_the_length_of_the_log() -> None:
    long = drawn(50, 3)
    assert long == drawn(50, 3)
    assert long[:10] == drawn(10, 3)
    assert long != drawn(50, 4)
    assert {gbps for _, gbps in long} == {0.01, 1.0}
    assert all(0.2 <= sigma < 0.8 for sigma, _ in long)


@pytest.mark.parametrize(
    ("text", "gbps"),
    [("75Mbps", 0.075), ("0.5", 0.5), ("2 Gbps", 2.0), ("100kbps", 1e-4), ("0", 0.0)],
)
def test_bandwidths(text: str, gbps: float) -> None:
    draw = read_bandwidth(text)
    assert draw.kind == "constant"
    assert draw.values == pytest.approx((gbps,))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1.5", "--sigma: 1.5 is outside 0..1"),
        ("nan", "--sigma: 'nan' is not a number"),
        ("", "--sigma: '' is not a number"),
        ("0.5Gbps", "--sigma: '0.5Gbps' is not a number"),
        ("normal:0,1", "--sigma: 'normal' is not one of uniform, choice"),
        ("uniform:0.5", "--sigma: 'uniform:0.5' is not uniform:LOW,HIGH"),
        ("uniform:0.8,0.2", "--sigma: 'uniform:0.8,0.2' is not uniform:LOW,HIGH"),
        ("0.1,0.2", "--sigma: '0.1,0.2' is not one number"),
    ],
)
def test_bad_draws(text: str, fault: str) -> None:
    with pytest.raises(InputError) as caught:
        read_sigma(text)
    assert str(caught.value) == fault


def test_bad_bandwidth() -> None:
    with pytest.raises(InputError, match="--bandwidth: '5 apples' is not a bandwidth"):
        read_bandwidth("5 apples")
    with pytest.raises(InputError, match="--bandwidth: -1 is below 0"):
        read_bandwidth("-1")


KEEP = JobRule(keep_clusters=True, partitions={1: "alpha"}, clusters=("alpha", "beta"))


def test_clusters_are_kept_on_request() -> None:
    assert one(KEEP, partition=1).job.clusters == ("alpha",)
    assert one(KEEP, partition=None).job.clusters is None
    assert one(partition=1).job.clusters is None
    demand = ("{1}", "q_1d", "1:ppn=4:x86_64:cl_beta#excl:cl_beta")
    assert one(KEEP, extra=demand).job.clusters == ("beta",)
    assert one(KEEP, extra=("{1}", "q_1d", "1:ppn=4:brno")).job.clusters is None


def test_a_cluster_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(InputError, match="line 1: the platform has no cluster for partition 2"):
        one(KEEP, partition=2)
    with pytest.raises(InputError, match="line 1: the platform has no cluster 'gamma'"):
        one(KEEP, extra=("", "", "1:ppn=4:cl_gamma"))


def test_nasa_uses_run_times(shared_file: Callable[[str], Path]) -> None:
    made = make_jobs(read_swf(shared_file("data/swf/NASA-iPSC-1993-3.1-cln.swf.gz")))
    assert made.adjusted["run time stands in for the estimate"] == len(made.jobs) == 18239
    assert all(logged.run_s == logged.job.base_time for logged in made.jobs)


def test_curie_leaves_out_what_never_ran(shared_file: Callable[[str], Path]) -> None:
    log = read_swf(shared_file("data/swf/CEA-Curie-2011-2.1-cln.first20k.swf.gz"))
    made = make_jobs(log)
    assert len(made.jobs) + sum(made.left_out.values()) == len(log.jobs)
    assert made.left_out["cancelled before it ran"] == 1155
