"""Why a part has ended, where its nodes and the batch system say different things."""

from __future__ import annotations

import time
from typing import Any

import pytest

from coalloc.adapters.runner.batch.ends import verdict
from coalloc.adapters.runner.batch.supervisor import PartSupervisor
from coalloc.adapters.slurm.part_commands import ALIVE, explained


class AskedJob:
    """A job of which Slurm knows this state, if it is asked."""

    alive = ALIVE

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


def test_a_missing_wrapper_has_time_to_call_once_the_system_can_be_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What cuts us off may have kept it from calling."""
    clock = iter((100.0, 101.0, 119.0, 121.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    part = object.__new__(PartSupervisor)
    part.is_started, part._missing_since = True, 0.0
    part._job = AskedJob(None)  # type: ignore[assignment]
    part._ask_system()
    assert [part._is_away_for_good() for _ in range(3)] == [False, False, True]
