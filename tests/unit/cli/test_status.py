"""What ``coalloc status`` says."""

from __future__ import annotations

import time

from coalloc.cli.status import status_lines
from coalloc.model.values import replace
from coalloc.wire.answers import LastRound, ServiceStatus, SolverStatus

NOW = time.mktime((2030, 5, 17, 14, 30, 0, 0, 0, -1))
WELL = ServiceStatus(
    time=NOW,
    user="ada",
    epoch=3,
    rounds=9,
    paused=False,
    waiting=2,
    placed=1,
    clusters={"alpha": True, "beta": True},
    version="1.2.3",
    began=NOW - 3723.0,
    policy="easy",
    last_round=LastRound(
        round=9,
        time=NOW - 62.0,
        policy="easy",
        status="feasible",
        objective="makespan",
        value=110.0,
        bound=100.0,
        elapsed_s=0.0421,
    ),
    read_age_s={"alpha": 2.0, "beta": 125.0},
    disk_free_bytes=250 << 30,
)


def test_a_daemon_that_is_well() -> None:
    assert status_lines(WELL, "ipc:///x") == [
        "coallocd 1.2.3 at ipc:///x",
        "  up          1:02:03 since 2030-05-17T13:27:57, start 3 on its store",
        "  jobs        2 waiting, 1 placed",
        "  rounds      9, by easy",
        "  last round  1:02 ago, easy, feasible in 0.0421 s: makespan 110, bound 100",
        "  solver      warm",
        "  clusters    alpha, beta (read 2:05 ago)",
        "  store       takes writes, 250.0 GiB free on its disk",
    ]


def test_a_disk_with_little_room() -> None:
    text = "\n".join(status_lines(replace(WELL, disk_free_bytes=100 << 20), "ipc:///x"))
    assert "takes writes, ONLY 0.1 GiB free" in text


def test_why_the_number_of_a_start_has_jumped() -> None:
    restored = replace(WELL, epoch=int(NOW) - 60)
    assert status_lines(restored, "ipc:///x")[2] == (
        "  restored    2030-05-17T14:29:00, from a backup: starts are counted on from that second,"
        " jobs and events 10,000 higher"
    )


def test_a_daemon_of_an_earlier_version() -> None:
    earlier = replace(WELL, version="", began=None, policy="", last_round=None, read_age_s={})
    assert status_lines(replace(earlier, disk_free_bytes=None), "ipc:///x") == [
        "coallocd at ipc:///x",
        "  up        start 3 on its store",
        "  jobs      2 waiting, 1 placed",
        "  rounds    9",
        "  solver    warm",
        "  clusters  alpha, beta",
        "  store     takes writes",
    ]


def test_status_says_what_is_wrong() -> None:
    status = ServiceStatus(
        time=NOW,
        user="ada",
        epoch=3,
        rounds=9,
        paused=True,
        waiting=2,
        placed=1,
        clusters={"alpha": True, "beta": False},
        writable=False,
        faults={"client_bad_json": 4},
        orders_waiting={"alpha": 0, "beta": 2},
        solver=SolverStatus(is_warm=False, done=3, steps=12),
    )
    text = "\n".join(status_lines(status, "ipc:///x"))
    for words in ("paused", "not connected: beta", "CANNOT WRITE", "4 client_bad_json"):
        assert words in text
    assert "2 for beta" in text
    assert "warming, 3 of 12 steps" in text
