"""Claims that wait in Slurm's queue without a process, over commands that stand in for Slurm's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc.adapters.runner.batch.part import BatchPart
from coalloc.adapters.runner.status import NO_RUNNER
from coalloc.adapters.slurm.launcher import SlurmLauncher
from coalloc.adapters.slurm.parsers.records import QueueEntry
from coalloc.adapters.slurm.part_job import SlurmJob
from coalloc.adapters.slurm.reading import SlurmFacts
from coalloc.adapters.slurm.turns import first_submitted, needs_runner, waiting
from coalloc.model.sites.parts import PartKey, PartReport, PartSpec, PartState, QueueTerms
from coalloc.model.values import replace
from tests.support.fake_slurm import FakeSlurm

KILL = "[ ! -e $0.kills ] || { rm $0.kills; kill -9 $PPID; }\n"
"""The end of a command: once, it kills the process that has called it."""
PENDING, GRANTED = "JobState=PENDING Reason=BeginTime", "JobState=RUNNING Nodes=n1 CPU_IDs=0"


class FakeQueue(FakeSlurm):
    """Slurm with a queue: the jobs' state is in a file, and what would run waits to be run."""

    launcher: SlurmLauncher

    def __init__(self, root: Path) -> None:
        self.jobs = root / "jobs"
        self.jobs.mkdir()
        (self.jobs / "state").write_text(PENDING)
        scripts = {
            "sbatch": f"n=$(ls {self.jobs} | wc -l); cat > {self.jobs}/$n; echo $n\n"
            'for w in "$@"; do case $w in --comment=*) '
            f'echo "$n ${{w#*=}}" >> {root}/marks;; esac; done\n',
            "scontrol": f'case "$*" in *hostnames*) echo n1;; *) cat {self.jobs}/state;; esac\n',
            "squeue": f"""case "$*" in
                *"-a -j "*) for n in $(echo "$5" | tr , " "); do grep "^$n " {root}/marks; done;;
                *%i*) cat {root}/marks;;
            esac
            """,
            "scancel": "",
        }
        super().__init__(root, **{name: text + KILL for name, text in scripts.items()})

    def claimed(self, job: str = "1") -> PartSpec:
        spec = self.shell("echo ran", job=job, queue=QueueTerms(at_once=False), lease_s=20.0)
        self.launcher.claim(spec)
        self.wait_one(spec.key, lambda report: self.is_asleep(spec.key))
        return spec

    def is_asleep(self, key: PartKey) -> bool:
        """It waits, and no process has its lock."""
        folder = self.launcher._parts[key]
        with folder.locked() as is_free:
            return is_free and key in self.launcher._parked

    def adopt(self) -> None:
        self.launcher = SlurmLauncher(self.launcher._settings, self.state)

    def restart(self) -> None:
        self.launcher.close()
        self.adopt()

    def wrapper(self, number: int = 1) -> subprocess.Popen[bytes]:
        """Start the script as Slurm does once the job is granted its node; no export is needed."""
        env = {"PATH": os.defpath, "SLURM_JOB_NUM_NODES": "1", "SLURMD_NODENAME": "n1"}
        return subprocess.Popen(["/bin/sh", str(self.jobs / str(number))], env=env)

    def read(self, *entries: QueueEntry, asked: float | None = None) -> None:
        asked = time.monotonic() if asked is None else asked
        queue = tuple(replace(entry, said=entry.said or entry.reason) for entry in entries)
        self.launcher.learn(SlurmFacts(asked=asked, queue=queue))

    def entry(self, spec: PartSpec, **fields: object) -> QueueEntry:
        comment = f"coalloc:{spec.job}.1.0:{self.launcher._parts[spec.key].claim}"
        return QueueEntry(id="1", comment=comment, **fields)  # type: ignore[arg-type]

    def run_granted(self, spec: PartSpec) -> PartReport:
        granted = self.wait_one(spec.key, lambda r: bool(r.nodes) or r.is_ended)
        self.launcher.arrange(spec.key, granted.nodes, "")
        self.wait_one(spec.key, lambda r: r.state is PartState.READY or r.is_ended)
        self.launcher.go(spec.key)
        return self.ended(spec.key)


