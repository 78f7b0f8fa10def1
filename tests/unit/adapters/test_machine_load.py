"""Load of other people's work, from two samples of a machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from coalloc.adapters.machine_load import (
    EVERYONE,
    INIT,
    MachineSample,
    ProcessTime,
    foreign_loads,
    sample,
)

ALL = frozenset({0, 1, 2, 3})
LEFT, RIGHT = frozenset({0, 1}), frozenset({2, 3})


def process(
    own: float,
    waited: float = 0.0,
    *,
    parent: int = 1,
    started: int = 0,
    cpus: frozenset[int] = ALL,
    is_ours: bool = True,
) -> ProcessTime:
    return ProcessTime(
        parent=parent, started=started, own=own, waited=waited, is_ours=is_ours, cpus=cpus
    )


def theirs(own: float, waited: float = 0.0, *, parent: int = 1) -> ProcessTime:
    return process(own, waited, parent=parent, is_ours=False)


def machine(
    at: float, busy: list[float], processes: Mapping[int, ProcessTime], of_none: float = 0.0
) -> MachineSample:
    """All processes can be seen where the first is among them."""
    return MachineSample(
        at=at,
        busy=tuple(busy),
        processes=processes,
        of_none=of_none,
        is_whole=INIT in processes,
    )


def whole(old: MachineSample, new: MachineSample) -> float:
    return foreign_loads(old, new)[None]


def test_all_of_it_foreign() -> None:
    old = machine(0.0, [5.0, 5.0, 5.0, 5.0], {})
    new = machine(10.0, [15.0, 10.0, 5.0, 5.0], {})
    assert whole(old, new) == pytest.approx(15 / 40)


def test_our_own_load_is_not_counted() -> None:
    old = machine(0.0, [0.0] * 4, {10: process(100.0)})
    new = machine(10.0, [10.0, 10.0, 0.0, 0.0], {10: process(120.0)})
    assert whole(old, new) == 0.0
    assert whole(old, machine(10.0, [10.0] * 4, {10: process(120.0)})) == pytest.approx(0.5)


def test_time_of_a_process_that_ended_is_found_at_its_parent() -> None:
    old = machine(0.0, [0.0] * 4, {10: process(1.0, 50.0), 11: process(30.0, 2.0, parent=10)})
    new = machine(10.0, [10.0, 5.0, 0.0, 0.0], {10: process(1.0, 50.0 + 47.0)})
    assert whole(old, new) == 0.0


def test_short_jobs_between_two_readings_are_process() -> None:
    old = machine(0.0, [0.0] * 4, {10: process(1.0, 0.0)})
    new = machine(10.0, [10.0, 10.0, 10.0, 0.0], {10: process(1.0, 30.0)})
    assert whole(old, new) == 0.0


def test_a_new_process_counts_in_full_and_a_newly_found_one_from_then() -> None:
    old = machine(0.0, [0.0] * 4, {})
    new = machine(10.0, [10.0, 0.0, 0.0, 0.0], {12: process(10.0, started=5)})
    assert whole(old, new) == 0.0
    old = machine(0.0, [0.0] * 4, {12: theirs(900.0)})
    new = machine(10.0, [10.0, 4.0, 0.0, 0.0], {12: process(910.0)})
    assert whole(old, new) == pytest.approx(0.1)


def test_reused_process_id_is_another_process() -> None:
    old = machine(0.0, [0.0] * 4, {10: process(500.0, parent=9), 9: process(0.0)})
    new = machine(
        10.0,
        [8.0, 0.0, 0.0, 0.0],
        {10: process(8.0, started=4, parent=9), 9: process(0.0, 500.0)},
    )
    assert whole(old, new) == 0.0


def test_of_a_tree_that_ended_what_others_did_not_use_is_no_load() -> None:
    """Of steps that nobody of Slurm's waits for, also those that no sample has seen."""
    first = {INIT: theirs(1.0, 500.0), 20: theirs(3.0)}
    old = machine(0.0, [0.0] * 4, {**first, 10: process(100.0), 11: process(7.0, parent=10)})
    then = {INIT: theirs(1.0, 640.0), 20: theirs(7.0), 12: process(2.0, started=5)}
    new = machine(10.0, [10.0, 10.0, 10.0, 0.0], then)
    assert whole(old, new) == pytest.approx(4.0 / 40.0)
    in_a_container = [
        machine(each.at, [*each.busy], {n: one for n, one in each.processes.items() if n != INIT})
        for each in (old, new)
    ]
    assert whole(*in_a_container) == pytest.approx(28.0 / 40.0)


