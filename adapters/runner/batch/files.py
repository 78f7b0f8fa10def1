"""The nodes of a part that reach nobody: told and read by files in their user's home there.

The batch job is a script for ``sh`` (`data/job.sh`, and `data/node.sh` on each node). A thread of
the part's runner stands for the wrappers: it connects to the barrier as each node's would, gives
what the barrier says to the script, and says there what the script has said, by one command a look.
The start is told ahead, as a time; a node that hears of it later starts at once. Should the runner
die, its successor reads all that was said.

Imports the standard library only, as the runner does.
"""

from __future__ import annotations

import json
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from shlex import quote
from typing import Any

from coalloc.adapters.runner.batch.barrier import LOOPBACK
from coalloc.adapters.runner.batch.job import PartJob, node_counts
from coalloc.adapters.runner.command import BatchError
from coalloc.adapters.runner.grant import kept, settled
from coalloc.adapters.runner.once import OF_TASKS, is_holder, script_environment, started_once
from coalloc.adapters.runner.rank import DEFAULT_OUTPUT, Rank, output_path
from coalloc.adapters.runner.spec import BatchSpec, NodeSpec
from coalloc.adapters.runner.status import END, READY, RUN, SIGNAL_EXIT, verdict
from coalloc.adapters.runner.talk import LONGEST_WAIT_S, LineConnection, TalkError, connect

AT = "at.json"
"""The part's file that has the time of the start, as its launcher was told it."""
UNCONFIRMED = "unconfirmed"
"""Reason of a part of which a node did not say in time that it knows the start."""
JOB, NODE = (
    (Path(__file__).parent / f"data/{name}.sh").read_text(encoding="utf-8")
    for name in ("job", "node")
)
SOON_S, READY_S, LONGEST_S, SHARE = 0.2, 2.0, 5.0, 0.1
"""Pauses between looks: where something is under way, at the barrier, and of what runs at most, of
the time that it has run."""
ASK_S = 30.0
"""Between two questions for the state of a job of which nothing else is missing, seconds."""
CONFIRM_POLLS, CONFIRM_SHARE = 10, 0.5
"""The command that tells the start waits for the nodes' word for so many times 20 ms; of the time
up to the start, the share within which all have to have said that they know it."""
OPEN = 'umask 77; mkdir -p "$HOME/{0}" && cd "$HOME/{0}" && touch said lease run at\n'
CLOSE = """\
rm -rf "$HOME/{0}" || rm -rf "$HOME/{0}" # a look that was under way has written there
rmdir "$(dirname "$HOME/{0}")" 2>/dev/null; true
"""
BARE_END = {"detail": "", "codes": [], "cpu_s": 0.0, "max_rss_mb": 0.0}


class FileNode:
    """One node, as its barrier and its script have spoken."""

    def __init__(self) -> None:
        self.connection: LineConnection | None = None
        self.spec: NodeSpec | None = None
        self.told: set[int] = set()
        self.is_served = self.is_finished = self.is_over = False