@pytest.fixture
def fake(root: Path) -> Iterator[FakeQueue]:
    running = FakeQueue(root)
    yield running
    running.close()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_claim_waits_without_a_process_and_runs_once_when_granted(
    fake: FakeQueue, is_restarted: bool
) -> None:
    spec = fake.claimed()
    fake.read(fake.entry(spec, state="PENDING", reason="Resources", start=time.time() + 90.0))
    told = fake.report(spec.key)
    assert (told.state, told.detail, told.is_next) == (PartState.WAITING, "Resources", True)
    assert told.expected
    fake.launcher.renew()
    assert fake.is_asleep(spec.key)
    assert not fake.asked("scontrol"), "nobody asks Slurm about it"
    (fake.jobs / "state").write_text(GRANTED)
    if is_restarted:
        fake.launcher.close()
    wrapper = fake.wrapper()
    if is_restarted:
        fake.adopt()
    assert fake.run_granted(spec).exit_code == 0
    assert wrapper.wait(20.0) == 0
    assert fake.output() == "ran\n"


def test_a_grant_that_nobody_called_about_is_seen_by_the_reading(fake: FakeQueue) -> None:
    spec = fake.claimed()
    (fake.jobs / "state").write_text(GRANTED)
    fake.read(fake.entry(spec, state="RUNNING"))
    fake.wait_one(spec.key, lambda report: bool(report.nodes))
    wrapper = fake.wrapper()
    assert fake.run_granted(spec).exit_code == 0
    assert wrapper.wait(20.0) == 0


def test_who_gives_a_claim_up_takes_its_users_others_along(fake: FakeQueue) -> None:
    specs = [fake.claimed(str(number)) for number in range(1, 6)]
    folders = [fake.launcher._parts[spec.key].path for spec in specs]
    for folder in folders[:4]:
        (folder / "abort").write_text("another was first", encoding="utf-8")
    other = (folders[1] / "spec.json").read_text().replace('"uid": null', '"uid": 7')
    (folders[1] / "spec.json").write_text(other)
    part = BatchPart(str(folders[0]), -1, -1)
    job = SlurmJob(json.loads((folders[0] / "spec.json").read_text()), str(folders[0]), "1")
    with fake.launcher._parts[specs[2].key].locked():
        ((_, why, lock),) = part._taken_along(job)
    assert why == "another was first"
    os.close(lock)
    job.release(has_run=False)
    assert fake.asked("scancel") == ["1 4"]
    shown = ["--local -h -a -j 1,4 -o %i %k", "--local -h -j 1,4 -o %T %k"]
    assert fake.asked("squeue") == shown, "one look before, one after, for all"
    (folders[1] / "abort").unlink()  # nobody of this machine


def test_many_are_given_up_also_after_a_restart(fake: FakeQueue) -> None:
    specs = [fake.claimed(str(number)) for number in range(1, 7)]
    for spec in specs:
        fake.launcher.abort(spec.key, "another cluster was first")
    fake.restart()
    ends = fake.wait([spec.key for spec in specs], lambda report: report.is_ended)
    assert {(end.state, end.detail) for end in ends} == {
        (PartState.REFUSED, "another cluster was first")
    }
    assert sorted(" ".join(fake.asked("scancel")).split()) == [str(n) for n in range(1, 7)]
    late = fake.wrapper(2)
    assert fake.wait([specs[1].key], lambda report: late.poll() is not None)
    assert late.returncode == NO_RUNNER, "a late grant gives its nodes back at once"


@pytest.mark.parametrize("command", ["sbatch", "scontrol", "scancel", "squeue"])
def test_a_process_that_is_killed_beside_a_command_costs_nothing(
    fake: FakeQueue, command: str
) -> None:
    mark = fake.bin / f"{command}.kills"
    if command == "sbatch":  # nobody knows its number: it is found by its comment
        mark.touch()
        spec = fake.shell("echo ran", queue=QueueTerms(at_once=False))
        fake.launcher.claim(spec)
        assert fake.ended(spec.key).reason == "runner_died"
        fake.wait_one(spec.key, lambda _: fake.asked("scancel") == ["1"])
        return
    spec = fake.claimed()
    mark.touch()
    if command != "scontrol":
        fake.launcher.abort(spec.key, "not wanted")
        assert fake.ended(spec.key).detail == "not wanted"
        asked = ["1"] if command == "squeue" else ["1", "1"]
        assert fake.asked("scancel") == asked, "it is repeated until that is known"
    else:
        (fake.jobs / "state").write_text(GRANTED)
        wrapper = fake.wrapper()
        assert fake.run_granted(spec).exit_code == 0
        assert wrapper.wait(20.0) == 0
        assert fake.output() == "ran\n"
    assert not mark.exists()


