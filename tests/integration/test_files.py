"""Nodes that reach nobody: the scripts of `runner.batch.data`, told and read by files.

Processes of this machine stand for a batch job and its nodes, each with a shell of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from coalloc.adapters.runner.batch import files
from coalloc.adapters.runner.batch.job import PartJob
from coalloc.adapters.runner.batch.supervisor import PartSupervisor
from coalloc.adapters.runner.command import CommandRefusedError, UnreachableError
from coalloc.adapters.runner.grant import keep
from coalloc.adapters.runner.spec import BatchSpec
from coalloc.adapters.runner.status import StatusFile

SHELLS = [
    words for words in (("dash",), ("bash", "--posix"), ("busybox", "sh")) if shutil.which(words[0])
]
STEP = """
import os, signal, subprocess, sys, threading
shell, nodes = sys.argv[1].split(), sys.argv[2].split(",")
def started(node):
    env = dict(os.environ, SLURMD_NODENAME=node)
    return subprocess.Popen(shell, stdin=subprocess.PIPE, env=env, start_new_session=True)
running = [started(node) for node in nodes]
open("pids", "w").write(" ".join(str(each.pid) for each in running))
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as srun, which passes it on
def spread():
    for line in sys.stdin.buffer:
        for each in running:
            try:
                each.stdin.write(line)
                each.stdin.flush()
            except OSError:
                pass
