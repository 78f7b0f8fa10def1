"""The Slurm launcher over commands that stand in for Slurm's.

What it asks, and what it makes of answers that a real cluster seldom gives. Real clusters are in
``tests/slurm``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.base import AdapterError
from coalloc.adapters.runner.batch.ends import has_started
from coalloc.adapters.runner.command import Commands
from coalloc.adapters.runner.status import READY, StatusFile, boot_id
from coalloc.adapters.slurm.launcher import SlurmLauncher
from coalloc.adapters.slurm.settings import read_settings
from coalloc.model.sites.parts import PartState
from tests.support.fake_slurm import BUSY, GRANTED, RUN, FakeSlurm

Make = Callable[..., FakeSlurm]


@pytest.fixture
def make(root: Path) -> Iterator[Make]:
    made: list[FakeSlurm] = []

    def build(**scripts: str) -> FakeSlurm:
        made.append(FakeSlurm(root, **scripts))
        return made[-1]

    yield build
    for fake in made:
        fake.close()


def test_life_of_a_part(make: Make) -> None:
    fake = make()
    spec = fake.shell(
        "echo $COALLOC_RANK $COALLOC_NODE; exit $COALLOC_RANK",
        nodes=(("n2", 1), ("n1", 1)),
        time_limit=100.0,
    )
    report = fake.run(spec)
    assert report.codes == (0, 1)
    assert sorted(fake.output().splitlines()) == ["0 n2", "1 n1"]
    (words,) = fake.asked("srun")
    assert "--immediate" not in words, "Slurm accounts its refusals as failed jobs"
    assert "--exclusive --nodelist=n2,n1 -N 2 -n 2 --ntasks-per-node=1" in words
    assert "--time=2" in words  # 100 s in whole minutes
    assert "--comment=coalloc:1.1.0:" in words
    assert fake.asked("scancel") == [], "it ended by itself"


def test_busy_nodes(make: Make) -> None:
    fake = make(srun=BUSY)
    report = fake.claim(fake.shell("true"))
    assert (report.state, report.reason) == (PartState.REFUSED, "nodes_taken")
    assert fake.asked("scancel") == [], "there is nothing to cancel"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("srun: error: Job submit/allocate failed: Invalid partition", "partition_closed"),
        ("srun: error: Job submit/allocate failed: Invalid account", "not_permitted"),
        ("srun: error: Job violates accounting/QOS policy (job submit limit)", "over_limit"),
        ("srun: error: something nobody has seen before", "refused_by_slurm"),
        ("\\001\\377 garbage", "refused_by_slurm"),
    ],
)
def test_refusals_have_reasons(make: Make, said: str, reason: str) -> None:
    fake = make(srun=f"printf '{said}' >&2; exit 1\n")
    report = fake.claim(fake.shell("true"))
    assert (report.state, report.reason) == (PartState.REFUSED, reason)
    assert "\n" not in report.detail


def test_answer_that_never_comes_is_looked_for(make: Make) -> None:
    """The job was made all the same: it is found by its comment, and cancelled."""
    comment = "$(sed -n 's/.*--comment=\\([^ ]*\\) .*/\\1/p' \"$(dirname $0)/../asked\")"
    queue = f'echo "76 (null)"; echo "77 {comment}"; echo "78 coalloc:1.1.0:other"\n'
    fake = make(srun="sleep 60\n", squeue=queue)
    report = fake.claim(fake.shell("true"))
    assert (report.state, report.reason) == (PartState.REFUSED, "unreachable")
    assert fake.asked("scancel") == ["77"]


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("Priority", "others_first"),
        ("Resources", "nodes_taken"),
        ("ReqNodeNotAvail,_UnavailableNodes:n1", "node_unavailable"),
        ("AssocGrpCpuLimit", "over_limit"),
        ("PartitionDown", "partition_closed"),
    ],
)
def test_claim_that_comes_to_wait_is_withdrawn(make: Make, why: str, reason: str) -> None:
    waits = "echo 'srun: job 12 queued and waiting for resources' >&2; exec sleep 60\n"
    fake = make(srun=waits, scontrol=f"echo 'JobId=12 JobState=PENDING Reason={why}'\n")
    report = fake.claim(fake.shell("true"))
    assert (report.state, report.reason) == (PartState.REFUSED, reason)
    assert why in report.detail
    assert "12" in fake.asked("scancel")


def test_claim_that_waits_for_a_moment(make: Make, root: Path) -> None:
    """Slurm has not looked at it yet (``SchedulerParameters=defer``): it is granted."""
    wait = 'while ! grep -q "^scontrol" "$(dirname $0)/../asked"; do sleep 0.01; done\n'
    said = "echo 'srun: job 12 queued and waiting for resources' >&2\n"
    fake = make(
        srun=said + wait + GRANTED + RUN.format(log=root / "asked"),
        scontrol="echo 'JobId=12 JobState=PENDING Reason=None'\n",
    )
    assert fake.run(fake.shell("true")).exit_code == 0
    assert fake.asked("scancel") == []


def test_exit_code_is_that_of_slurms_job(make: Make, root: Path) -> None:
    run = RUN.format(log=root / "asked").replace("exit", "echo")
    fake = make(srun=f"{GRANTED}({run}) > {root}/code\n")
    fake.run(fake.shell("exit 3", name="odd \n name", nodes=(("n1", 1),)))
    assert (root / "code").read_text() == "3\n"
    (words,) = fake.asked("srun")
    assert "--job-name=odd ? name --comment" in words


def test_step_that_fails_at_once(make: Make) -> None:
    state = "echo 'JobId=12 JobState=RUNNING Reason=None'\n"
    fake = make(srun=f"{GRANTED}echo 'srun: error: no python3 here'; exit 2\n", scontrol=state)
    report = fake.claim(fake.shell("true"))
    assert (report.state, report.reason) == (PartState.REFUSED, "step_failed")
    assert "no python3 here" in report.detail
    assert "12" in fake.asked("scancel")


def test_vanished_job_is_lost_not_completed(make: Make, root: Path) -> None:
    """Its wrapper is killed, and Slurm knows the job no more: it is asked twice."""
    fake = make()
    spec = fake.shell("echo $PPID > wrapper; exec sleep 600")
    fake.start(spec)
    wrapper = fake.cwd / "wrapper"
    end = time.monotonic() + 60.0
    while not (wrapper.exists() and wrapper.read_text().strip()):
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(int(wrapper.read_text()), signal.SIGKILL)
    report = fake.ended(spec.key)
    assert (report.state, report.reason) == (PartState.LOST, "vanished")
    assert report.codes == (None,)
    assert len([line for line in fake.asked("scontrol") if "show job 12" in line]) >= 2


def test_loss_of_power_at_the_barrier(tmp_path: Path) -> None:
    """What was ready may have been let go: the order need not have reached the disk."""
    status = StatusFile(str(tmp_path))
    status.preallocate(1)
    assert not has_started(status)
    status.write(READY, {"pid": 1, "boot": boot_id()})
    assert not has_started(status)
    status.write(READY, {"pid": 1, "boot": "an earlier one"})
    assert has_started(status)


def test_silent_slurmctld_at_the_first_claim(make: Make) -> None:
    said = "slurm_load_node: Unable to contact slurm controller (connect failure)"
    fake = make(sinfo=f"echo '{said}' >&2; exit 1\n")
    with pytest.raises(AdapterError, match="Unable to contact slurm controller"):
        fake.launcher.claim(fake.shell("true"))
    assert fake.launcher.poll() == ()


def test_settings_reach_the_commands(root: Path) -> None:
    fake = FakeSlurm(root)
    try:
        given: dict[str, Any] = {
            "bin": str(fake.bin),
            "address": "127.0.0.1",
            "python": sys.executable,
            "partition": "long",
            "qos": "high",
            "slots": "cpus",
        }
        fake.launcher.close()
        fake.launcher = SlurmLauncher(read_settings(given, "c"), fake.state)
        fake.claim(fake.shell("true", nodes=(("n1", 2), ("n2", 1))))
        (words,) = fake.asked("srun")
        assert "--nodelist=n1,n2 -N 2 -n 3" in words
        assert "--partition=long --qos=high" in words
    finally:
        fake.close()


def test_commands_by_one_shell_keep_their_answers_apart() -> None:
    asked = [("sh", "-c", "echo a; echo b >&2"), ("sh", "-c", "printf c; exit 3"), ("true",)]
    said = Commands().ask_all(asked, needed=1)
    assert list(said.values()) == [(0, "a\n", "b\n"), (3, "c", ""), (0, "", "")]
    assert list(Commands().ask_all(asked, needed=2)) == asked[:2], "the second is needed"
