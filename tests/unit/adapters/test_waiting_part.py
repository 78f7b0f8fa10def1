"""The supervisor of a part whose claim waits in the queue."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.runner.batch import supervisor
from coalloc.adapters.runner.batch.job import Turn
from coalloc.adapters.runner.batch.supervisor import PartSupervisor
from coalloc.adapters.runner.grant import GRANT, kept
from coalloc.adapters.runner.status import StatusFile

SPEC: dict[str, Any] = {
    "queue": {"at_once": False, "begin_s": 600.0, "hold_s": 10.0},
    "ranks": [{"rank": 0, "node": "a1"}],
    "size": 2,
    "site": {"ports": [0, 0], "names": {"a1": "a1"}, "prefix": ""},
    "key": "secret",
    "lease_s": 60.0,
    "grace_s": 1.0,
}


class WaitingJob:
    """A job that waits; slurmctld answers as often as there is something to say."""

    system, number, is_unsure, has_lost_step = "Slurm", "7", False, False
    is_parked = False
    asked_s = None
    alive = frozenset({"PENDING"})

    def __init__(self, turns: Iterator[Turn | None], hastened: Iterator[bool]) -> None:
        self.turns, self.hastened = turns, hastened
        self.asked: list[str] = []

    def attend(self, port: int) -> None:
        """Its wrappers call."""

    def claim(self, port: int, keep: Callable[[], None]) -> bool:
        return True

    def hasten(self) -> bool:
        self.asked.append("hasten")
        return next(self.hastened)

    def turn(self) -> Turn | None:
        self.asked.append("turn")
        return next(self.turns)

    def explained(self, state: str, reason: str) -> tuple[str, str]:
        return "ended", state

    def last_words(self) -> str:
        return ""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(supervisor, "LOOK_S", 0.001)
    found = tmp_path / "part"
    found.mkdir()
    return found


def carried(folder: Path, job: WaitingJob, orders: bytes = b"") -> dict[str, Any]:
    """Let a supervisor carry the part to its end; returns the record of it."""
    status = StatusFile(str(folder))
    status.preallocate(1)
    status.open()
    fds = os.pipe()
    os.set_blocking(fds[0], False)
    os.write(fds[1], orders)
    wake = os.pipe()
    part = PartSupervisor(SPEC, str(folder), status, job, (fds[0], wake[0]))  # type: ignore[arg-type]
    try:
        part.carry(is_resumed=False)
    finally:
        part.close()
        for fd in (*fds, *wake):
            os.close(fd)
    return part.end_record()


def test_it_ends_when_nobody_answers_and_its_folder_is_gone(folder: Path) -> None:
    def silent() -> Iterator[Turn | None]:
        yield None
        yield None
        shutil.rmtree(folder)
        yield None
        raise AssertionError("it goes on for ever")

    end = carried(folder, WaitingJob(silent(), iter(())))
    assert (end["state"], end["reason"]) == ("refused", "state_unwritable")


def test_it_is_hastened_until_that_is_known(folder: Path) -> None:
    waits = Turn("PENDING", "BeginTime")
    job = WaitingJob(iter([waits, waits, Turn("CANCELLED")]), iter([False, True]))
    carried(folder, job, b"hasten\n")
    assert job.asked == ["hasten", "turn", "hasten", "turn", "turn"]


def test_it_says_that_it_is_next(folder: Path) -> None:
    seen = []

    def turns() -> Iterator[Turn]:
        for is_next in (False, True):
            yield Turn("PENDING", "Resources", is_next=is_next)
            seen.append(kept(str(folder), GRANT)["is_next"])
        yield Turn("CANCELLED")

    carried(folder, WaitingJob(turns(), iter(())))
    assert seen == [False, True]
