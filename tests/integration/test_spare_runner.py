"""The runner that is forked ahead of its part, with the part's first process, and kills of both."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from coalloc.adapters.runner import cgroup
from coalloc.adapters.runner.status import FORK_SERVER_NAME, children, status_size
from coalloc.model.sites.parts import PartState
from tests.support.launch_bed import LaunchTestbed, wait_dead

Spare = tuple[int, int]
"""Process ids of a spare runner and of the process that it has forked."""


def spare_of(bed: LaunchTestbed, former: Spare | None = None) -> Spare:
    """Wait until there is a spare; if there was one, until it has a part and another follows."""
    found: list[Spare] = []

    def is_there() -> bool:
        for runner in set(children(bed.launcher._fork_server.pid)).difference(former or ()):
            with contextlib.suppress(OSError):  # a runner that has ended meanwhile
                if Path(f"/proc/{runner}/comm").read_text().strip() == FORK_SERVER_NAME:
                    found.extend((runner, blank) for blank in children(runner))
        return bool(found)

    bed.wait_until(is_there)
    return found[0]


@pytest.fixture
def spare(bed: LaunchTestbed) -> Spare:
    """The spare that is forked behind the first part."""
    assert bed.run(bed.spec("true", job="first")).codes == (0,)
    return spare_of(bed)


@pytest.mark.parametrize("procs", [1, 3])
def test_it_takes_the_next_part_and_is_replaced(
    bed: LaunchTestbed, spare: Spare, procs: int
) -> None:
    group = bed.launcher._next_group or ""
    text = "[ $COALLOC_RANK = 0 ] && { echo $$; cat /proc/self/cgroup; } >seen; exit 7"
    spec = bed.shell(text, nodes={"n1": procs})
    assert bed.run(spec).codes == (7,) * procs
    pid, *groups = (bed.cwd / "seen").read_text().splitlines()
    assert (bed.runner_pid(spec.key), int(pid)) == spare
    if group:
        assert any(line.endswith(os.path.basename(group)) for line in groups)
        assert not os.path.isdir(group)
    assert not set(spare_of(bed)) & set(spare)


def test_the_status_of_a_process_is_made_ahead(bed: LaunchTestbed, spare: Spare) -> None:
    """Of a part of several, its space is taken when it is known."""

    def files() -> set[int]:
        found = (os.stat(path) for path in Path(f"/proc/{spare[0]}/fd").iterdir())
        return {each.st_ino for each in found if each.st_size == status_size(1)}

    bed.wait_until(lambda: bool(files()))
    made = files()
    one, more = bed.spec("true"), bed.spec("true", job="2", nodes={"n1": 3})
    bed.run(one)
    assert (bed.state / one.key.folder / "status").stat().st_ino in made
    spare_of(bed)
    bed.run(more)
    assert (bed.state / more.key.folder / "status").stat().st_size == status_size(3)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("which", [0, 1])
def test_without_it_a_part_starts_as_well(
    bed: LaunchTestbed, spare: Spare, which: int, number: int
) -> None:
    os.kill(spare[which], number)
    wait_dead(spare[which])
    assert bed.run(bed.shell("exit 7")).codes == (7,)
    assert bed.run(bed.shell("exit 8", job="2")).codes == (8,)


@pytest.mark.parametrize("which", [0, 1])
def test_what_is_killed_before_the_barrier_has_started_nothing(
    bed: LaunchTestbed, spare: Spare, which: int
) -> None:
    os.kill(spare[which], signal.SIGSTOP)
    spec = bed.spec("touch", "began", nodes={"n1": 4})
    bed.launcher.claim(spec)
    assert bed.report(spec.key).state is PartState.PREPARING
    if which:  # its runner goes on, and has told it of the part before it makes room on disk
        status = bed.state / spec.key.folder / "status"
        bed.wait_until(lambda: status.exists() and status.stat().st_size > 0)
    else:
        spare_of(bed, spare)
    os.kill(spare[which], signal.SIGKILL)
    report = bed.ended(spec.key)
    reason = ("runner_died", "rank_died")[which]
    assert (report.state, report.reason) == (PartState.REFUSED, reason)
    wait_dead(spare[1])
    bed.launcher.forget(spec.key)
    assert bed.run(bed.spec("true", job="2", nodes={"n1": 4})).codes == (0,) * 4
    assert not (bed.cwd / "began").exists()


def test_its_process_does_not_outlive_a_runner_killed_at_the_barrier(
    bed: LaunchTestbed, spare: Spare
) -> None:
    spec = bed.spec("touch", "began")
    bed.claim(spec)
    os.kill(spare[0], signal.SIGKILL)
    report = bed.ended(spec.key)
    assert (report.state, report.reason) == (PartState.REFUSED, "runner_died")
    wait_dead(spare[1])
    assert not (bed.cwd / "began").exists()


def test_a_specification_that_cannot_be_read_is_refused(bed: LaunchTestbed, spare: Spare) -> None:
    group = bed.launcher._next_group or ""
    os.kill(spare[0], signal.SIGSTOP)
    spec = bed.spec("true")
    bed.launcher.claim(spec)
    (bed.state / spec.key.folder / "spec.json").write_text("{")
    os.kill(spare[0], signal.SIGCONT)
    report = bed.ended(spec.key)
    assert (report.state, report.reason) == (PartState.REFUSED, "state_unwritable")
    wait_dead(spare[1])
    assert not os.path.isdir(group)


@pytest.mark.parametrize("is_killed", [False, True])
def test_it_ends_with_its_fork_server(bed: LaunchTestbed, spare: Spare, is_killed: bool) -> None:
    group = bed.launcher._next_group or ""
    assert os.path.isdir(group) == bool(cgroup.own())
    if is_killed:
        os.kill(bed.launcher._fork_server.pid, signal.SIGKILL)
    else:
        bed.launcher._fork_server.close()
    for pid in spare:
        wait_dead(pid)
    assert not os.path.isdir(group)
    assert bed.run(bed.shell("exit 7")).codes == (7,)


def test_it_ends_while_what_a_killed_runner_has_left_is_ended(
    bed: LaunchTestbed, spare: Spare
) -> None:
    spec = bed.spec("sleep", "600")
    bed.start(spec)
    later = spare_of(bed)
    os.kill(bed.runner_pid(spec.key), signal.SIGKILL)
    assert bed.ended(spec.key).state is PartState.LOST
    for pid in later:
        wait_dead(pid)
    assert bed.run(bed.shell("exit 7", job="2")).codes == (7,)
