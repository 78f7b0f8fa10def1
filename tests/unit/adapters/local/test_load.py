"""How the load of other people's work follows from two samples of a machine."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from coalloc.adapters.local.reader import LocalReader, MachineSample, ProcessTime, foreign_loads
from coalloc.adapters.local.settings import read_settings

ALL = frozenset({0, 1, 2, 3})
LEFT, RIGHT = frozenset({0, 1}), frozenset({2, 3})


def ours(
    own: float,
    waited: float = 0.0,
    *,
    parent: int = 1,
    created: float = 0.0,
    cpus: frozenset[int] = ALL,
) -> ProcessTime:
    return ProcessTime(parent=parent, created=created, own=own, waited=waited, cpus=cpus)


def sample(at: float, busy: list[float], processes: Mapping[int, ProcessTime]) -> MachineSample:
    return MachineSample(at=at, wall=1000.0 + at, busy=tuple(busy), ours=processes)


def whole(old: MachineSample, new: MachineSample) -> float:
    return foreign_loads(old, new, [])[0][None]


def test_all_of_it_foreign() -> None:
    old = sample(0.0, [5.0, 5.0, 5.0, 5.0], {})
    new = sample(10.0, [15.0, 10.0, 5.0, 5.0], {})
    assert whole(old, new) == pytest.approx(15 / 40)


def test_our_own_load_is_not_counted() -> None:
    old = sample(0.0, [0.0] * 4, {10: ours(100.0)})
    new = sample(10.0, [10.0, 10.0, 0.0, 0.0], {10: ours(120.0)})
    assert whole(old, new) == 0.0
    assert whole(old, sample(10.0, [10.0] * 4, {10: ours(120.0)})) == pytest.approx(0.5)


def test_time_of_a_process_that_ended_is_found_at_its_parent() -> None:
    old = sample(0.0, [0.0] * 4, {10: ours(1.0, 50.0), 11: ours(30.0, 2.0, parent=10)})
    new = sample(10.0, [10.0, 5.0, 0.0, 0.0], {10: ours(1.0, 50.0 + 47.0)})
    assert whole(old, new) == 0.0


def test_short_jobs_between_two_readings_are_ours() -> None:
    old = sample(0.0, [0.0] * 4, {10: ours(1.0, 0.0)})
    new = sample(10.0, [10.0, 10.0, 10.0, 0.0], {10: ours(1.0, 30.0)})
    assert whole(old, new) == 0.0


def test_new_process_counts_in_full_and_a_newly_found_one_not_at_all() -> None:
    old = sample(0.0, [0.0] * 4, {})
    new = sample(10.0, [10.0, 0.0, 0.0, 0.0], {12: ours(10.0, created=1005.0)})
    assert whole(old, new) == 0.0
    # it ran long before it came to be ours: its past is not of this span
    new = sample(10.0, [10.0, 0.0, 0.0, 0.0], {12: ours(900.0, created=100.0)})
    assert whole(old, new) == pytest.approx(0.25)


def test_reused_process_id_is_another_process() -> None:
    old = sample(0.0, [0.0] * 4, {10: ours(500.0, created=10.0, parent=9), 9: ours(0.0)})
    new = sample(
        10.0, [8.0, 0.0, 0.0, 0.0], {10: ours(8.0, created=1004.0, parent=9), 9: ours(0.0, 500.0)}
    )
    assert whole(old, new) == 0.0


def test_the_system_itself_is_no_load() -> None:
    old, new = sample(0.0, [0.0] * 4, {}), sample(10.0, [0.3, 0.3, 0.3, 0.2], {})
    assert whole(old, new) == 0.0


def test_pinned_nodes_are_loaded_apart() -> None:
    old = sample(0.0, [0.0] * 4, {10: ours(0.0, cpus=LEFT)})
    new = sample(10.0, [10.0, 0.0, 10.0, 0.0], {10: ours(10.0, cpus=LEFT)})
    loads, _ = foreign_loads(old, new, [LEFT, RIGHT])
    assert loads == {None: pytest.approx(0.25), LEFT: 0.0, RIGHT: pytest.approx(0.5)}


def test_ended_processes_are_spread_over_unexplained_time() -> None:
    old = sample(0.0, [0.0] * 4, {10: ours(0.0), 11: ours(0.0, cpus=LEFT, parent=10)})
    new = sample(
        10.0, [10.0, 0.0, 10.0, 0.0], {10: ours(0.0, 10.0), 11: ours(10.0, cpus=LEFT, parent=10)}
    )
    assert foreign_loads(old, new, [LEFT, RIGHT])[0] == {None: 0.0, LEFT: 0.0, RIGHT: 0.0}


def test_more_ours_than_busy_is_no_negative_load() -> None:
    old = sample(0.0, [0.0] * 4, {10: ours(0.0)})
    new = sample(10.0, [1.0, 0.0, 0.0, 0.0], {10: ours(30.0)})
    assert whole(old, new) == 0.0


def loads_read(monkeypatch: pytest.MonkeyPatch, *samples: MachineSample) -> list[float]:
    """Load of a cluster's only node in each reading, of which the first takes two samples."""
    taken = iter(samples)
    monkeypatch.setattr(LocalReader, "_sample", lambda reader: next(taken))
    reader = LocalReader(read_settings({"power": 0.5}, "c"))
    nodes = [reader.read().nodes[0] for _ in samples[1:]]
    assert all(node.power == pytest.approx(0.5 * (1.0 - node.load)) for node in nodes)
    return [node.load for node in nodes]


def test_the_first_reading_knows_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = sample(0.0, [5.0, 5.0], {}), sample(10.0, [11.0, 11.0], {})
    assert loads_read(monkeypatch, *samples) == [pytest.approx(0.6)]


def test_end_of_a_whole_tree_keeps_the_last_load_as_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples = [
        sample(0.0, [0.0, 0.0], {}),
        sample(10.0, [1.0, 1.0], {10: ours(1.0, created=900.0)}),
        sample(20.0, [11.0, 11.0], {}),
        sample(30.0, [12.0, 11.0], {11: ours(1.0, created=900.0)}),
        sample(40.0, [12.5, 11.5], {}),
    ]
    loads = loads_read(monkeypatch, *samples)
    assert loads == [pytest.approx(load) for load in (0.1, 0.1, 0.05, 0.05)]


def test_ends_in_each_reading_do_not_keep_it_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [
        sample(10.0 * n, [8.0 * n, 8.0 * n], {n: ours(0.1, created=900.0)}) for n in range(5)
    ]
    assert loads_read(monkeypatch, *samples) == [0.0, *[pytest.approx(0.8)] * 3]
