"""The figures of a replay, against a log worked out by hand.

Four slots on one cluster; five jobs (submit, processes, run time), first come, first served::

    job  submit  procs  run   start  end   wait  turnaround  bounded slowdown
    1       0      2     10      0    10      0      10       1
    2       0      4     20     10    30     10      30       1.5
    3       5      1      5     30    35     25      30       3     (30 / max(5, 10))
    4       6      3     10     30    40     24      34       3.4
    5      10      2      2     40    42     30      32       3.2   (32 / max(2, 10))

(At 35 job 3 ends, but beside job 4 only one slot is free.)

Makespan 42. Work: 20 + 80 + 5 + 30 + 4 = 139, of 4 x 42 = 168. Between the first and the last
submission, 0 to 10, only job 1 runs: 20 of 40.
"""

from pathlib import Path

import numpy as np
import pytest

from coalloc.adapters.formats.platforms import Platform, parse_platform
from coalloc.adapters.formats.swf import SwfJob, SwfLog, SwfSummary
from coalloc.adapters.formats.swf_jobs import Draw, JobRule, make_jobs
from coalloc.simulation.metrics import load_profile, measure
from coalloc.simulation.reports import COLUMNS, side_by_side, summarise, write_jobs
from coalloc.simulation.trace import Outcome, Trace
from coalloc.simulation.workload import Workload, map_slots

FOUR = '[[clusters]]\nname = "a"\nnodes = [{name = "a[1-2]", slots = 2}]\n'
JOBS = [(0, 2, 10), (0, 4, 20), (5, 1, 5), (6, 3, 10), (10, 2, 2)]
STARTS = [0, 10, 30, 30, 40]
ENDS = [10, 30, 35, 40, 42]
# Slots of each job: low and high of every range.
RANGES = [[(0, 2)], [(0, 4)], [(0, 1)], [(1, 4)], [(0, 2)]]


def platform_of(text: str) -> Platform:
    return parse_platform(text.encode(), "p.toml")


def workload_of(jobs: list[tuple[int, int, int]], gbps: float = 0.0) -> Workload:
    lines = tuple(
        SwfJob(number=i, submit_s=submit, run_s=run, allocated=procs)
        for i, (submit, procs, run) in enumerate(jobs, 1)
    )
    log = SwfLog(header={}, jobs=lines, summary=SwfSummary())
    made = make_jobs(log, JobRule(bandwidth=Draw(values=(gbps,))))
    return Workload(name="hand", jobs=made.jobs)


def trace_of(
    workload: Workload,
    platform: Platform,
    starts: list[float],
    ends: list[float],
    ranges: list[list[tuple[int, int]]],
) -> Trace:
    flat = [pair for some in ranges for pair in some]
    ran = [not np.isnan(start) for start in starts]
    return Trace(
        workload=workload,
        slot_map=map_slots(platform),
        policy="hand",
        path="hand",
        start=np.array(starts, np.float64),
        end=np.array(ends, np.float64),
        outcome=np.where(ran, Outcome.COMPLETED, Outcome.REFUSED).astype(np.int8),
        first=np.concatenate(([0], np.cumsum([len(some) for some in ranges]))).astype(np.int64),
        low=np.array([low for low, _ in flat], np.int64),
        high=np.array([high for _, high in flat], np.int64),
        reasons={i: "too wide" for i, good in enumerate(ran) if not good},
    )


def hand() -> Trace:
    return trace_of(workload_of(JOBS), platform_of(FOUR), list(STARTS), list(ENDS), RANGES)


def test_five_jobs_by_hand() -> None:
    metrics = measure(hand())
    assert (metrics.jobs, metrics.completed, metrics.refused) == (5, 5, 0)
    assert metrics.makespan_s == 42.0
    assert metrics.mean_wait_s == pytest.approx((0 + 10 + 25 + 24 + 30) / 5)
    assert metrics.max_wait_s == 30.0
    assert metrics.mean_turnaround_s == pytest.approx((10 + 30 + 30 + 34 + 32) / 5)
    slowdowns = [1.0, 1.5, 3.0, 3.4, 3.2]
    assert metrics.mean_bounded_slowdown == pytest.approx(sum(slowdowns) / 5)
    # Between the two largest: rank 0.95 x 4 = 3.8.
    assert metrics.p95_bounded_slowdown == pytest.approx(3.2 + 0.8 * (3.4 - 3.2))
    assert metrics.compaction == pytest.approx(139 / 168)
    assert metrics.utilisation == pytest.approx(20 / 40)
    assert (metrics.coallocated_share, metrics.peak_link_use, metrics.peak_link_gbps) == (0, 0, {})


TWO = """
[[clusters]]
name = "a"
link_gbps = 2.0
nodes = [{name = "a[1-3]"}]
[[clusters]]
name = "b"
nodes = [{name = "b[1-3]"}]
"""


def test_links_by_hand() -> None:
    """4 processes as 3 + 1 at .5 Gbit/s load each link by .5 x 3 x 1 / 3; 2 as 1 + 1 by .5."""
    trace = trace_of(
        workload_of([(0, 4, 10), (0, 2, 10), (0, 1, 10)], gbps=0.5),
        platform_of(TWO),
        [0.0, 5.0, 20.0],
        [10.0, 15.0, 30.0],
        [[(0, 3), (3, 4)], [(0, 1), (4, 5)], [(5, 6)]],
    )
    metrics = measure(trace)
    assert metrics.peak_link_gbps == pytest.approx({"a": 1.0, "b": 1.0})
    assert metrics.peak_link_use == pytest.approx(0.5)  # the other link has no limit
    assert metrics.coallocated_share == pytest.approx(2 / 3)


def test_refused_jobs_count_for_nothing_but_themselves() -> None:
    nan = float("nan")
    trace = trace_of(
        workload_of([(0, 9, 5), (3, 1, 5)]),
        platform_of(FOUR),
        [nan, 3.0],
        [nan, 8.0],
        [[], [(0, 1)]],
    )
    metrics = measure(trace)
    assert (metrics.completed, metrics.refused, metrics.makespan_s) == (1, 1, 5.0)
    summary = summarise(trace, metrics, {})
    assert summary["refused"] == [{"job": "1", "procs": 9, "reason": "too wide"}]


def test_nothing_ran() -> None:
    nan = float("nan")
    trace = trace_of(workload_of([(0, 9, 5)]), platform_of(FOUR), [nan], [nan], [[]])
    metrics = measure(trace)
    assert (metrics.makespan_s, metrics.mean_wait_s, metrics.utilisation) == (0.0, 0.0, 0.0)
    assert "jobs refused" in side_by_side([(trace, metrics)])


def test_csv_has_batsims_columns(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    write_jobs(hand(), path)
    lines = path.read_text().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert lines[0].startswith("job_id,workload_name,profile,submission_time,requested_number")
    assert lines[4] == ("4,hand,delay,6,3,10,1,COMPLETED_SUCCESSFULLY,30,10,40,24,34,3.4,1-3,-1")


def test_load_profile_is_half_open() -> None:
    time, load = load_profile(np.array([0.0, 5.0]), np.array([5.0, 9.0]), np.array([2, 3]))
    assert time.tolist() == [0.0, 5.0, 9.0]
    assert load.tolist() == [2.0, 3.0, 0.0]
