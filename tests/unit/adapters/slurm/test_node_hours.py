"""A share that is bounded in node-hours: what counts, what is kept, what follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from coalloc.adapters.slurm.node_hours import HOUR_S, NodeHours
from coalloc.adapters.slurm.settings import read_settings
from coalloc.model.errors import InputError
from tests.unit.adapters.slurm.test_share import NODES, NOW, answers, pending, running, share

DAY_S = 24 * HOUR_S


def test_what_is_held_between_two_readings_counts(tmp_path: Path) -> None:
    hours = NodeHours(tmp_path / "h", DAY_S)
    for second in range(0, 601, 60):
        hours.count(3, NOW + second)
    assert hours.used == pytest.approx(0.5)
    again = NodeHours(tmp_path / "h", DAY_S)
    assert again.used == pytest.approx(0.5), "a restart goes on with it"


def test_of_a_long_gap_only_what_was_held_before_and_after_counts() -> None:
    hours = NodeHours(None, DAY_S)
    hours.count(1, NOW)
    hours.count(4, NOW + HOUR_S)
    assert hours.used == pytest.approx(1.0)


def test_a_clock_that_is_set_back_takes_nothing_off() -> None:
    hours = NodeHours(None, DAY_S)
    hours.count(2, NOW)
    hours.count(2, NOW + 30.0)
    hours.count(2, NOW - 1000.0)
    assert hours.used == pytest.approx(60.0 / HOUR_S)


def test_what_is_older_than_the_window_counts_no_more() -> None:
    hours = NodeHours(None, DAY_S)
    hours.count(1, NOW)
    hours.count(1, NOW + 60.0)
    hours.count(0, NOW + DAY_S + 2 * HOUR_S)
    assert hours.used == 0.0


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"x": 1}', "\udcff"])
def test_a_file_that_cannot_be_read_begins_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "h").write_bytes(text.encode(errors="surrogateescape"))
    assert NodeHours(tmp_path / "h", DAY_S).used == 0.0


def test_nothing_is_claimed_when_the_node_hours_are_used_up() -> None:
    mine, _ = share(max_share_node_h=1.0)
    mine.want(8)
    mine.plan(answers(pending("1")), NODES)
    assert mine.use is not None
    assert mine.use.kept
    mine.hours.count(2, NOW)
    mine.hours.count(2, NOW + 40.0)
    mine.hours.count(100, NOW + 80.0)
    assert mine.hours.used >= 1.0
    mine.want(8)
    found = answers(running("9", NODES[0].name))
    mine.plan(found, NODES)
    assert mine.use.kept == 0
    assert mine.use.node_h >= mine.use.node_h_most == 1.0
    why = "the share's 1 node-hours of the last 168 h are used up"
    assert mine.use.paused == why
    assert set(mine.closed(found, NODES).values()) == {f"no claims: {why}"}


def test_node_hours_bound_a_share_that_there_is() -> None:
    with pytest.raises(InputError, match="max_share_node_h: bounds max_share"):
        read_settings({"max_share_node_h": 5.0}, "alpha")
