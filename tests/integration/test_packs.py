"""Members of an array that one runner runs: in turn, each with what is its own, told and kept."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.runner.rank import let_go
from coalloc.adapters.runner.status import children
from coalloc.model.sites.parts import Member, PartKey, PartReport, PartSpec, PartState
from tests.support.fake_slurm import FakeSlurm
from tests.support.launch_bed import LaunchTestbed, Signpost, wait_dead
from tests.support.live_site import Running

START = "prepare_timeout_s = 5.0\nbackoff_first_s = 0.1\nbackoff_max_s = 1.0"
SHORT = {"base_time": 0.001}


@pytest.fixture(params=["local", "batch"])
def bed(root: Path, request: pytest.FixtureRequest) -> Iterator[LaunchTestbed]:
    """One runner runs all of them, or the wrapper of one batch job."""
    bed = LaunchTestbed(root) if request.param == "local" else FakeSlurm(root)
    yield bed
    bed.close()


def pack(bed: LaunchTestbed, text: str, count: int = 4, **fields: Any) -> PartSpec:
    """A part of an array's members, numbered from 0, that run this."""
    members = tuple(
        Member(job=f"1_{n}", attempt=n, array_index=n, stdout=f"{n}.out") for n in range(1, count)
    )
    env = {"COALLOC_ARRAY_TASK_ID": "0", "PATH": os.environ["PATH"]}
    return bed.shell(text, job="1_0", env=env, stdout="0.out", members=members, **fields)


def keys(count: int = 4) -> list[PartKey]:
    return [PartKey(job=f"1_{n}", attempt=max(n, 1), part=0) for n in range(count)]


def all_ended(bed: LaunchTestbed, count: int = 4) -> list[PartReport]:
    return bed.wait(keys(count), lambda report: report.is_ended)


def test_each_member_runs_in_its_turn_with_what_is_its_own(bed: LaunchTestbed) -> None:
    told = "$COALLOC_JOB_ID $COALLOC_ATTEMPT $COALLOC_ARRAY_TASK_ID $PWD"
    text = f"echo {told}; exit $(($COALLOC_ARRAY_TASK_ID % 2))"
    spec = pack(bed, text)
    assert bed.claim(spec).state is PartState.READY
    assert {report.state for report in bed.launcher.poll()} == {PartState.READY}
    bed.launcher.go(spec.key)
    ends = all_ended(bed)
    assert [(end.state, end.exit_code) for end in ends] == [
        (PartState.FINISHED, n % 2) for n in range(4)
    ]
    for before, after in pairwise(ends):
        assert before.ended is not None
        assert after.started is not None
        assert before.ended <= after.started + 0.01
    for n in range(4):
        assert bed.output(f"{n}.out") == f"1_{n} {max(n, 1)} {n} {bed.cwd}\n"
    for key in keys():
        bed.launcher.forget(key)
    bed.wait_until(lambda: not bed.launcher.poll() and not (bed.state / spec.key.folder).exists())


def test_dropped_members_do_not_begin_and_the_others_go_on(
    bed: LaunchTestbed, tmp_path: Path
) -> None:
    sign = Signpost(tmp_path / "sign")
    spec = pack(
        bed,
        f"echo $COALLOC_ARRAY_TASK_ID > {sign.path}; test $COALLOC_ARRAY_TASK_ID = 3 || sleep 60",
    )
    bed.start(spec)
    assert sign.line() == "0"
    bed.launcher.abort(keys()[2], reason="not wanted")
    refused = bed.wait_one(keys()[2], lambda report: report.is_ended)
    assert (refused.state, refused.reason) == (PartState.REFUSED, "aborted")
    bed.launcher.abort(keys()[0])
    assert sign.line() == "1"
    bed.launcher.abort(keys()[1])
    ends = all_ended(bed)
    assert [end.reason for end in ends] == ["aborted", "aborted", "aborted", "exited"]
    assert [end.state for end in ends].count(PartState.FINISHED) == 3
    sign.close()


def test_before_the_start_one_takes_out_all(bed: LaunchTestbed) -> None:
    spec = pack(bed, "true")
    bed.claim(spec)
    bed.launcher.abort(keys()[2], reason="cancelled")
    bed.launcher.go(spec.key)
    assert {end.state for end in all_ended(bed)} == {PartState.REFUSED}


def test_each_member_has_its_own_time_limit_and_its_own_faults(bed: LaunchTestbed) -> None:
    spec = pack(bed, "test $COALLOC_ARRAY_TASK_ID != 1 || sleep 60", time_limit=2.0, grace_s=0.1)
    (bed.cwd / "2.out").mkdir()
    bed.start(spec)
    ends = all_ended(bed)
    reasons = ["exited", "time_limit", "output_unwritable", "exited"]
    assert [end.reason for end in ends] == reasons, ends
    assert ends[2].state is PartState.REFUSED


def test_a_rank_that_has_ended_before_the_go_is_no_fault_of_the_runner() -> None:
    read, write = os.pipe()
    os.close(read)
    let_go(write, 1)
    os.close(write)


def test_what_a_member_leaves_is_ended_before_the_next_begins(bed: LaunchTestbed) -> None:
    spec = pack(bed, "test -e left && kill -0 $(cat left) && exit 9; sleep 60 & echo $! > left")
    bed.start(spec)
    assert [end.exit_code for end in all_ended(bed)] == [0, 0, 0, 0]


def started_up_to_one(bed: LaunchTestbed, sign: Signpost, **fields: Any) -> tuple[PartSpec, int]:
    """A pack whose second member waits for a line; and what runs it, or its batch job."""
    os.mkfifo(bed.cwd / "hold")
    told = f"echo $COALLOC_ARRAY_TASK_ID $PPID > {sign.path}"
    spec = pack(bed, f"{told}; test $COALLOC_ARRAY_TASK_ID != 1 || read line < hold", **fields)
    bed.start(spec)
    (first, _), (second, parent) = sign.line().split(), sign.line().split()
    assert (first, second) == ("0", "1")
    return spec, int(parent)


