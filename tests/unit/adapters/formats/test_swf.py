"""Reading job logs."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from coalloc.adapters.formats.swf import (
    GIVE_UP_AFTER,
    LONGEST_LINE,
    SwfJob,
    read_line,
    read_lines,
    read_swf,
)
from coalloc.model.errors import InputError
from coalloc.model.shape import ONE_SLOT
from tests.support.swf_bytes import read_bytes

FULL = b"7 100 5 60 4 59.5 1024 8 120 2048 1 3 2 9 1 6 5 30"


def test_every_field_of_a_full_line() -> None:
    assert read_line(FULL, 3) == SwfJob(
        number=7,
        submit_s=100.0,
        wait_s=5.0,
        run_s=60.0,
        allocated=4,
        cpu_s=59.5,
        used_kb=1024.0,
        requested=8,
        requested_s=120.0,
        requested_kb=2048.0,
        status=1,
        user=3,
        group=2,
        application=9,
        queue=1,
        partition=6,
        preceding=5,
        think_s=30.0,
        line=3,
    )


def test_minus_one_is_not_known() -> None:
    job = read_line(b"1 0 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1")
    unknown = (None, (), "", ONE_SLOT)
    known = {name for name in SwfJob.__slots__ if getattr(job, name) not in unknown}
    assert known == {"number", "submit_s", "line", "fields"}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"1 2 3", "has 3 fields, not 18"),
        (b"1 0 x 60 4", "'x' is not a number"),
        (b"1 0 nan 60 4", "'nan' is out of range"),  # float() reads it
        (b"1 0 inf 60 4", "'inf' is out of range"),
        (b"1 0 1e300 60 4", "'1e300' is out of range"),  # would be an integer of 300 digits
        (b"-1 0 0 60 4", "the job number is not known"),
        (b"1 -1 0 60 4", "the submit time is not known"),
        (b"1 0 0 60 " + b"9" * LONGEST_LINE, "longer than 1000000 bytes"),
        (b"1 0 0 \xff\xfe 4", "is not a number"),  # not UTF-8
    ],
)
def test_bad_lines_say_why(line: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        read_line(line)


def test_log_without_header_unsorted_short_repeated_and_bad_lines() -> None:
    log = read_bytes(
        b"1 50 0 10 2\nno job\n\n2 10 0 10 2\n2 60 0 10 2 -1\n" + FULL + b" {1} q 1:ppn=4\n"
    )
    assert [(job.number, job.submit_s) for job in log.jobs] == [(2, 10), (1, 50), (2, 60), (7, 100)]
    assert log.header == {}
    summary = log.summary
    assert (summary.jobs, summary.bad, summary.short) == (4, 1, 3)
    assert (summary.unsorted, summary.repeated) == (1, 1)
    assert summary.bad_lines == [(2, "has 2 fields, not 18")]
    assert log.jobs[-1].extra == ("{1}", "q", "1:ppn=4")
    assert summary.describe() == (
        "4 jobs, 1 bad lines skipped, 3 short lines, 1 out of order, 1 repeated numbers, "
        "first bad line 2: has 2 fields, not 18"
    )


def test_jobs_of_one_second_keep_the_order_of_the_file() -> None:
    log = read_bytes(b"5 9 0 1 1\n3 9 0 1 1\n4 9 0 1 1\n")
    assert [job.number for job in log.jobs] == [5, 3, 4]


def test_header_joins_repeated_keys() -> None:
    log = read_bytes(b"; MaxProcs: 100\n;   Note: a\n; Note: b\n;free text\n1 0 0 1 1\n")
    assert log.header == {"MaxProcs": "100", "Note": "a\nb"}


def test_header_without_jobs_is_an_empty_log() -> None:
    assert read_bytes(b"; Version: 2.2\n").jobs == ()


@pytest.mark.parametrize("content", [b"", b"\n\n", b"hello\n", b"{\n}\n", b"; only words\n"])
def test_what_is_no_log_is_refused(content: bytes) -> None:
    with pytest.raises(InputError, match=r"^log: is no SWF log"):
        read_bytes(content)


def test_gives_up_early_on_a_large_file_that_is_no_log() -> None:
    read = 0

    def lines() -> object:
        nonlocal read
        while True:
            read += 1
            yield b"not a job\n"

    with pytest.raises(InputError, match=f"none of {GIVE_UP_AFTER} lines"):
        read_lines(lines(), "big")  # type: ignore[arg-type]
    assert read == GIVE_UP_AFTER


def test_an_overlong_line_is_one_bad_line() -> None:
    text = b"1 0 0 1 1\n" + b"9" * (3 * LONGEST_LINE) + b"\n2 1 0 1 1\n"
    log = read_bytes(text)
    assert [job.number for job in log.jobs] == [1, 2]
    assert log.summary.bad == 1


def test_gzip_is_told_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"  # the name does not say it
    path.write_bytes(gzip.compress(FULL))
    assert read_swf(path).jobs[0].number == 7


@pytest.mark.parametrize("cut", [1, 12, 30])  # in the header, the body, the trailer
def test_damaged_gzip_is_one_error(tmp_path: Path, cut: int) -> None:
    whole = gzip.compress(FULL * 3)
    (tmp_path / "log.gz").write_bytes(whole[: max(3, len(whole) - cut)])
    with pytest.raises(InputError, match="damaged gzip"):
        read_swf(tmp_path / "log.gz")


def test_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.swf: No such file"):
        read_swf(tmp_path / "none.swf")
    with pytest.raises(InputError, match="Is a directory"):
        read_swf(tmp_path)


# File, jobs, keys of the header (0: none), columns, MaxProcs.
LOGS = [
    ("KTH-SP2-1996-2.1-cln.swf.gz", 27992, 18, 18, "100"),
    ("METACENTRUM-2009-2.part1.swf.gz", 50000, 0, 18, None),  # no header at all
    ("NASA-iPSC-1993-3.1-cln.swf.gz", 18239, 20, 18, "128"),
    ("CERIT-wagap-2013.part1.xswf.gz", 6000, 0, 21, None),  # three more columns
    ("LCG-2005.part1.swf.gz", 30000, 18, 18, "24515"),
]


@pytest.mark.parametrize(("name", "jobs", "keys", "fields", "procs"), LOGS)
def test_real_logs(
    shared_file: Callable[[str], Path],
    name: str,
    jobs: int,
    keys: int,
    fields: int,
    procs: str | None,
) -> None:
    log = read_swf(shared_file(f"data/swf/{name}"))
    assert len(log.jobs) == log.summary.jobs == jobs
    assert log.summary.bad == 0
    assert len(log.header) == keys
    assert {job.fields for job in log.jobs} == {fields}
    assert log.header.get("MaxProcs") == procs


def test_metacentrum_has_no_requested_times_and_names_its_cluster(
    shared_file: Callable[[str], Path],
) -> None:
    jobs = read_swf(shared_file("data/swf/METACENTRUM-2009-2.part1.swf.gz")).jobs
    assert {job.requested_s for job in jobs} == {None}
    assert {job.partition for job in jobs} == set(range(1, 15))
    assert max(job.allocated or 0 for job in jobs) == 32
