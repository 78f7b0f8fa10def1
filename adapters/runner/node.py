"""The wrapper: holds a part's processes on one node of a cluster.

It is all that the batch system starts for the part on its node. It connects to the part's runner
on the executor's machine, is told what to run, and does with its processes what `runner.runner`
does: brings them to the barrier, starts them, ends them, sees their ends. Orders come over the
connection and records go back over it. A connection that is lost before the start gives the
claim up; one by a relay is tried again for as long as the lease. Later the processes run on, and
the wrapper tries again and again to report. Of members of an array (`runner.pack`) none begins
before the runner has on record how those before it ended.

Nothing is installed on the node: this module and those it needs come in the environment
(`runner.payload`). The node needs Python 3.6 or later.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from coalloc.adapters.runner.once import script_environment
from coalloc.adapters.runner.pack import PackRunner
from coalloc.adapters.runner.status import END, NO_RUNNER, RUN, boot_id, was_signalled
from coalloc.adapters.runner.talk import (
    GivenUpError,
    LineConnection,
    TalkError,
    connect,
    port_of_runner,
)

if TYPE_CHECKING:
    from coalloc.adapters.runner.spec import NodeSpec

CONNECT_LIMIT_S = 5.0
RETRY_S = 2.0
GATE_RETRY_S = 0.1
OVER_LIMIT_S = 10.0
JOB_IDS = (
    ("COALLOC_SLURM_JOB_ID", "SLURM_JOB_ID"),
    ("COALLOC_GRIDENGINE_JOB_ID", "JOB_ID"),
    ("COALLOC_OAR_JOB_ID", "OAR_JOB_ID"),
)
"""What a process sees of the batch system's own variables, and their names there."""
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
PATIENCE_S = 900.0
"""How long an end is kept for a runner that does not come back, seconds."""
NO_FOLDER = "/proc/self"
"""In the place of a part's folder: there, and nothing can be written."""


