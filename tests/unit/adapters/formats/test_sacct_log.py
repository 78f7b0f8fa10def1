"""Logs that sacct printed: rows of all kinds, columns in any order, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.formats.platforms import Platform, read_platform
from coalloc.adapters.formats.sacct_log import read_log
from coalloc.adapters.formats.swf import SwfJob
from coalloc.adapters.formats.swf_jobs import JobRule, make_jobs
from coalloc.model.errors import InputError
from coalloc.model.shape import ONE_SLOT, Shape
from coalloc.simulation.replay import replay
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import read_workload

ROW = {
    "JobID": "7",
    "User": "ann",
    "Submit": "2026-11-20T10:00:00",
    "Start": "2026-11-20T10:01:00",
    "End": "2026-11-20T11:01:00",
    "State": "COMPLETED",
    "Timelimit": "02:00:00",
    "NCPUS": "8",
}
SITE = """
[[clusters]]
name = "a"
resources = { matlab = 2 }
[[clusters.nodes]]
name = "n[1-2]"
slots = 8
memory_mb = 64000
resources = { "gpu:a100" = 4 }
"""


def text_of(*rows: dict[str, str], mark: str = "|") -> str:
    names = list(dict.fromkeys(name for row in rows for name in {**ROW, **row}))
    lines = [names, *([{**ROW, **row}.get(name, "") for name in names] for row in rows)]
    return "".join(f"{mark.join(line)}\n" for line in lines)


def read(folder: Path, *rows: dict[str, str], mark: str = "|") -> tuple[SwfJob, ...]:
    path = folder / "jobs.sacct"
    path.write_text(text_of(*rows, mark=mark))
    return read_log(path).jobs


@pytest.fixture
def site(tmp_path: Path) -> Platform:
    (tmp_path / "site.toml").write_text(SITE)
    return read_platform(tmp_path / "site.toml")


def test_a_row_is_a_job(tmp_path: Path) -> None:
    (job,) = read(tmp_path, {"JobName": "md", "Cluster": "a"})
    assert (job.name, job.owner, job.program, job.cluster) == ("7", "ann", "md", "a")
    assert (job.wait_s, job.run_s, job.requested, job.requested_s) == (60.0, 3600.0, 8, 7200.0)
    assert job.shape == ONE_SLOT
    for mark in ",;\t\x1f":
        assert read(tmp_path, {"JobName": "md", "Cluster": "a"}, mark=mark) == (job,)


@pytest.mark.parametrize(
    ("row", "what", "value"),
    [
        ({"Eligible": "2026-11-20T10:00:30"}, "wait_s", 30.0),
        ({"Eligible": "Unknown"}, "wait_s", 60.0),
        # a zone, and seconds since 1970, by SLURM_TIME_FORMAT
        ({"Start": "2026-11-20T11:01:00+0100"}, "wait_s", 60.0),
        ({"Start": "1763632860", "Submit": "1763632800"}, "wait_s", 60.0),
        # a clock set back between start and end: what Slurm counted stands
        ({"End": "2026-11-20T10:00:30", "Elapsed": "1-00:00:01"}, "run_s", 86401.0),
        ({"ElapsedRaw": "9"}, "run_s", 9.0),
        ({"Timelimit": "UNLIMITED"}, "requested_s", None),
        ({"Timelimit": "Partition_Limit"}, "requested_s", None),
        ({"Timelimit": "7-00:00:00"}, "requested_s", 604800.0),
        ({"TimelimitRaw": "90"}, "requested_s", 5400.0),
        ({"AllocTRES": "billing=9,cpu=16,mem=1G,node=2"}, "requested", 16),
        ({"JobID": "7_3"}, "name", "7_3"),
        ({"JobID": "7+1"}, "name", "7+1"),
    ],
)
def test_times_and_counts(tmp_path: Path, row: dict[str, str], what: str, value: Any) -> None:
    (job,) = read(tmp_path, row)
    assert getattr(job, what) == value


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"State": "PENDING", "Start": "Unknown", "End": "Unknown"}, "had not started"),
        ({"JobID": "7_[3-9%2]", "Start": "Unknown", "End": "Unknown"}, "had not started"),
        ({"State": "RUNNING", "End": "Unknown", "Elapsed": "00:10:00"}, "still ran"),
        ({"State": "SUSPENDED", "End": "Unknown"}, "still ran"),
        (
            {"State": "CANCELLED by 1000", "Elapsed": "00:00:00", "NCPUS": "0"},
            "cancelled before it ran",
        ),
        ({"State": "CANCELLED", "Start": "None", "NCPUS": ""}, "cancelled before it ran"),
        ({"State": "CANCELLED by 1000"}, ""),
        ({"State": "TIMEOUT"}, ""),
    ],
)
def test_what_did_not_run_to_an_end_is_left_out(
    tmp_path: Path, row: dict[str, str], why: str
) -> None:
    (job,) = read(tmp_path, row)
    assert job.unusable == why
    path = tmp_path / "jobs.sacct"
    assert make_jobs(read_log(path)).left_out == ({why: 1} if why else {})


def test_steps_and_lines_that_are_no_rows_are_passed_over(tmp_path: Path) -> None:
    steps = [{"JobID": f"7.{step}"} for step in ("batch", "extern", "0")]
    path = tmp_path / "jobs.sacct"
    again = text_of(ROW, *steps, {"JobID": "7_4"}, ROW)
    path.write_text(f"{again}{again.partition(chr(10))[0]}\n8|bob|name|with|marks\n\n")
    log = read_log(path)
    assert [job.name for job in log.jobs] == ["7", "7_4", "7"]
    assert log.summary.bad == 1
    assert "line 9: has 5 fields, not 8" in log.summary.describe()
    assert [one.job.id for one in make_jobs(log).jobs] == ["7", "7_4", "7.2"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "JobID|User|State\n",
            "no column Submit, no Start, no Elapsed or ElapsedRaw or End, no",
        ),
        ("User|Submit|Start|End|NCPUS\n", "has no column JobID or JobIDRaw of sacct"),
        (
            "JobID|Submit|Start|End|NCPUS\n7|x|y\n",
            "has no row of sacct that can be read; line 2:",
        ),
        ("JobID|Submit|Start|End|NCPUS\n7|x|y|z|1\n", "line 2: Invalid isoformat string: 'x'"),
        ("JobID           User\n7    ann\n", "is a table of sacct, which is not read; sacct -P"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "jobs.sacct"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_log(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


TRES = "billing=8,cpu=8,{},node={}"


@pytest.mark.parametrize(
    ("row", "memory", "shape"),
    [
        # sums of the job, as Slurm tells them from 21.08 on; a share that fits, not one rounded up
        ({"ReqTRES": TRES.format("mem=64000M", 1)}, 8000, {}),
        ({"ReqTRES": TRES.format("mem=1000M", 1), "NCPUS": "3"}, 333, {}),
        ({"ReqMem": "1.50G"}, 192, {}),
        # before: of each node, or CPU
        ({"ReqMem": "4Gn", "NNodes": "2"}, 0, {"min_nodes": 2, "memory_mb_per_node": 4096}),
        ({"ReqMem": "2000Mc"}, 2000, {}),
        ({"ReqMem": "0n"}, 0, {}),
        # one node asked, two had: it may lie anywhere
        (
            {"ReqTRES": TRES.format("mem=8G", 1), "AllocTRES": TRES.format("mem=8G", 2)},
            1024,
            {},
        ),
        ({"ReqTRES": TRES.format("mem=8G", 2)}, 1024, {"min_nodes": 2}),
        # GPUs by type, and those of no type beside; licences
        (
            {"AllocTRES": TRES.format("gres/gpu=4,gres/gpu:a100=4", 2)},
            0,
            {"min_nodes": 2, "per_node": {"gpu:a100": 2}},
        ),
        (
            {"AllocTRES": TRES.format("gres/gpu=3,gres/gpu:a100=1", 1)},
            0,
            {"max_nodes": 1, "per_node": {"gpu:a100": 1, "gpu": 2}},
        ),
        ({"ReqTRES": TRES.format("license/matlab=2", 1)}, 0, {"per_job": {"matlab": 2}}),
    ],
)
def test_what_a_job_held_is_its_shape(
    tmp_path: Path, row: dict[str, str], memory: int, shape: dict[str, Any]
) -> None:
    (job,) = read(tmp_path, row)
    low = shape.setdefault("min_nodes", 1)
    assert job.shape == Shape(max_nodes=shape.pop("max_nodes", low if low > 1 else None), **shape)
    assert (job.requested_kb or 0) == memory * 1024


def test_what_the_platform_has_is_counted(tmp_path: Path, site: Platform) -> None:
    tres = TRES.format("mem=8G,gres/gpu=4,gres/gpu:v100=2,license/matlab=1,license/x=1", 2)
    log_of = read(tmp_path, {"ReqTRES": tres, "ReqMem": "4Gn"})
    assert log_of[0].shape.per_node == {"gpu": 1, "gpu:v100": 1}
    made = make_jobs(read_log(tmp_path / "jobs.sacct"), JobRule.on(site.clusters))
    # a type that the platform does not tell counts as one of its family
    assert made.jobs[0].job.shape == Shape(
        min_nodes=2,
        max_nodes=2,
        memory_mb_per_node=4096,
        per_node={"gpu": 2},
        per_job={"matlab": 1},
    )
    assert made.adjusted["x that the platform lacks not counted"] == 1
    bare = make_jobs(read_log(tmp_path / "jobs.sacct"), JobRule()).jobs[0].job
    assert bare.shape == Shape(min_nodes=2, max_nodes=2)


@pytest.mark.parametrize("policy", ["easy", "auto"])
def test_a_replay_counts_what_the_site_has(tmp_path: Path, site: Platform, policy: str) -> None:
    """Slots would do for all at once: GPUs, memory and the licences make them wait."""
    one = {"NCPUS": "2", "Start": ROW["Submit"], "Timelimit": "01:00:00", "ReqMem": "100Mn"}
    large = {**one, "ReqMem": "60000Mn", "AllocTRES": "cpu=2,mem=60000M,node=1"}
    rows = [
        {**one, "JobID": "1", "AllocTRES": "cpu=2,mem=100M,gres/gpu:a100=4,node=1"},
        {**one, "JobID": "2", "AllocTRES": "cpu=2,mem=200M,gres/gpu:a100=8,node=2"},
        {**large, "JobID": "3"},
        {**large, "JobID": "4"},
        {**large, "JobID": "5"},
        *(
            {**one, "JobID": f"{n}", "AllocTRES": "cpu=2,mem=100M,license/matlab=1"}
            for n in (6, 7, 8)
        ),
    ]
    path = tmp_path / "jobs.sacct"
    path.write_text(text_of(*rows))
    workload = read_workload([path], JobRule.on(site.clusters))
    assert workload.needs_counting
    trace = replay(workload, site, policy)
    assert verify(trace) == []
    start = dict(zip((one.job.id for one in workload.jobs), trace.start.tolist(), strict=True))
    assert {start["1"], start["2"]} == {0.0, 3600.0}
    assert trace.ran.all()
    assert sorted(start[n] for n in "345") == sorted(start[n] for n in "678") == [0.0, 0.0, 3600.0]


def test_memory_that_slurm_did_not_give_out_is_not_counted(tmp_path: Path) -> None:
    """Where memory is no consumable, each job asks for all of a node's."""
    asked = {"ReqTRES": "cpu=2,mem=16000M,node=1", "ReqMem": "16000M"}
    given, not_given = (
        read(tmp_path, {**asked, "AllocTRES": "cpu=2,mem=16000M,node=1"}),
        read(tmp_path, {**asked, "AllocTRES": "cpu=2,node=1"}),
    )
    assert (given[0].requested_kb, not_given[0].requested_kb) == (8000 * 1024.0, None)