def test_a_claim_is_hastened_by_a_process_that_leaves_again(fake: FakeQueue) -> None:
    spec = fake.claimed()
    fake.launcher.hasten(spec.key)
    is_asked = "update JobId=1 StartTime=now"
    fake.wait_one(spec.key, lambda _: is_asked in fake.asked("scontrol"))
    fake.wait_one(spec.key, lambda _: fake.is_asleep(spec.key))
    for _ in range(3):
        fake.launcher.poll()
    assert fake.asked("scontrol").count(is_asked) == 1


def test_a_claim_that_is_gone_ends_unless_the_reading_is_older(fake: FakeQueue) -> None:
    spec = fake.claimed()
    fake.read(asked=time.monotonic() - 60.0)
    assert fake.report(spec.key).state is PartState.WAITING
    assert fake.is_asleep(spec.key)
    (fake.jobs / "state").write_text("JobState=CANCELLED")
    fake.read()
    end = fake.ended(spec.key)
    assert (end.state, end.reason) == (PartState.REFUSED, "cancelled_there")


def test_a_claim_whose_comment_was_changed_is_known_by_number_and_time(fake: FakeQueue) -> None:
    spec = fake.claimed()
    fake.read(fake.entry(spec, state="PENDING", reason="Priority", submitted=5.0))
    assert fake.report(spec.key).detail == "Priority"
    fake.read(QueueEntry(id="1", state="PENDING", reason="Resources", submitted=5.0))
    assert fake.report(spec.key).detail == "Resources"
    assert fake.is_asleep(spec.key)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (QueueEntry(id="1", state="PENDING", reason="Priority"), False),
        (QueueEntry(id="1", state="PENDING", reason="BadConstraints"), True),
        (QueueEntry(id="1", state="CONFIGURING"), False),  # its nodes boot
        (QueueEntry(id="1", state="RUNNING"), True),
        (QueueEntry(id="1", state="COMPLETING"), True),
        (QueueEntry(id="1", state="UNKNOWN"), False),
        (QueueEntry(id="1", state="PENDING", reason="BadConstraints", odd="?"), False),
    ],
)
def test_which_claims_need_a_process(entry: QueueEntry, expected: bool) -> None:
    assert needs_runner(entry, is_younger=False) is expected
    assert needs_runner(entry, is_younger=True) is expected


def test_the_gate_keeps_its_port_and_bears_any_caller(fake: FakeQueue) -> None:
    assert fake.launcher.gate is not None
    port = fake.launcher.gate.port
    spec = fake.claimed()
    claim = fake.launcher._parts[spec.key].claim
    calls = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
    for call, said in zip(
        calls, (b"\xff" * 4096, b"granted\n", b"granted nobody\n", b""), strict=True
    ):
        call.sendall(said)
    fake.launcher.poll()
    fake.launcher.poll()
    assert calls[2].recv(99) == b"gone\n"
    calls[3].sendall(f"granted {claim}\n".encode())  # false: it waits on, and its runner leaves
    fake.wait_one(spec.key, lambda _: bool(fake.asked("scontrol")))
    fake.wait_one(spec.key, lambda _: fake.is_asleep(spec.key))
    for call in calls:
        call.close()
    fake.restart()
    assert fake.launcher.gate is not None
    assert fake.launcher.gate.port == port
    assert os.listdir(fake.state)


def test_a_claim_that_is_put_off_is_the_next_where_no_older_job_may_start() -> None:
    """Others of its partition that wait for their turn count, not those that may not start yet."""
    known = PartReport(job="7", attempt=1, part=0, state=PartState.WAITING)
    mine = QueueEntry(id="2", state="PENDING", reason="BeginTime", partition="p", submitted=5.0)
    others = [
        QueueEntry(id="1", state="PENDING", reason="JobHeldUser", partition="p", submitted=1.0),
        QueueEntry(id="3", state="PENDING", reason="Resources", partition="q", submitted=2.0),
        QueueEntry(id="4", state="PENDING", reason="Resources", partition="p", submitted=9.0),
    ]
    assert waiting(known, mine, first_submitted(others)["p"]).is_next
    older = replace(others[2], reason="Priority", submitted=4.0)
    assert not waiting(known, mine, first_submitted([*others, older])["p"]).is_next
