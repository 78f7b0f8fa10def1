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
from coalloc.adapters.runner.status import READY, StatusFile, boot_id
from coalloc.adapters.runner.supervisor import has_started
from coalloc.adapters.slurm.launcher import SlurmLauncher
from coalloc.adapters.slurm.settings import read_settings
from coalloc.model.parts import PartState
from tests.support.launch_bed import Bed

HEAD = '#!/bin/sh\necho "$(basename $0) $*" >> {log}\n'
GRANTED = "echo 'salloc: Granted job allocation 12' >&2\n"
BUSY = "echo 'salloc: error: Unable to allocate resources: Requested nodes are busy' >&2; exit 1\n"
# one wrapper on each node, as srun would start them
SRUN = """\
nodes=$(sed -n 's/.*--nodelist=\\([^ ]*\\) .*/\\1/p' {log} | head -1 | tr , ' ')
while [ "$1" != {python} ]; do shift; done
for node in $nodes; do SLURMD_NODENAME=$node SLURM_JOB_ID=12 "$@" & done
wait
"""


class FakeSlurm(Bed):
    """A launcher whose commands are scripts."""

    def __init__(self, root: Path, **scripts: str) -> None:
        self.state, self.cwd = root / "state", root / "work"
        self.cwd.mkdir(exist_ok=True)
        self.bin, self.log = root / "bin", root / "asked"
        self.bin.mkdir()
        texts = {
            "sinfo": "echo n1; echo n2\n",
            "salloc": GRANTED,
            "srun": SRUN.format(log=self.log, python=sys.executable),
            "scancel": "",
            "squeue": "",
            "scontrol": "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n",
            **scripts,
        }
        for name, text in texts.items():
            path = self.bin / name
            path.write_text(HEAD.format(log=self.log) + text)
            path.chmod(0o755)
        settings = {
            "bin": str(self.bin),
            "address": "127.0.0.1",
            "python": sys.executable,
            "command_limit_s": 1.0,
        }
        self.launcher = SlurmLauncher(read_settings(settings, "c"), self.state)

    def asked(self, name: str) -> list[str]:
        """What a command was asked, call by call."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{name} ")]


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
        time_limit_s=100.0,
    )
    report = fake.run(spec)
    assert report.codes == (0, 1)
    assert sorted(fake.output().splitlines()) == ["0 n2", "1 n1"]
    (words,) = fake.asked("salloc")
    assert "--no-shell --immediate" in words
    assert "--exclusive --nodelist=n2,n1 -N 2 -n 2 --ntasks-per-node=1" in words
    assert "--time=3" in words  # 100 s, a grace of 5 s and 20 s to start
    assert "--comment=coalloc:1.1.0:" in words
    assert "12" in fake.asked("scancel")


def test_busy_nodes(make: Make) -> None:
    fake = make(salloc=BUSY)
    report = fake.claim(fake.shell("true"))
    assert (report.state, report.reason) == (PartState.REFUSED, "nodes_taken")
    assert fake.asked("srun") == []
    assert fake.asked("scancel") == [], "there is nothing to cancel"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("salloc: error: Job submit/allocate failed: Invalid partition", "partition_closed"),
        ("salloc: error: Job submit/allocate failed: Invalid account", "not_permitted"),
        ("salloc: error: Job violates accounting/QOS policy (job submit limit)", "over_limit"),
        ("salloc: error: something nobody has seen before", "refused_by_slurm"),
        ("\\001\\377 garbage", "refused_by_slurm"),
    ],
)
def test_refusals_have_reasons(make: Make, said: str, reason: str) -> None:
    fake = make(salloc=f"printf '{said}' >&2; exit 1\n")
    report = fake.claim(fake.shell("true"))
    assert (report.state, report.reason) == (PartState.REFUSED, reason)
    assert "\n" not in report.detail


def test_answer_that_never_comes_is_looked_for(make: Make) -> None:
    """The job was made all the same: it is found by its name, and cancelled."""
    fake = make(salloc="sleep 60\n", squeue="echo 77\n")
    spec = fake.shell("true")
    report = fake.claim(spec)
    assert (report.state, report.reason) == (PartState.REFUSED, "unreachable")
    (looked,) = [line for line in fake.asked("squeue") if "--name=" in line]
    name = looked.partition("--name=")[2].split()[0]
    assert name.startswith("coalloc-")
    assert f"--name={name}" in fake.asked("scancel")


def test_step_that_fails_at_once(make: Make) -> None:
    state = "echo 'JobId=12 JobState=RUNNING Reason=None'\n"
    fake = make(srun="echo 'srun: error: no python3 here' >&2; exit 2\n", scontrol=state)
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
        (words,) = fake.asked("salloc")
        assert "--distribution=arbitrary --nodelist=n1,n1,n2 -N 2 -n 3" in words
        assert words.endswith("--partition=long --qos=high")
    finally:
        fake.close()