threading.Thread(target=spread, daemon=True).start()
os._exit(max(each.wait() for each in running))
"""
"""A step: a shell on each node, with the same input for all."""
ENDS_S = 30.0


class Machine(PartJob):
    """A batch job as a process group of this machine, and the commands that reach it."""

    system, alive, ending = "Slurm", frozenset({"RUNNING"}), frozenset[str]()
    wake = "kill -USR1"
    is_parked = is_unsure = has_lost_step = False
    asked_s = None

    def __init__(self, spec: dict[str, Any], folder: Path, shell: tuple[str, ...]) -> None:
        self._spec, self._folder, self._root = cast(BatchSpec, spec), str(folder), folder
        self._home, self._words = folder / "home", shell
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self._job: subprocess.Popen[bytes] | None = None
        self.number, self.is_cut, self.started_job = "", False, 0
        self._commands = threading.Lock()

    def attend(self, port: int) -> None:
        files.FileNodes(self._spec, self._folder, port, self).start()

    def claim(self, port: int, keep: Callable[[], None]) -> bool:
        self.shell(files.OPEN.format(self._spec["site"]["files"]))
        names = ",".join(dict.fromkeys(rank["node"] for rank in self._spec["ranks"]))
        shell = " ".join(self._words)
        step = [sys.executable, str(self._root / "step.py"), shell, names]
        Path(step[1]).write_text(STEP)
        env = {**self._env(), "SLURM_JOB_NUM_NODES": str(names.count(",") + 1)}
        env |= {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": names, "SLURMD_NODENAME": names}
        env |= {"COALLOC_FILES": self._spec["site"]["files"], "COALLOC_LEASE": "60"}
        script = self._root / "job.sh"
        late = f"'{self._root}/late'"  # where it is, each look at the clock takes a hundred seconds
        ahead = f"[ -e {late} ] && echo >>{late} && ahead=$(wc -l <{late})00"
        clock = f"ahead=0; {ahead}; echo $(($(command date +%s) + ahead))"
        heads = f'scontrol() {{ echo "$3" | tr , "\\n"; }}\ndate() {{ {clock}; }}\n'
        script.write_text(f"{heads}{files.JOB}")
        words = [*self._words, str(script), *step]
        self._job = subprocess.Popen(words, env=env, start_new_session=True)
        self.number = str(self._job.pid)
        return False

    def _env(self) -> dict[str, str]:
        own = {"HOME": str(self._home), "TMPDIR": str(self.scratch)}
        return own | {"PATH": os.environ["PATH"], "USER": "ada"}

    def shell(self, script: str) -> str:
        words, env = [*self._words, "-c", script], self._env()
        with self._commands:
            if self.is_cut:
                raise UnreachableError("sh", "the connection was lost")
            self._home.mkdir(exist_ok=True)
            done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CommandRefusedError("sh", done.stderr, done.returncode)
        return done.stdout

    def cancel(self, *options: str) -> None:
        number = signal.Signals[f"SIG{options[-1].partition('=')[2]}"] if options else 15
        with self._commands:
            if self.is_cut:
                raise UnreachableError("scancel", "the connection was lost")
            self._signal(number, is_step="--full" not in options, is_full=len(options) != 1)

    def cut(self) -> None:
        """Lose the connection, once what is under way has ended."""
        with self._commands:
            self.is_cut = True

    def kill(self) -> None:
        self._signal(signal.SIGKILL, is_step=True, is_full=True)

    def _signal(self, number: int, *, is_step: bool, is_full: bool) -> None:
        step = self._home / self._spec["site"]["files"] / "pids"
        groups = step.read_text().split() if is_step and step.exists() else []
        for group in [*groups, *([self.number] if is_full else [])]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(group), number)

    def state(self) -> tuple[str | None, str]:
        assert self._job is not None
        return ("RUNNING" if self._job.poll() is None else "FAILED"), ""

    settled_state = state

    def explained(self, state: str, reason: str) -> tuple[str, str]:
        return "step_failed", state

    def last_words(self) -> str:
        return ""

    def withdraw(self) -> None:
        """Slurm's accounts are none of this test's."""

    def close(self) -> int:
        """Exit code of the job, which has to end by itself."""
        assert self._job is not None
        return self._job.wait(ENDS_S)


class Part:
    """A part of two processes on each of some nodes, and its supervisor."""

    def __init__(self, folder: Path, shell: tuple[str, ...], nodes: int, argv: list[str]) -> None:
        folder.chmod(0o700)
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir()
        names = [f"n{number}" for number in range(nodes)]
        self.spec: dict[str, Any] = {
            "job": "7", "attempt": 1, "part": 0, "cluster": "a", "epoch": 0, "name": "x",
            "claim": "c1", "argv": argv, "script": "", "env": {"WORD": "it's\n \"here\""},
            "cwd": str(self.work), "stdout": "out-%r", "stderr": "", "uid": None, "shape": {},
            "memory_mb_per_proc": 0, "size": 2 * nodes, "nodelist": "n[0-9]", "hostfile": "",
            "rendezvous": "n0:20000", "time_limit_s": None, "grace_s": 0.5, "lease_s": 60.0,
            "chunks": None, "once": False, "stream": "", "queue": None, "key": "ab" * 16,
            "ranks": [
                {"rank": 2 * n + r, "node": name, "local_rank": r, "local_size": 2}
                for n, name in enumerate(names) for r in range(2)
            ],
            "site": {
                "ports": (0, 0), "names": {name: name for name in names}, "prefix": "",
                "files": ".coalloc/c1",
            },
        }  # fmt: skip
        self.job = Machine(self.spec, folder, shell)
        self.status = StatusFile(str(folder))
        self._orders = os.pipe()
        os.set_blocking(self._orders[0], False)
        self._wake = os.pipe()

    def opened(self) -> PartSupervisor:
        self.status.preallocate(len(self.spec["ranks"]))
        fds = (self._orders[0], self._wake[0])
        spec = cast(BatchSpec, self.spec)
        return PartSupervisor(spec, str(self.folder), self.status, self.job, fds)

    def order(self, line: str) -> None:
        os.write(self._orders[1], f"{line}\n".encode())

    def carried(self, on_step: dict[int, Callable[[], None]]) -> dict[str, Any]:
        """Carry it to its end; what is to be done once a step is on record is done then."""
        self.supervisor = found = self.opened()
        say = found._say

        def told(step: int, record: dict[str, Any], durable: bool = False) -> None:
            say(step, record, durable)
            on_step.get(step, lambda: None)()

        found._say = told  # type: ignore[method-assign]
        try:
            found.carry(is_resumed=False)
            end = found.end_record()
        finally:
            found.close()
        return end

    def close(self) -> None:
        self.job.cut()  # a node that was not told of the end looks on
        self.job.kill()
        self.job.close()
        assert not list(self.job.scratch.iterdir()), "also of a job that was killed"
        for fd in (*self._orders, *self._wake):
            os.close(fd)


EACH = [
    pytest.param(words, marks=[pytest.mark.slow] if number else [], id=words[0])
    for number, words in enumerate(SHELLS)
]
"""The first, and where there is time, the others."""


@pytest.fixture(params=EACH)
def shell(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return request.param  # type: ignore[no-any-return]


@contextlib.contextmanager
def part(folder: Path, shell: tuple[str, ...], nodes: int, *argv: str) -> Iterator[Part]:
    found = Part(folder, shell, nodes, list(argv))
    try:
        yield found
    finally:
        found.close()


READY, RUN = 0, 2


def test_a_look_that_is_under_way_leaves_no_folder(tmp_path: Path) -> None:
    late = 'command rm "$@"; [ "$late" ] || { late=yes; mkdir "$2"; : >"$2/lease"; false; }'
    words = ["sh", "-c", f"rm() {{ {late}; }}\n{files.CLOSE.format('.coalloc/one')}"]
    (tmp_path / ".coalloc/one").mkdir(parents=True)
    subprocess.run(words, env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]}, check=True)
    assert not [*tmp_path.iterdir()]


def test_every_shell_reads_the_scripts() -> None:
    for shell in SHELLS:
        for text in (files.JOB, files.NODE):
            done = subprocess.run([*shell, "-n"], input=text, text=True, check=False)
            assert done.returncode == 0, shell


def test_processes_start_at_the_time_and_say_how_they_end(
    tmp_path: Path, shell: tuple[str, ...]
) -> None:
    command = 'echo "$COALLOC_RANK $RANK $COALLOC_NODE $WORD"; exit $COALLOC_RANK'
    with part(tmp_path, shell, 2, "sh", "-c", command) as own:
        at = time.time() + 60.0

        def go() -> None:
            nonlocal at
            at = time.time() + 1.5
            keep(str(own.folder), files.AT, {"at": at})
            own.order("go 0.0")

        end = own.carried({READY: go})
        assert end["state"] == "finished", end
        assert end["codes"] == [0, 1, 2, 3]
        assert (end["reason"], end["detail"]) == ("exited", "rank 1 exited with 1")
        assert at <= end["started"] < at + 1.0
        assert (own.work / "out-3").read_text() == '3 3 n1 it\'s\n "here"\n'
        assert own.job.close() == 3


def test_a_node_that_cannot_start_it_says_why(tmp_path: Path, shell: tuple[str, ...]) -> None:
    with part(tmp_path, shell, 1, "no-such-program") as own:
        end = own.carried({})
        assert (end["state"], end["reason"]) == ("refused", "not_found")


def test_a_cancelled_part_is_asked_and_then_killed(tmp_path: Path, shell: tuple[str, ...]) -> None:
    command = "trap 'echo asked' TERM; echo; while :; do sleep 0.1; done"
    with part(tmp_path, shell, 2, "sh", "-c", command) as own:

        def cancel() -> None:
            while not all((own.work / f"out-{rank}").read_text() for rank in range(4)):
                time.sleep(0.01)
            own.order("abort - not wanted")

        end = own.carried({READY: lambda: own.order("go 0.0"), RUN: cancel})
        assert (end["state"], end["reason"], end["detail"]) == ("finished", "aborted", "not wanted")
        assert end["codes"] == [-signal.SIGKILL] * 4
        assert "asked" in (own.work / "out-0").read_text()


def test_a_start_that_is_taken_back_before_its_time_starts_nothing(
    tmp_path: Path, shell: tuple[str, ...]
) -> None:
    with part(tmp_path, shell, 2, "touch", "begun") as own:

        def go() -> None:
            keep(str(own.folder), files.AT, {"at": time.time() + 3600.0})
            own.order("go 0.0\nabort - another part is not ready")

        end = own.carried({READY: go})
        assert (end["state"], end["reason"]) == ("refused", "aborted")
        assert own.job.close() != 0
        assert not (own.work / "begun").exists()


def test_a_connection_that_is_cut_at_the_start_delays_it(
    tmp_path: Path, shell: tuple[str, ...]
) -> None:
    with part(tmp_path, shell, 1, "true") as own:

        def mend() -> None:
            own.job.is_cut = False

        mended = threading.Timer(0.6, mend)

        def go() -> None:
            own.job.is_cut = True
            keep(str(own.folder), files.AT, {"at": time.time() + 0.2})
            own.order("go 0.0")
            mended.start()

        end = own.carried({READY: go})
        assert (end["state"], end["codes"]) == ("finished", [0, 0])


def test_a_job_that_hears_nothing_for_a_lease_gives_its_nodes_back(
    tmp_path: Path, shell: tuple[str, ...]
) -> None:
    with part(tmp_path, shell, 1, "touch", "begun") as own:

        def started() -> None:
            while not own.supervisor.is_started:
                time.sleep(0.01)
            own.job.is_cut = False

        mended = threading.Thread(target=started, daemon=True)

        def cut() -> None:
            own.job.cut()
            (own.folder / "late").touch()
            assert own.job.close() == 1
            own.order("go 0.0")
            mended.start()

        end = own.carried({READY: cut})
        assert (end["state"], end["reason"]) == ("refused", "expired")
        assert not (own.work / "begun").exists()
        mended.join()


def test_a_job_that_ends_before_its_nodes_are_ready_is_seen_to_have(
    tmp_path: Path, shell: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "JOB", "exit 1\n")
    with part(tmp_path, shell, 1, "true") as own:
        end = own.carried({})
        assert (end["state"], end["reason"]) == ("refused", "step_failed")