def test_short_work_of_others_is_found_at_who_has_waited_for_it() -> None:
    old = machine(
        0.0,
        [0.0] * 4,
        {INIT: theirs(0.0), 20: theirs(1.0), 21: theirs(9.0, 1.0, parent=20)},
    )
    new = machine(10.0, [10.0, 10.0, 0.0, 0.0], {INIT: theirs(0.0), 20: theirs(1.0, 28.0)})
    assert whole(old, new) == pytest.approx(18.0 / 40.0)


def test_a_client_of_ours_that_a_shell_has_waited_for_is_no_load() -> None:
    shell = theirs(1.0)
    old = machine(0.0, [0.0] * 4, {INIT: theirs(0.0), 20: shell, 10: process(90.0, 3.0, parent=20)})
    new = machine(10.0, [1.0, 0.5, 0.0, 0.0], {INIT: theirs(0.0), 20: theirs(1.0, 94.0)})
    assert whole(old, new) == 0.0


def test_children_that_nobody_waited_for_hide_no_load_of_others() -> None:
    old = machine(0.0, [0.0] * 4, {INIT: theirs(0.0), 20: theirs(1.0), 21: theirs(50.0, parent=20)})
    new = machine(10.0, [8.0, 0.0, 0.0, 0.0], {INIT: theirs(0.0), 20: theirs(9.0)})
    assert whole(old, new) == pytest.approx(0.2)


def test_interrupts_and_what_a_hypervisor_took_are_load() -> None:
    old = machine(0.0, [0.0] * 4, {INIT: theirs(0.0)}, of_none=5.0)
    new = machine(10.0, [4.0, 0.0, 0.0, 0.0], {INIT: theirs(0.0)}, of_none=9.0)
    assert whole(old, new) == pytest.approx(0.1)


def test_the_system_itself_is_no_load() -> None:
    old, new = machine(0.0, [0.0] * 4, {}), machine(10.0, [0.3, 0.3, 0.3, 0.2], {})
    assert whole(old, new) == 0.0


def test_pinned_nodes_are_loaded_apart() -> None:
    old = machine(0.0, [0.0] * 4, {10: process(0.0, cpus=LEFT)})
    new = machine(10.0, [10.0, 0.0, 10.0, 0.0], {10: process(10.0, cpus=LEFT)})
    loads = foreign_loads(old, new, [LEFT, RIGHT])
    assert loads == {None: pytest.approx(0.25), LEFT: 0.0, RIGHT: pytest.approx(0.5)}


def test_ended_processes_are_spread_over_unexplained_time() -> None:
    old = machine(0.0, [0.0] * 4, {10: process(0.0), 11: process(0.0, cpus=LEFT, parent=10)})
    new = machine(
        10.0,
        [10.0, 0.0, 10.0, 0.0],
        {10: process(0.0, 10.0), 11: process(10.0, cpus=LEFT, parent=10)},
    )
    assert foreign_loads(old, new, [LEFT, RIGHT]) == {None: 0.0, LEFT: 0.0, RIGHT: 0.0}


def test_more_ours_than_busy_is_no_negative_load() -> None:
    old = machine(0.0, [0.0] * 4, {10: process(0.0)})
    new = machine(10.0, [1.0, 0.0, 0.0, 0.0], {10: process(30.0)})
    assert whole(old, new) == 0.0


def test_time_of_what_is_ours_is_found() -> None:
    def is_top(pid: int, name: bytes) -> bool:
        return pid == os.getpid()

    def ours(found: MachineSample) -> float:
        return sum(one.own + one.waited for one in found.processes.values() if one.is_ours)

    before = sample(is_top)
    spin = "import time\nwhile time.process_time() < .3: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    after = sample(is_top)
    assert ours(after) - ours(before) >= 0.25
    assert after.is_whole == (os.stat("/proc/self/ns/pid").st_ino == EVERYONE)
    assert not any(one.is_ours for one in sample(lambda pid, name: False).processes.values())
