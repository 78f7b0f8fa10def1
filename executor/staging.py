"""Copies of jobs' data, as the daemon wants them; one at a time, by a process of the user's.

A copy is rsync's, by the login with a connection of its own, so that what starts jobs does not
wait behind it; where the login asks for a second factor it goes over the one there is. Without a
login the job's folder is on this machine, in the home that the nodes have, too.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coalloc.adapters.base import Files, plain_name
from coalloc.adapters.runner.command import BatchError, Commands
from coalloc.adapters.ssh.master import BACK_OFF_S, OPEN, SshError, SshMaster
from coalloc.adapters.ssh.shell import Shell
from coalloc.core.base.messages import Staged
from coalloc.core.executor.machine import ExecutorState
from coalloc.model.sites.staging import Stage
from coalloc.model.values import replace

FOLDER = ".coalloc"
LOOK_S, SCRIPT_S = 0.3, 30.0
RSYNC = ("-abs", "--partial-dir=.~part", "--info=progress2", "--no-inc-recursive", "--timeout=60")
LASTING = frozenset({1, 2, 3, 4, 6, 11, 21, 22, 23, 25, 127})
"""rsync's exit codes that do not come of a connection."""


class Stager:
    """Carries out the wishes for one cluster's executor; only its `owner`'s, where it has one."""

    def __init__(
        self,
        files: Files,
        owner: str,
        state: ExecutorState,
        say: Callable[[Staged], None],
        log: Path,
    ) -> None:
        *self._login, self._mb_s = files
        self._log = log
        self._owner, self._state, self._say = owner, state, say
        self._wanted: dict[str, Stage] = {}
        self._told: dict[str, Stage] = {}
        self._cuts, self._is_apart = 0, True

    def wish(self, stages: tuple[Stage, ...]) -> None:
        """Take in what is wanted now, and say how far it is."""
        if stages or self._wanted:
            self._wanted = {each.job: each for each in stages if self._owner in {"", each.user}}
            phases = {each.job: each.phase for each in stages}
            self._told = {job: e for job, e in self._told.items() if phases.get(job) == e.phase}
            self._say(Staged(cluster=self._state.cluster, stages=tuple(self._told.values())))

    async def serve(self) -> None:
        """Carry out what is wanted, in its order, again and again."""
        try:
            while True:
                over = {job for job, told in self._told.items() if told.state}
                stage = next((each for job, each in self._wanted.items() if job not in over), None)
                pause_s = LOOK_S
                if stage is not None:
                    pause_s = await asyncio.to_thread(self._carried_out, stage)
                await asyncio.sleep(pause_s)
        finally:
            self._wanted = {}

    def _carried_out(self, stage: Stage) -> float:
        """Do what is wanted, or say why not; returns the pause behind it, seconds."""
        # Two daemons of a user may have jobs of one number, and two clusters one home.
        name = plain_name(f"{self._state.store[:8]}-{stage.job}-{self._state.cluster}")
        folder = f"{FOLDER}/{name}"
        try:
            self._tell(stage, folder=self._done(stage, folder), state="done")
            self._cuts = 0
        except OSError as error:
            self._tell(stage, folder=f"~/{folder}", detail=str(error), state="failed")
        except (BatchError, SshError) as error:
            self._tell(stage, detail=f"interrupted: {error}")
            if self._cuts and self._is_wanted(stage):
                return BACK_OFF_S[min(self._cuts, len(BACK_OFF_S)) - 1]
        return LOOK_S

    def _is_wanted(self, stage: Stage) -> bool:
        return self._wanted.get(stage.job) == stage

    def _tell(self, stage: Stage, **fields: Any) -> None:
        if self._is_wanted(stage):
            self._told[stage.job] = replace(stage, copies=(), **fields)

    def _done(self, stage: Stage, folder: str) -> str:
        """Do what is wanted; returns the path of the folder there."""
        path, is_back = "", stage.phase == "out"
        pairs = [[each.replace("%j", stage.job) for each in pair] for pair in stage.copies]
        if stage.phase != "gone":
            targets = ("", *(os.path.dirname(target) for _, target in pairs if not is_back))
            inner = " ".join(shlex.quote(f"{folder}/{each}") for each in targets)
            path = self._there(f"umask 077; mkdir -p {inner} && cd {folder} && pwd -P")
        for source, target in pairs:
            there, here = (source, target) if is_back else (target, source)
            self._copy(stage, source, self._words(f"{path}/{there}", here, is_back=is_back))
        if stage.phase != "in":
            self._there(f"chmod -R u+w {folder} 2>&-; rm -rf {folder} && (rmdir {FOLDER} 2>&-; :)")
        return path

    def _there(self, script: str) -> str:
        commands = Commands(ssh=Shell.of(*self._login).stem if self._login[0] else "")
        said = commands.ask("sh", "-c", f"cd && {{ {script}; }}", timeout_s=SCRIPT_S)
        if said.code:
            raise OSError(said.err.strip()[:200] or f"exit code {said.code}")
        return said.out.removesuffix("\n")

    def _words(self, there: str, here: str, *, is_back: bool) -> list[str]:
        """The words of a copy between a path there and one here."""
        words = [*RSYNC, *([f"--bwlimit={self._mb_s:g}m"] if self._mb_s else [])]
        folder, _, last = there.rpartition("/")
        if is_back:
            os.makedirs(os.path.dirname(here), exist_ok=True)
            if {"*", "?"} & set(last):
                words, there = [*words, f"--include=/{last}", "--exclude=*"], f"{folder}/"
        if host := self._login[0]:
            master = SshMaster(*self._login)
            if (state := master.state()).state != OPEN:
                raise SshError(f"{state.state}: {state.why}")
            words += ["-e", shlex.join(master.way(own=self._is_apart and not state.asks))]
            there = f"{host}:{there}"
        return [*words, "--", *((there, here) if is_back else (here, there))]

    def _copy(self, stage: Stage, what: str, words: list[str]) -> None:
        self._tell(stage, detail=f"copies {what}")
        with open(self._log, "a+b") as log:
            try:  # a copy holds the lock, too, and may outlive its executor
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SshError("a copy of an executor before this one goes on") from None
            log.truncate(0)
            keys = {name: os.environ[name] for name in ("SSH_AUTH_SOCK",) if name in os.environ}
            child = Commands(extra_env=keys).start("rsync", *words, log=log)
            while not child.ends_within(LOOK_S):
                log.seek(max(0, os.fstat(log.fileno()).st_size - 200))
                for size, percent in re.findall(r"([\d,]+) +(\d+)%", f"{log.read()!r}")[-1:]:
                    amount = f"{int(size.replace(',', '')) / 1e6:.1f} MB, {percent} %"
                    self._tell(stage, detail=f"copies {what}: {amount}")
                if not self._is_wanted(stage):
                    child.kill()
            log.seek(0)
            said = log.read().decode(errors="replace")
        if child.returncode in {0, 24}:  # 24: a file was removed meanwhile
            return
        # A shell or ssh that says why comes before rsync, which saw only that nothing came.
        found = re.search(r"^(.*(?:rsync: .*not found|refused by peer))", said, re.MULTILINE)
        found = found or re.search(r"^rsync: (?:\[\w+\] )?(.*)", said, re.MULTILINE)
        why = (found[1] if found else said.strip().rpartition("\n")[2])[:200]
        if child.returncode in LASTING or "not found" in said:
            raise OSError(why)
        if "Permission denied (" in said and self._is_apart:
            self._is_apart = False  # its key is with an agent that is not here
        else:
            self._cuts += 1
        raise SshError(why)
