"""The search for a handful of jobs beside every schedule there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.policies.moldable.handful import handful
from coalloc.simulation.reproduce.moldable_instances import moldable_instance
from tests.unit.demt_case import queue_of
from tests.unit.test_moldable_bounds import Rows, active_schedules, bounds_queue, small_rows
from tests.unit.test_moldable_bounds import snapshot_of as small_snapshot


@settings(max_examples=6, deadline=None)
@given(small_rows(), st.integers(1, 3), st.sampled_from([0.0, 3.0]))
def test_finds_the_least_makespan_of_all_schedules(rows: Rows, procs: int, busy: float) -> None:
    points = active_schedules(rows, procs, busy)
    front = handful(bounds_queue(small_snapshot(rows, procs, busy)), 1, runs=3).points
    least = min(last for last, _ in points), min(value for _, value in points)
    # a list never leaves a processor idle that a job would take, which an optimum may need
    assert least[0] * (1.0 - 1e-9) <= front[0].cmax <= least[0] * 1.5
    assert least[1] * (1.0 - 1e-9) - 1e-9 <= front[-1].total
    for one in front:
        assert any(
            last <= one.cmax * (1.0 + 1e-9) and value <= one.total * (1.0 + 1e-9) + 1e-9
            for last, value in points
        )


def test_seeds_repeat_and_points_are_schedules() -> None:
    queue = queue_of(moldable_instance("mixed", 8, 8, 3))
    one, two = (handful(queue, 5, runs=3).points for _ in range(2))
    assert [(p.cmax, p.total) for p in one] == [(p.cmax, p.total) for p in two]
    for point in one:
        ends = point.start + queue.times[point.rows]
        assert ends.max() == pytest.approx(point.cmax)
        assert queue.weight @ ends == pytest.approx(point.total)
        for now in point.start:
            runs = (point.start <= now + 1e-9) & (ends > now + 1e-9)
            assert queue.procs[point.rows][runs].sum() <= queue.width
    cmaxes = np.array([p.cmax for p in one])
    assert (np.diff(cmaxes) > 0.0).all()


def test_stops_when_told() -> None:
    queue = queue_of(moldable_instance("weakly", 6, 4, 1))
    assert len(handful(queue, 1, stop=lambda: True)) == 1