class FileNodes:
    """Stands for the wrappers of one part at the barrier that listens at `port`."""

    def __init__(self, spec: BatchSpec, folder: str, port: int, job: PartJob) -> None:
        self._part, self._folder, self._port, self._job = spec, folder, port, job
        self._home = spec["site"]["files"]
        self._nodes: dict[str, FileNode] = {}
        self._said: dict[str, dict[str, str]] = {}
        """Words of each node, by their letter; the script itself has no name."""
        self._lines: queue.SimpleQueue[tuple[FileNode, str | None]] = queue.SimpleQueue()
        self._path, self._looks = "", 0
        self._is_briefed = self._is_go = self._is_lost = self._is_over = self._is_gone = False
        self._reason = self._detail = ""
        self._owed: list[tuple[str, ...]] = []
        self._confirm_by = self._kill_at = inf
        self._limit_s = spec["time_limit_s"]
        self._ask_at = time.monotonic() + ASK_S

    def start(self) -> None:
        """Do so in a thread, as long as this process lives."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not (self._nodes and all(node.is_over for node in self._nodes.values())):
            self._is_lost = True
            with suppress(BatchError):  # nothing is known now
                if self._job.number:
                    self._look()
                self._is_lost = False
            self._look_at_clock()
            self._hear(time.monotonic() + self._pause_s())

    # -- from the barrier

    def _hear(self, until: float) -> None:
        """Take in what the barrier says, until the next look is due."""
        with suppress(queue.Empty):
            while True:
                left_s = max(0.0, min(until, self._kill_at) - time.monotonic())
                node, line = self._lines.get(timeout=left_s)
                if line is None:
                    node.connection, node.told, node.is_served = None, set(), False
                elif self._obey(node, *line.partition(" ")[::2]):
                    until = 0.0

    def _obey(self, node: FileNode, word: str, text: str) -> bool:
        """Take in an order; whether it is to be passed on at once."""
        if word == "spec":
            node.spec = json.loads(text)
            self._is_go = self._is_go or node.spec["is_open"]  # its start is owed
        elif word == "go":
            is_told, self._is_go = self._is_go, True
            ahead_s = kept(self._folder, AT).get("at", 0.0) - time.time()
            if not is_told and ahead_s > 0.0:
                self._confirm_by = time.monotonic() + CONFIRM_SHARE * ahead_s
            return not is_told
        elif word == "cancel":
            self._stop("cancelled", "", float(text.split()[1]))
        elif word == "limit":
            self._limit_s = float(text)
        elif word == "finish":
            node.is_finished = True
        elif word == "over":
            node.is_over = True
        return word in {"spec", "cancel", "finish"}

    def _serve(self, name: str, node: FileNode) -> None:
        """Connect as a node's wrapper, and hand on what is said to it; a thread of its own."""
        with suppress(TalkError):
            key = self._part["key"]
            node.connection, spec = connect(LOOPBACK, self._port, "", key, name, SOON_S * 25)
            self._lines.put((node, f"spec {json.dumps(spec)}"))
            while True:
                self._lines.put((node, node.connection.wait_line(LONGEST_WAIT_S)))
        if node.connection is not None:
            node.connection.close()
        self._lines.put((node, None))

    # -- to and from the script

    def _look(self) -> None:
        """Do what is owed, and read what was said: one command. Raises `BatchError`."""
        while self._owed:
            self._job.cancel(*self._owed[0])
            self._owed.pop(0)
        if time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + ASK_S
            state, _ = self._job.state()
            self._is_over = state is not None and state not in self._job.alive | self._job.ending
        was_over = self._is_over
        self._looks += 1
        script = f'cd "$HOME/{self._home}" && echo {self._looks}.{time.time_ns()} >lease\n'
        is_known = bool(self._nodes) and all(node.spec for node in self._nodes.values())
        is_brief = is_known and not self._is_briefed
        is_told = self._is_go and not self._reason and not self._has_all("A")
        if is_brief:
            script += self._briefing()
        if is_told:
            script += self._start()
        said = self._job.shell(f'{script}echo "P $PWD"; cat said\n')
        self._is_briefed = self._is_briefed or is_brief
        self._read(said)
        if is_told and not self._has_all("A") and time.monotonic() >= self._confirm_by:
            self._stop(UNCONFIRMED, "not every node confirmed the start in time", SOON_S)
        self._is_gone = was_over  # and what was said until then is read
        self._is_over = was_over or not self._said.get("", {}).keys().isdisjoint("DX")
        self._meet()
        self._tell()

    def _read(self, said: str) -> None:
        for line in said.splitlines():
            letter, _, rest = line.partition(" ")
            if letter == "P":
                self._path = rest
            elif letter in {"H", "D", "X"}:
                self._said.setdefault("", {})[letter] = rest
            elif letter in {"R", "F", "A", "N", "S", "E"}:
                name, _, more = rest.partition(" ")
                self._said.setdefault(name, {})[letter] = more

    def _meet(self) -> None:
        """Connect for all nodes that the job has, once it is there."""
        if "H" not in self._said.get("", {}):
            return
        names = self._said[""]["H"].split() or list(node_counts(settled(self._part, self._folder)))
        for name in names:
            node = self._nodes.setdefault(name, FileNode())
            if not (node.is_served or node.is_over or self._is_gone):
                node.is_served = True
                threading.Thread(target=self._serve, args=(name, node), daemon=True).start()

    def _speakers(self) -> list[str]:
        """Names under which the nodes speak: of a command that is started once, the first's."""
        specs = {name: node.spec for name, node in self._nodes.items() if node.spec}
        if not self._part["once"]:
            return list(self._nodes)
        return [name for name, spec in specs.items() if not is_holder(spec)] or list(specs)[:1]

    def _has_all(self, letter: str) -> bool:
        return all(letter in self._said.get(name, {}) for name in self._speakers())

    def _begun(self) -> float:
        """Start of the first process, wall-clock seconds; infinite: not yet."""
        return min((float(s["S"]) for s in self._said.values() if "S" in s), default=inf)

    def _briefing(self) -> str:
        """Lines of the look that write what the nodes run."""
        specs = {name: node.spec for name, node in self._nodes.items() if node.spec}
        text = run_text(specs, self._speakers(), self._path)
        spec, out = next(iter(specs.values())), ""
        for file, content in (("hostfile", spec["hostfile_text"]), ("script", spec["script_text"])):
            out += f"printf %s {quote(content)} >{file}\n" if content else ""
        wake = f"{self._job.wake} {self._job.number}\n"
        return f"{out}chmod 700 script 2>/dev/null\nprintf %s {quote(text)} >run\n{wake}"

    def _start(self) -> str:
        """Lines of the look that tell the start, and wait for a moment for the nodes' word."""
        at, count = int(kept(self._folder, AT).get("at", 0.0) * 1e9), len(self._speakers())
        return (
            f"[ -s at ] || {{ echo '{at} .' >at; {self._job.wake} {self._job.number}; }}\n"
            f"i=0; while [ $(grep -c '^A ' said) -lt {count} ] && [ $i -lt {CONFIRM_POLLS} ]\n"
            "do sleep 0.02; i=$((i + 1)); done\n"
        )

    def _tell(self) -> None:
        """Say to the barrier what the script has said."""
        speakers = self._speakers()
        for name, node in self._nodes.items():
            said = self._said.get(name if name in speakers else speakers[0], {})
            for step, record in self._records(node, said, is_holder=name not in speakers):
                if node.connection is not None and step not in node.told:
                    node.told.add(step)
                    with suppress(OSError):
                        node.connection.say(str(step), json.dumps(record, separators=(",", ":")))
            if self._is_gone and END not in node.told and node.connection is not None:
                node.connection.sock.shutdown(2)  # as of a wrapper that is gone

    def _records(
        self, node: FileNode, said: dict[str, str], *, is_holder: bool
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        if node.spec is None:
            return
        if "R" in said:
            yield READY, {"pid": 0}
        if "S" in said:
            yield RUN, {"started": float(said["S"]), "started_mono": None, "boot": ""}
        end = {**BARE_END, "ended": time.time(), "reason": self._reason or "exited"}
        if is_holder and node.is_finished:
            yield END, {**end, "state": "finished"}
        elif "E" in said and not is_holder:
            ended, user, system, *words = said["E"].split()
            codes = [_code(int(word)) for word in words]
            cpu_s = sum(_seconds(word) for word in (user, system))
            told = {"codes": codes, "cpu_s": cpu_s, "ended": float(ended), "detail": self._detail}
            if not self._reason:
                told["reason"], told["detail"] = verdict(node.spec, codes)
            yield END, {**end, "state": "finished", **told}
        elif "F" in said:
            reason, _, detail = said["F"].partition(" ")
            yield END, {**end, "state": "refused", "reason": reason, "detail": detail}
        elif "N" in said or (self._is_gone and self._is_go and "A" not in said):
            reason, detail = self._reason or "expired", self._detail or "it was not told the start"
            yield END, {**end, "state": "refused", "reason": reason, "detail": detail}

    # -- the clock

    def _look_at_clock(self) -> None:
        if self._limit_s and time.time() >= self._begun() + self._limit_s:
            why = f"ran longer than its limit of {self._limit_s:g} s"
            self._stop("time_limit", why, self._part["grace_s"])
        if time.monotonic() >= self._kill_at:
            self._kill_at = inf
            self._owed.append(self._signal("URG") if self._begun() < inf else ())

    def _stop(self, reason: str, detail: str, grace_s: float) -> None:
        """End what runs, or see to it that nothing begins."""
        if self._reason:
            return
        self._reason, self._detail = reason, detail
        self._owed.append(self._signal("TERM"))
        self._kill_at = time.monotonic() + grace_s

    def _signal(self, name: str) -> tuple[str, ...]:
        """Options that signal the nodes' shells, and not srun, which would kill them."""
        is_step = len(self._nodes) > 1 and not self._part["once"]
        return (*(() if is_step else ("--full",)), f"--signal={name}")

    def _pause_s(self) -> float:
        if not self._is_lost and (self._owed or (self._is_go and not self._has_all("A"))):
            return SOON_S / 10
        ran_s = time.time() - self._begun()
        if self._reason or self._is_lost or (self._is_go and ran_s == -inf):
            return SOON_S
        if ran_s > -inf:
            return max(SOON_S, min(SHARE * ran_s, (self._limit_s or inf) - ran_s, LONGEST_S))
        return READY_S if self._has_all("R") else SOON_S


def run_text(specs: dict[str, NodeSpec], speakers: list[str], path: str) -> str:
    """The input of each node's shell: `data/node.sh`, and the processes of all nodes by rank."""
    each, ranks = [], []
    first = specs[speakers[0]]
    is_once = bool(first["once"])
    for name in speakers:
        spec = specs[name]
        spec["hostfile"] = f"{path}/hostfile" if spec["hostfile_text"] else ""
        spec["script"] = f"{path}/script" if spec["script_text"] else ""
        if is_once and not is_holder(spec):
            told = script_environment(spec, {"SLURM_JOB_ID": ""})
            spec["env"] = {
                name: told[name] for name in told.keys() - {"SLURM_JOB_ID", "SLURM_JOBID"}
            }
            spec = started_once(spec)  # type: ignore[assignment]
        own = [] if is_holder(spec) else range(len(spec["ranks"]))
        ranks.append(
            f"{quote(name)}) echo {' '.join(str(spec['ranks'][n]['rank']) for n in own)} ;;"
        )
        each += [process_text(spec, number) for number in own]
    lines = [f"once={'yes' if is_once else ''} one={quote(speakers[0])} cwd={quote(first['cwd'])}"]
    lines += [f"unset {' '.join(OF_TASKS)}"] if is_once else []
    cases = ["ranks() {", "case $node in", *ranks, "esac", "}"]
    cases += ["each() {", "case $1 in", *each, "esac", "}", "main # end"]
    return "\n".join([*lines, NODE, *cases]) + "\n"


def process_text(spec: NodeSpec, index: int) -> str:
    """The case of one process in `run_text`."""
    rank = Rank(spec, index, None)
    env = rank.environment()
    argv = [spec["script"] or spec["argv"][0], *spec["argv"][1:]]
    place = (spec["job"], rank.rank, rank.node)
    out = output_path(spec["stdout"] or DEFAULT_OUTPUT, *place)
    err = output_path(spec["stderr"], *place) if spec["stderr"] else ""
    words = [f"{name}={value}" for name, value in env.items()]
    told = " ".join(map(quote, [out, err, env["PATH"], argv[0]]))
    rest = " ".join(map(quote, [*words, *argv]))
    return f"{rank.rank}) go {told} {rest} ;;"


def _code(code: int) -> int:
    """A code as runners have it: the shell's for a signal is 128 and its number."""
    return SIGNAL_EXIT - code if code - SIGNAL_EXIT in set(signal.Signals) else code


def _seconds(text: str) -> float:
    """A time as the shell's ``times`` says it: ``0m0.010s``."""
    minutes, _, rest = text.rstrip("s").partition("m")
    return 60.0 * float(minutes) + float(rest)
