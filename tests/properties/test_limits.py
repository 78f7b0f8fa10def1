"""No limit is ever broken: judged by one that shares no code with `core.limits`."""

from __future__ import annotations

import pytest

from coalloc.core.sharing import limits
from coalloc.core.sharing.limits import LimitBook
from tests.properties.limit_cases import play


def test_no_limit_is_broken() -> None:
    assert judge_some(20) > 100  # they hold some jobs, not all


@pytest.mark.nightly
def test_no_limit_is_broken_in_many_cases() -> None:
    for seed in range(1000, 101_000):
        try:
            play(seed, steps=12)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize(
    "planted",
    [
        "max_procs",  # starts are not checked when they are committed
        "take",  # the starts of one round are not added up
        "days",  # what has ended is forgotten
        "whole",  # pieces count as jobs of their own
        "waiting",  # submits are not refused
    ],
)
def test_the_judge_finds_planted_defects(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    match planted:
        case "max_procs":
            monkeypatch.setattr(limits, "holds", lambda *_: False)
        case "take":
            monkeypatch.setattr(LimitBook, "take", lambda *_: None)
        case "days":
            monkeypatch.setattr(LimitBook, "_count_days", lambda *_: None)
        case "waiting":
            monkeypatch.setattr(limits, "waiting_refusal", lambda *_: "")
        case _:
            monkeypatch.setattr(limits, "whole", lambda record: "all")
    with pytest.raises(AssertionError):
        judge_some(200)


def judge_some(cases: int) -> int:
    """Play so many cases; returns the starts that were judged."""
    return sum(play(seed).starts for seed in range(cases))
