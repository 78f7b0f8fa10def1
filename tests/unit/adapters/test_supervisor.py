"""Why a part has ended, where its nodes and the batch system say different things."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from coalloc.adapters.runner.batch.ends import verdict
from coalloc.adapters.runner.batch.supervisor import PartSupervisor
from coalloc.adapters.slurm.part_commands import ALIVE, explained


class AskedJob:
    """A job of which Slurm knows this state, if it is asked."""

    number, alive, ending, has_lost_step = "7", ALIVE, frozenset[str](), False

    def __init__(self, state: str | None) -> None:
        self._state = state
        self.asked = 0

    def state(self) -> tuple[str | None, str]:
        return self._state, ""

    def settled_state(self) -> tuple[str | None, str]:
        self.asked += 1
        return self._state, ""

    def explained(self, state: str, reason: str) -> tuple[str, str]:
        return explained(state, reason)


def end(reason: str, *codes: int | None) -> dict[str, Any]:
    return {"reason": reason, "detail": f"{reason} {codes}", "codes": list(codes)}


def reason_of(state: str | None, *ends: dict[str, Any]) -> str:
    return verdict(list(ends), AskedJob(state))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "told",
    [
        end("cancelled", -15),  # the wrapper heard the signal first
        end("signalled", -15),  # its processes were gone first
        end("signalled", None, -9),
        end("exited", 143),  # a shell whose child was killed
    ],
)
def test_the_batch_system_ended_it(told: dict[str, Any]) -> None:
    assert reason_of("CANCELLED", told) == "cancelled_there"
    assert reason_of("CANCELLED", end("exited", 0), told) == "cancelled_there"
    assert reason_of("PREEMPTED", told) == "preempted"
    assert reason_of("TIMEOUT", told) == "time_limit"


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING", "COMPLETED", "FAILED", "", None])
def test_a_signal_of_which_the_batch_system_knows_nothing(state: str | None) -> None:
    """Its own user killed it, or the kernel."""
    assert reason_of(state, end("signalled", -9)) == "signalled"
    assert reason_of(state, end("exited", 137)) == "exited"


def test_an_ordinary_end_is_not_asked_about() -> None:
    for told in (end("exited", 0, 0), end("exited", 0, 3), end("time_limit", -15)):
        job = AskedJob("CANCELLED")
        assert verdict([told], job)[0] == told["reason"]  # type: ignore[arg-type]
        assert not job.asked
    assert verdict([], AskedJob("CANCELLED")) == ("exited", "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "gap_s", "more"),
    [
        ("RUNNING", 600.0, 18),  # this machine was asleep
        (None, 0.0, 20),  # it was cut off
    ],
)
def test_a_missing_wrapper_has_time_to_call_once_this_machine_is_back(
    monkeypatch: pytest.MonkeyPatch, state: str | None, gap_s: float, more: int
) -> None:
    """What cuts us off may have kept it from calling."""
    now, job = 100.0, AskedJob("RUNNING")
    monkeypatch.setattr(time, "monotonic", lambda: now)
    part = object.__new__(PartSupervisor)
    part.is_started, part._job, part._is_over = True, job, False  # type: ignore[assignment]
    part._barrier = SimpleNamespace(missing=["a1"])  # type: ignore[assignment]
    part._missed, part._missing_s, part._asked_at = 0, 0.0, now
    part._reason = part._detail = ""

    def look(times: int, answer: str | None = "RUNNING") -> bool:
        nonlocal now
        job._state = answer
        for _ in range(times):
            now += 1.0
            part._ask_system()
        return part._is_over

    assert not look(1)
    now += gap_s
    assert not look(1, state)
    assert not look(more - 1)
    assert look(1)
