"""What is typed: times, bandwidths, arrays, dependencies, script options."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError as BadText
from collections.abc import Callable
from typing import Any

import pytest

from coalloc.cli import arguments as parse
from coalloc.model.formats.indices import Indices
from coalloc.runtime import texts


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 600.0),  # minutes
        ("10:30", 630.0),
        ("2:03:04", 7384.0),
        ("1-2", 93600.0),  # days and hours, not minutes
        ("1-2:03", 93780.0),
        ("1-2:03:04", 93784.0),
        ("0:30", 30.0),
        ("90:00", 5400.0),
        ("100:00:00", 360000.0),
        ("90s", 90.0),
        ("1.5h", 5400.0),
        ("2d", 172800.0),
        (".5m", 30.0),
    ],
)
def test_times_as_in_sbatch(text: str, value: float) -> None:
    assert parse.seconds(text) == value
    assert parse.time_limit(text) == value


@pytest.mark.parametrize("text", ["0", "UNLIMITED", "infinite"])
def test_no_time_limit(text: str) -> None:
    assert parse.time_limit(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("75Mbps", 0.075),
        ("1.5Gbps", 1.5),
        ("1.5 Gbit/s", 1.5),
        ("100kbps", 1e-4),
        ("1e3Mb/s", 1.0),
        ("10MB/s", 0.08),  # bytes
        ("2GBps", 16.0),
        ("0", 0.0),
    ],
)
def test_bandwidths(text: str, value: float) -> None:
    assert parse.gbps(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"), [("500", 500), ("500M", 500), ("4G", 4096), ("1.5G", 1536), ("1K", 1)]
)
def test_memory(text: str, value: int) -> None:
    assert parse.mebibytes(text) == value


def array(text: str) -> tuple[tuple[int, ...], int]:
    indices, throttle = parse.array(text)
    return tuple(indices), throttle


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0-3", (0, 1, 2, 3)),
        ("5", (5,)),
        ("0-2,12,20-30:5", (0, 1, 2, 12, 20, 25, 30)),
        ("3,1,2,1", (1, 2, 3)),  # each once, rising
        ("0-9:4", (0, 4, 8)),  # the end is not reached
        ("0-8:2,1", (0, 1, 2, 4, 6, 8)),
        ("7,0,1,4,9", (0, 1, 4, 7, 9)),
    ],
)
def test_arrays(text: str, value: tuple[int, ...]) -> None:
    assert array(text) == (value, 0)
    assert array(f"{text}%3") == (value, 3)
    again, bounds = Indices.of(value), Indices.read(text).bounds
    assert tuple(Indices.read(str(again))) == value
    assert bounds[:2] == (value[0], value[-1])
    assert [v for v in range(40) if v in again] == list(value)
    for count in range(len(value) + 1):
        first, others = again.split(count)
        assert (*first, *others) == value
    assert all(tuple(again.without(v)) == tuple(w for w in value if w != v) for v in value)


def test_throttles() -> None:
    for text in ("0-9%0", "0-9%", "[0-9]", ",0-9,"):
        assert array(text) == (tuple(range(10)), 0)
    for text in ("0-2%3,12", "[0-2,12]%3", "[0-2,12%3]"):
        assert array(text) == ((0, 1, 2, 12), 3)
    assert [parse.throttle(text) for text in ("5", "0", "none", "")] == [5, 0, 0, 0]
    assert parse.jobs("12_[0-2%2],13") == ("12_0", "12_1", "12_2", "13")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("afterok:1", (("afterok", "1"),)),
        ("afterok:1:2,afterany:3", (("afterok", "1"), ("afterok", "2"), ("afterany", "3"))),
        ("afternotok:12_3", (("afternotok", "12_3"),)),
    ],
)
def test_dependencies(text: str, value: tuple[tuple[str, str], ...]) -> None:
    assert parse.needs(text) == value


@pytest.mark.parametrize(("text", "value"), [("8", 8), ("1-64", (1, 64)), ("4-4", (4, 4))])
def test_processes(text: str, value: Any) -> None:
    assert parse.procs(text) == value


def test_speedups() -> None:
    assert texts.speedup("amdahl:0.95") == {"model": "amdahl", "parallel_fraction": 0.95}
    assert texts.speedup("downey:64,1.5") == {"model": "downey", "A": 64.0, "sigma": 1.5}
    assert parse.times("1:100,8:20,2:55") == {1: 100.0, 8: 20.0, 2: 55.0}


def test_features_and_names() -> None:
    assert parse.constraint("fast&ib") == parse.constraint("fast,ib") == ("fast", "ib")
    assert parse.names("alpha, beta") == ("alpha", "beta")


@pytest.mark.parametrize(
    ("reading", "text", "words"),
    [
        (parse.seconds, "", "is not a time"),
        (parse.seconds, "1:2:3:4", "is not a time"),
        (parse.seconds, "-5", "is not a time"),
        (parse.seconds, "1-", "is not a time"),
        (parse.seconds, "5 m", "is not a time"),
        (parse.seconds, "0", "above 0"),
        (parse.seconds, "0:00", "above 0"),
        (parse.seconds, "9" * 40, "above 0"),
        (parse.seconds, "٣", "is not a time"),  # a digit, but not ours
        (parse.gbps, "75", "with its unit"),
        (parse.gbps, "75Mbpx", "with its unit"),
        (parse.gbps, "-1Gbps", "with its unit"),
        (parse.gbps, "1e999Gbps", "too large"),
        (parse.mebibytes, "lots", "amount of memory"),
        (parse.mebibytes, "1e99T", "too large"),
        (parse.procs, "0", "number of processes"),
        (parse.procs, "4-", "number of processes"),
        (parse.procs, "8-4", "8 is above 4"),
        (parse.procs, "9" * 5000, "number of processes"),
        (texts.number, "nan", "finite"),
        (texts.number, "inf", "finite"),
        (texts.number, "-1", "at least 0"),
        (texts.number, "x", "not a number"),
        (texts.fraction, "1.1", "outside 0..1"),
        (parse.count, "-1", "whole number"),
        (texts.speedup, "amdahl", "neither"),
        (texts.speedup, "amdahl:", "neither"),
        (texts.speedup, "amdahl:2", "outside 0..1"),
        (texts.speedup, "downey:3", "neither"),
        (parse.times, "1", "PROCESSES:SECONDS"),
        (parse.times, "1:5,1:6", "named twice"),
        (parse.times, "1:0", "above 0"),
        (parse.array, "0-9%x", "how many run at once"),
        (parse.array, "9-0%2", "empty range"),
        (parse.throttle, "-1", "how many members"),
        (parse.indices, "9-0", "empty range"),
        (parse.indices, "0-9:0", "empty range"),
        (parse.indices, "0-999999999", "more than"),  # not built before it is refused
        (parse.indices, "a", "neither an index"),
        (parse.indices, "", "neither an index"),
        (parse.needs, "since:1", "not one of"),
        (parse.needs, "after:", "number of a job"),
        (parse.needs, "afterok", "number of a job"),
        (parse.needs, "afterok:x", "number of a job"),
        (parse.needs, "afterok:1?afterok:2,after:3", "not both"),
        (parse.needs, "afterok:1+5", "number of a job"),
        (parse.names, ",", "no name"),
        (parse.job, "12.", "number of a job"),
    ],
)
def test_refusals_say_what_is_expected(
    reading: Callable[[str], Any], text: str, words: str
) -> None:
    with pytest.raises(BadText, match=words):
        reading(text)


NOW = time.mktime((2030, 5, 17, 14, 30, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("now", (17, 14, 30, 0)),
        ("now+90", (17, 14, 31, 30)),
        ("now+2hours", (17, 16, 30, 0)),
        ("now+1day", (18, 14, 30, 0)),
        ("16:00", (17, 16, 0, 0)),
        ("09:15", (18, 9, 15, 0)),  # past today
        ("14:30:00", (17, 14, 30, 0)),  # just now
        ("noon", (18, 12, 0, 0)),
        ("midnight", (18, 0, 0, 0)),
        ("tomorrow", (18, 0, 0, 0)),
        ("2030-05-20T12:34", (20, 12, 34, 0)),
        ("2030-05-20", (20, 0, 0, 0)),
        ("now-1hour", (17, 13, 30, 0)),
        ("NOW + 1 HOUR", (17, 15, 30, 0)),
        ("3:30PM", (17, 15, 30, 0)),
        ("12:10 am", (18, 0, 10, 0)),
        ("Teatime", (17, 16, 0, 0)),
        ("fika tomorrow", (18, 15, 0, 0)),
        ("05/19/30", (19, 0, 0, 0)),
        ("0519", (19, 0, 0, 0)),
        ("05.19.30-10:30", (19, 10, 30, 0)),
    ],
)
def test_begin(text: str, local: tuple[int, ...]) -> None:
    found = time.localtime(parse.begin(text, NOW))
    assert (found.tm_mday, found.tm_hour, found.tm_min, found.tm_sec) == local


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        "now+",
        "now+1fortnight",
        "25:00",
        "2030-13-01",
        "",
        "13:00PM",
        "3PM",
        "10",
        "02/30/31",
        "x noon",
    ],
)
def test_begin_refusals(text: str) -> None:
    with pytest.raises(BadText):
        parse.begin(text, NOW)


ENVIRON = {"PATH": "/bin", "HOME": "/home/ada", "COLOUR": "red", "SIZE": "3"}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("ALL", ENVIRON),
        ("NONE", {"PATH": "/bin", "HOME": "/home/ada"}),
        ("COLOUR", {"PATH": "/bin", "HOME": "/home/ada", "COLOUR": "red"}),
        ("all", ENVIRON),
        ("nil", {"PATH": "/bin", "HOME": "/home/ada"}),
        ("X='a,b=c',All,,Y=d", {**ENVIRON, "X": "'a,b=c'", "Y": "d"}),
        ("ABSENT,SIZE=9", {"PATH": "/bin", "HOME": "/home/ada", "SIZE": "9"}),
        ("ALL,SIZE=9", {**ENVIRON, "SIZE": "9"}),
        ("A=b=c", {"PATH": "/bin", "HOME": "/home/ada", "A": "b=c"}),
    ],
)
def test_export(text: str, kept: dict[str, str]) -> None:
    assert parse.exported(text, ENVIRON) == kept


@pytest.mark.parametrize("text", ["=x", "COLOUR,NONE", "ALL, X=1", "X='a,b"])
def test_export_refusals(text: str) -> None:
    with pytest.raises(BadText):
        parse.exported(text, ENVIRON)


def test_node_sets() -> None:
    assert parse.node_set("beta[3-4,7]") == ("beta3", "beta4", "beta7")
    assert parse.node_set("alpha") == ("alpha",)
    with pytest.raises(BadText, match="is not a node set"):
        parse.node_set("beta[3-")