class NodeRunner(PackRunner):
    """The processes of one node."""

    def __init__(self, address: RunnerAddress, connection: LineConnection, spec: NodeSpec) -> None:
        self._address = address
        self._connection: LineConnection | None = connection
        self._null = os.open(os.devnull, os.O_RDWR)
        super().__init__(NO_FOLDER, connection.fileno(), os.dup(self._null))
        self.spec = spec
        self._records: dict[int, dict[str, Any]] = {}
        self._patience_end = float("inf")
        self._untold: dict[int, dict[str, Any]] = {}
        """Ends of members that the part's runner may not have on record."""
        self._last: dict[str, Any] = {}
        """The end of a member that is told as the part's."""
        self._until = time.monotonic() + float(spec.get("asked_s") or "inf")
        self.exit_code = 0
        """The wrapper's own, as the part's runner has said."""

    def _open(self) -> None:
        super()._open()
        for number in PASSED_ON:
            signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, _: object) -> None:
        """Give the processes a signal of the batch system's, which knows the wrapper alone.

        A script gets none of those for steps.
        """
        is_for_steps = self.spec.get("once") and "SLURM_STEP_ID" in os.environ
        for pid in self.pids if self.is_started and not is_for_steps else ():
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def _load(self) -> None:
        os.set_blocking(self.orders_fd, True)
        self.status.fd = os.dup(self._null)

    def _preallocate(self) -> None:
        """The runner has done it."""

    _synchronise = _preallocate

    def _mark_started(self) -> None:
        """The runner has it on disk before it says go."""

    def _stream(self, words: list[str]) -> None:
        self.streams.wish(json.loads(words[0]))

    def _say_stream(self, said: dict[str, Any]) -> None:
        self._tell("stream", said)

    def _obey_one(self, words: list[str]) -> None:
        if words[0] == "kept":
            self._untold.pop(int(words[1]), None)
        else:
            super()._obey_one(words)

    def _run_behind(self) -> dict[str, Any]:
        return {**super()._run_behind(), **self._last}

    def _may_begin(self, place: int) -> bool:
        """Wait until nothing is untold; whether there is time for one more."""
        end = time.monotonic() + PATIENCE_S
        while (self._untold or self._connection is None) and not self.is_off:
            self._wait(self.look_at, end)
            self._look_at_clock()
            if time.monotonic() >= end:
                self.is_off = True
        if self._until - time.monotonic() < (self.spec["time_limit_s"] or 0.0):
            self.is_off = True
        return super()._may_begin(place)

    def _keep(self, place: int, end: dict[str, Any]) -> None:
        """Tell how a member has ended.

        Where a signal may have ended it, that may be the batch job's end, whose cause the part's
        runner finds out: no other begins.
        """
        self.over.add(place)
        end = {"ended": time.time(), **end, "place": place}
        if was_signalled(end):
            self.is_off, self._last = True, end
        else:
            self._untold[place] = end
            self._tell("member", end)

    def _stay(self) -> None:
        """Leave it to the batch system to end the rest, and to keep its node until then."""

    def _take_orders(self) -> None:
        if self._connection is None:
            return
        try:
            for line in self._connection.heard():
                self._obey(line.encode() + b"\n")
        except TalkError:
            self._hang_up()

    def _look_at_clock(self) -> None:
        super()._look_at_clock()
        if self._connection is None and time.monotonic() >= self.look_at and not self._is_lost():
            self.look_at = float("inf") if self._call_again() else time.monotonic() + RETRY_S

    def _record(self, slot: int, record: dict[str, Any], durable: bool = False) -> bool:
        if slot != END and slot in self._records:
            return True  # of a member that began later
        if slot == RUN:
            record = dict(record, boot=boot_id())
        self._records[slot] = record
        if slot != END:
            return self._say(slot)
        if self._connection is None and self.is_started:
            self._call_again()
        elif self._connection is not None:
            self._say(END)
        if self._is_over():
            return True
        now = time.monotonic()
        if self._patience_end == float("inf"):
            self._patience_end = now + PATIENCE_S if self.is_started else now
        return now >= self._patience_end  # then it is given up

    def _say(self, slot: int) -> bool:
        return self._tell(str(slot), self._records[slot])

    def _tell(self, word: str, record: dict[str, Any]) -> bool:
        if self._connection is None:
            return False
        try:
            self._connection.say(word, json.dumps(record, separators=(",", ":")))
        except OSError:
            self._hang_up()
            return False
        return True

    def _is_over(self) -> bool:
        """Whether the runner has said that it knows the end."""
        end = time.monotonic() + OVER_LIMIT_S
        while self._connection is not None:
            try:
                word, _, code = self._connection.wait_line(end - time.monotonic()).partition(" ")
                if word == "over":
                    self.exit_code = int(code or 0)
                    return True
            except TalkError:
                self._hang_up()
        return False

    def _hang_up(self) -> None:
        if self._connection is None:
            return
        with contextlib.suppress(AttributeError, KeyError, OSError, ValueError):
            self.poller.unregister(self.orders_fd)
        self._connection.close()
        self._connection = None
        if self._is_lost():
            self.stop("expired", "the part's runner is gone")
        else:
            self.look_at = time.monotonic() + (RETRY_S if self.is_started else GATE_RETRY_S)

    def _is_lost(self) -> bool:
        """Whether a connection that is gone gives the claim up: one by a relay may come back."""
        return not self.is_started and (self.reason != "" or not self._address.relay)

    def _call_again(self) -> bool:
        try:
            self._connection, spec = self._address.connect(CONNECT_LIMIT_S)
        except TalkError:
            return False
        if spec["time_limit_s"] is not None:
            self._limit(spec["time_limit_s"])
        self.orders_fd = self._connection.fileno()
        self.orders = b""
        with contextlib.suppress(AttributeError, OSError):
            self.poller.register(self.orders_fd, 1)
        for end in self._untold.values():
            self._tell("member", end)
        for slot in sorted(self._records):
            self._say(slot)
        for place, why in spec["dropped"].items():
            self._obey_one(["drop", place, why])
        if spec["is_open"] and not self.go_asked:
            self._obey_one(["go"])  # which was said meanwhile
        self._take_orders()  # what came with the spec makes nothing readable
        return self._connection is not None