def test_with_a_killed_runner_only_what_ran_is_lost(bed: LaunchTestbed, sign: Signpost) -> None:
    _, runner = started_up_to_one(bed, sign)
    os.kill(runner, signal.SIGKILL)
    ends = all_ended(bed)
    assert [end.state for end in ends] == ["finished", "lost", "refused", "refused"]
    assert {end.reason for end in ends[2:]} == {"not_begun"}


def test_after_a_reboot_those_without_an_end_on_disk_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: Signpost
) -> None:
    bed = LaunchTestbed(tmp_path)
    _, runner = started_up_to_one(bed, sign)
    monkeypatch.setattr("coalloc.adapters.part_folder.boot_id", lambda: "another")
    os.kill(runner, signal.SIGKILL)
    assert [end.state for end in all_ended(bed)] == ["finished", "lost", "lost", "lost"]
    bed.close()


@pytest.fixture
def fake(root: Path) -> Iterator[FakeSlurm]:
    fake = FakeSlurm(root)
    yield fake
    fake.close()


def test_in_a_batch_job_none_begins_while_nobody_writes_down_the_ends(
    root: Path, sign: Signpost
) -> None:
    """Who writes them down is killed: what runs goes on, the next begins once there is another."""
    fake = FakeSlurm(root, scontrol="echo 'JobId=12 JobState=RUNNING Reason=None'\n")
    spec, wrapper = started_up_to_one(fake, sign)
    os.kill(fake.runner_pid(spec.key), signal.SIGKILL)
    wait_dead(fake.runner_pid(spec.key))
    (fake.cwd / "hold").write_text("go on\n")
    fake.wait_until(lambda: not children(wrapper))
    for _ in range(20):
        assert not children(wrapper)
        time.sleep(0.01)
    fake.launcher.abort(keys()[3])
    ends = all_ended(fake)
    assert [end.state for end in ends] == ["finished", "finished", "finished", "refused"]
    assert [end.reason for end in ends] == ["exited", "exited", "exited", "aborted"]
    assert sign.line().split() == ["2", str(wrapper)]
    fake.close()


@pytest.mark.parametrize(("most_s", "begun"), [(None, 4), (60.0, 1)])
def test_in_a_batch_job_none_begins_that_might_not_end_in_time(
    fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch, most_s: float | None, begun: int
) -> None:
    monkeypatch.setattr(fake.launcher, "_longest_s", lambda part: most_s)
    fake.start(pack(fake, "true", time_limit=60.0))
    reasons = [end.reason for end in all_ended(fake)]
    assert reasons == ["exited"] * begun + ["not_begun"] * (4 - begun)
    assert f"--time={1 if most_s else 2}" in fake.asked("srun")[0]


def test_what_a_signal_ends_may_be_the_batch_jobs_end(root: Path) -> None:
    """Slurm knows why, and the others run elsewhere."""
    fake = FakeSlurm(root, scontrol="echo 'JobId=12 JobState=PREEMPTED Reason=None'\n")
    spec = pack(fake, "test $COALLOC_ARRAY_TASK_ID != 1 || kill -TERM $$")
    fake.start(spec)
    ends = all_ended(fake)
    assert [end.state for end in ends] == ["finished", "finished", "refused", "refused"]
    assert [end.reason for end in ends] == ["exited", "preempted", "not_begun", "not_begun"]
    fake.close()


@pytest.mark.parametrize(
    ("kills", "count"),
    [
        pytest.param(20, 1800, marks=pytest.mark.slow),
        pytest.param(200, 45_000, marks=pytest.mark.nightly),
    ],
)
def test_kills_in_a_stream_of_packs_run_nothing_twice(root: Path, kills: int, count: int) -> None:
    """Each task leaves its own mark when it begins; daemon, executor or runner are killed.

    Tasks run on while what was killed starts again: some 250 of them in each long case.
    """
    dice = random.Random(kills)
    with Running(root, clusters={"alpha": 1}, slots=4, start=START, policy="fcfs") as site:
        marks = root / "marks"
        marks.mkdir()
        command = ["sh", "-c", f"echo $$ >> {marks}/$COALLOC_ARRAY_TASK_ID"]
        body = site.submission(command)
        body["job"] = {**body["job"], **SHORT}
        number = site.ask("submit", **{**body, "array": list(range(count))})["job"]

        def is_over() -> bool:
            return not any(site.ask("status")[which] for which in ("waiting", "placed"))

        def come(enough: int) -> bool:
            return len(os.listdir(marks)) >= enough or is_over()

        for kill in range(kills):
            enough = len(os.listdir(marks)) + dice.randrange(5, 40)
            site.until(partial(come, enough))
            if is_over():  # those that were killed before they began have no mark
                break
            match kill % 3:
                case 0:
                    site.kill_runner()
                case 1:
                    site.kill("alpha")
                    site.start_executor("alpha")
                case _:
                    site.kill("coallocd")
                    site.start_daemon()
        site.until(is_over, 300.0)
        assert kill >= kills // 2
        begun = Counter(
            {name: len((marks / name).read_text().split()) for name in os.listdir(marks)}
        )
        assert not [name for name, runs in begun.items() if runs > 1]
        states = Counter(site.job(f"{number}_{n}")["state"] for n in range(count))
        assert set(states) <= {"completed", "lost"}
        assert states["completed"] == count - states["lost"]
        assert states["lost"] <= 2 * kills
        assert any(line["behind"] > 1 for line in site.lines("members_started"))