class RunnerAddress:
    """Host, port and key of the part's runner, from the environment.

    Of a claim that has waited in the queue the port is the gate's, until that has told another.
    """

    def __init__(self, environ: Any) -> None:
        host, _, port = environ.pop("COALLOC_BARRIER").rpartition(":")
        self.host, self.port = host, int(port)
        self.relay = environ.pop("COALLOC_RELAY", "")
        self.claim, _, lease_s = environ.pop("COALLOC_GATE", "").partition(" ")
        self.lease_s = float(lease_s or 0.0)
        self.key = environ.pop("COALLOC_BARRIER_KEY")
        self.node = environ.pop("COALLOC_BARRIER_NODE", "") or environ.get("SLURMD_NODENAME", "")

    def connect(self, limit_s: float) -> tuple[LineConnection, Any]:
        return connect(self.host, self.port, self.relay, self.key, self.node, limit_s)

    def first_connection(self) -> tuple[LineConnection, Any]:
        """Connect, by way of the gate for as long as a lease; raises TalkError."""
        gate, end, pause_s = self.port, time.monotonic() + self.lease_s, GATE_RETRY_S
        while True:
            try:
                if self.claim:
                    at = (self.host, gate, self.relay)
                    self.port = port_of_runner(*at, self.claim, CONNECT_LIMIT_S)
                return self.connect(CONNECT_LIMIT_S)
            except TalkError as error:
                if isinstance(error, GivenUpError) or time.monotonic() >= end:
                    raise
            time.sleep(pause_s)
            pause_s = min(2.0 * pause_s, RETRY_S)


def deal_gpus(spec: NodeSpec, visible: str) -> None:
    """Give each process its own of the GPUs that the batch system shows its wrapper."""
    gpus, each = visible.split(","), int(spec["env"].get("COALLOC_GPUS_PER_TASK", 0))
    shared = max(0, len(gpus) - each * len(spec["ranks"]))
    first = shared
    for rank in spec["ranks"] if visible else ():
        rank["gpus"] = [*gpus[:shared], *gpus[first : first + each]]
        first += each


def write(spec: NodeSpec, parent: str) -> None:
    """Write what the node's processes read, which is gone with this one, however it ends."""
    folder = f"{parent}/coalloc-{os.urandom(8).hex()}"
    os.mkdir(folder, 0o700)
    try:
        spec["script"] = _kept(f"{folder}/script", spec.pop("script_text"), 0o700)
        spec["hostfile"] = _kept(f"{folder}/hostfile", spec.pop("hostfile_text"), 0o600)
    finally:
        os.rmdir(folder)


def _kept(path: str, text: str, mode: int) -> str:
    """Write a file that has no name any more; returns the path that this process gives it.

    It is empty where there is nothing to write. The path is the same for all of the user's
    processes, and one that opens it begins at its start.
    """
    if not text:
        return ""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(fd, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
        fd = os.open(path, os.O_RDONLY)  # what is open for writing is not executed
    finally:
        os.unlink(path)
    return f"/proc/{os.getpid()}/fd/{fd}"


def main() -> None:
    """Be a node's wrapper."""
    address = RunnerAddress(os.environ)
    try:
        connection, spec = address.first_connection()
        if spec.pop("is_open"):
            raise TalkError("the part has been started before, and is not started again")
    except TalkError as error:
        print(f"{address.node}: {error}", file=sys.stderr)
        sys.exit(NO_RUNNER)
    if spec.get("once"):
        spec["env"] = script_environment(spec, os.environ)
    for ours, theirs in JOB_IDS:
        if theirs in os.environ:
            spec["env"][ours] = os.environ[theirs]
    deal_gpus(spec, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    try:
        write(spec, os.environ.get("TMPDIR", "/tmp"))
    except OSError as error:
        print(f"{address.node}: {error}", file=sys.stderr)
        sys.exit(4)
    runner = NodeRunner(address, connection, spec)
    runner.run()
    os._exit(runner.exit_code)
