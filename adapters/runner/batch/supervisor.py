"""The supervisor of a part: orders in, nodes at the barrier, questions to the batch system.

Imports the standard library only, as the part's runner does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Any

from coalloc.adapters.runner import durable
from coalloc.adapters.runner.batch.barrier import LOOPBACK, Barrier, NodeWrapper
from coalloc.adapters.runner.batch.ends import (
    OWN_ENDS,
    exit_code,
    has_started,
    start_times,
    whole_end,
)
from coalloc.adapters.runner.batch.job import PartJob, node_specs
from coalloc.adapters.runner.batch.relay import StreamRelay
from coalloc.adapters.runner.grant import (
    ABORT,
    CLAIM,
    GRANT,
    HASTEN,
    Nodes,
    dealt,
    is_whole,
    keep,
    planned_nodes,
    settled,
    text_of,
)
from coalloc.adapters.runner.orders import OrderLoop
from coalloc.adapters.runner.pack import TELL_S
from coalloc.adapters.runner.rank import FaultError, faults_of_files
from coalloc.adapters.runner.spec import BatchSpec
from coalloc.adapters.runner.status import END, READY, RUN, START, StatusFile, boot_id

LOOK_S = 1.0
"""Between two questions to the batch system about a job of which something is missing, seconds."""
TURN_S = 3.0
"""Between two looks at a job that waits in the queue beside its runner, seconds.
One whose other parts are told when it comes to the head of the queue is looked at every `LOOK_S`.
"""
SOON_S = 0.2
"""What is on its way when a step ends has come after this long, seconds."""
RECONNECT_S = 20.0
"""A wrapper that runs on calls again within so many seconds, while this machine is not cut off."""
KILL_MARGIN_S = 5.0
REBIND_S = 30.0
REBIND_POLL_S = 0.2


class PartSupervisor(OrderLoop):
    """Takes one part from its claim to its end, or leaves the claim to the queue.

    `fds` are orders, and a pipe that is written to by signals; `port` is where an earlier runner
    listened, 0: there was none. Raises `FaultError` where there is no port to listen on.
    """

    spec: BatchSpec

    def __init__(
        self,
        spec: BatchSpec,
        folder: str,
        status: StatusFile,
        job: PartJob,
        fds: tuple[int, int],
        port: int = 0,
    ) -> None:
        super().__init__(fds[0])
        self.wake_fd = fds[1]
        self.spec, self._folder, self._status, self._job = spec, folder, status, job
        self.is_started = self.go_asked = has_started(status)
        self._may_wait = spec.get("queue") is not None
        self._is_waiting = self._is_hastened = False
        self.has_left = False
        """The claim waits in the queue, and needs no process until it is granted or ordered."""
        if self._may_wait and self.is_started:
            self.spec = settled(spec, folder)
        self._is_over = False
        self._said = {step for step in (READY, RUN) if status.read(step) is not None}
        self._reason = self._detail = ""
        self._missed = 0
        self._after_early_s = 0.0
        self._is_lost, self._missing_s, self._asked_at = False, 0.0, time.monotonic()
        self._renew()
        self._kill_at = self._give_up_at = self._look_at = self._tell_at = float("inf")
        self._dropped: dict[str, str] = {}
        """Members that are not to run, by their places, and why."""
        self._poll()
        self._barrier = self._opened(port)
        job.attend(self._barrier.port)
        self._relay = StreamRelay(folder, self._barrier)
        self._barrier.is_open = self.is_started
        self._barrier.on_word["member"] = self._keep_member
        self._barrier.besides = lambda: {"asked_s": job.asked_s, "dropped": self._dropped}

    def carry(self, *, is_resumed: bool) -> None:
        """Claim the nodes, or take over from an earlier runner, and go on to the end."""
        try:
            if not is_resumed:
                self._claim()
            elif self._job.is_parked and not self.is_started:
                self._resume_waiting()
            elif not self.is_started:
                self._job.is_unsure = True
                raise FaultError("runner_died", "its runner died before anything was started")
            else:
                self.lease_end = float("inf")
                self._look_at = time.monotonic() + LOOK_S
            while not self._is_over:
                self._wait(self._kill_at, self._give_up_at, self._look_at, self._tell_at)
                self._see_nodes()
                self._look_at_clock()
        except FaultError as fault:
            self.stop(fault.reason, fault.detail)

    def stop(self, reason: str, detail: str) -> None:
        """End what runs; the first reason stays."""
        self._reason, self._detail = self._reason or reason, self._detail or detail
        self.lease_end = float("inf")
        if not self.is_started:
            self._is_over = True
            return
        grace_s = self.spec["grace_s"]
        self._barrier.say("cancel", str(int(signal.SIGTERM)), str(grace_s))
        self._kill_at = min(self._kill_at, time.monotonic() + grace_s + KILL_MARGIN_S)
        self._give_up_at = min(self._give_up_at, self._kill_at + KILL_MARGIN_S)

    def close(self) -> None:
        self._barrier.close()

    def end_record(self) -> dict[str, Any]:
        nodes, told = list(self._barrier.nodes.values()), (self._reason, self._detail)
        end = whole_end(nodes, told, self._job, is_started=self.is_started)
        if self.spec.get("members"):
            # After a restart of this machine ends that were told may not be on its disk.
            begun = self._status.read(START) or {}
            end["is_sure"] = begun.get("boot") == boot_id()
        return end

    def _keep_member(self, node: NodeWrapper, text: str) -> None:
        """Put on record how a member has ended, before the next one begins."""
        end = json.loads(text)
        with contextlib.suppress(OSError):  # none begins, then
            self._status.write_member(end["place"], end)
            self._barrier.tell(node, "kept", str(end["place"]))
        self._tell_at = min(self._tell_at, time.monotonic() + TELL_S)

    # -- up to the barrier

    def _opened(self, port: int) -> Barrier:
        """Listen; after a restart where the nodes will call again."""
        is_known = self.is_started or not self._may_wait
        specs = node_specs(self.spec, self._folder) if is_known else {}
        first, last = (port, port) if port else self.spec["site"]["ports"]
        end = time.monotonic() + (REBIND_S if port and self.is_started else 0.0)
        while True:
            try:
                site = self.spec["site"]
                host = LOOPBACK if site.get("relay") or site.get("files") else ""
                return Barrier(specs, self.spec["key"], (first, last), self.poller, host)
            except OSError as error:
                if time.monotonic() >= end:
                    raise FaultError(
                        "no_port", f"ports {first}-{last} of the executor's host: {error.strerror}"
                    ) from error
            time.sleep(REBIND_POLL_S)

    def _claim(self) -> None:
        self._keep()
        waits = self._job.claim(self._barrier.port, self._keep)
        self._look_at = time.monotonic() + LOOK_S
        if waits and self._may_wait:
            self._is_waiting, self.lease_end = True, float("inf")
            self._show({"waits": True})
            if self._job.is_parked:
                self._see_orders()
                self._leave()
        elif self._may_wait:
            planned = planned_nodes(self.spec)
            # Where it is not the same number on each, the batch system has laid it out by itself.
            turn = self._job.turn() if len({count for _, count in planned}) > 1 else None
            if turn is not None and turn.slots:
                self._deal(turn.slots)
            else:
                self._grant(planned)

    # -- a claim that waits

    def _resume_waiting(self) -> None:
        """Look after a claim that has waited without a process: it is granted, over, or ordered."""
        self._is_waiting, self.lease_end = True, float("inf")
        self._look_at = time.monotonic()
        self._keep()
        self._status.tell()
        self._see_orders()

    def _see_orders(self) -> None:
        """Take in what was ordered while no process was there."""
        self._is_hastened |= text_of(self._folder, HASTEN) is not None
        if (reason := text_of(self._folder, ABORT)) is not None:
            self.stop("aborted", reason)

    def _leave(self) -> None:
        """Leave the claim to the queue, if nothing is left to be done for it now."""
        if not (self._is_over or self._is_hastened or self._barrier.early):
            self.has_left = self._is_over = True
            self._status.tell()

    def _show(self, grant: dict[str, Any]) -> None:
        """Say how the claim is."""
        with faults_of_files(self._folder):
            keep(self._folder, GRANT, grant)
        self._status.tell()

    def _grant(self, nodes: Nodes) -> None:
        """The part has its nodes: it goes on if it needs to hear of no others."""
        self._is_waiting = False
        if self._job.is_parked:
            self._job.is_parked = False
            self._keep()
        self._renew()
        self._show({"nodes": nodes})
        if is_whole(self.spec) and dict(nodes) == dict(planned_nodes(self.spec)):
            self._brief()

    def _deal(self, slots: dict[str, int]) -> None:
        try:
            self._grant(dealt(self.spec, slots))
        except ValueError as error:
            self._conclude("nodes_taken", str(error))

    def _brief(self) -> None:
        """Tell the wrappers what to run, now that all nodes of the job are known."""
        if self._is_waiting or self._barrier.nodes or self._reason:
            return
        self.spec = settled(self.spec, self._folder)
        self._barrier.brief(node_specs(self.spec, self._folder))
        self._look_at = min(self._look_at, time.monotonic() + LOOK_S)

    def _look_at_turn(self) -> None:
        """Ask how far the job has come in the queue."""
        if self._is_hastened and self._job.hasten():
            self._is_hastened = False
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self._folder}/{HASTEN}")
        turn = self._job.turn()
        if turn is None:
            # Nothing can be said of it any more, and nobody is left to hear it.
            if not os.path.isdir(self._folder):
                raise FaultError("state_unwritable", f"{self._folder} is gone")
            return
        if turn.slots:
            self._deal(turn.slots)
        elif turn.is_stuck or turn.state not in self._job.alive:
            self._conclude(*self._job.explained(turn.state, turn.reason))
        elif self._job.is_parked:
            self._leave()
        else:
            told = {"expected": turn.expected, "detail": turn.reason, "is_next": turn.is_next}
            self._show({"waits": True, **told})

    def _keep(self) -> None:
        """Write down what whoever takes over has to know."""
        path = f"{self._folder}/{CLAIM}"
        port = self._barrier.port if self._is_waiting or not self._job.is_parked else 0
        claim = {"port": port, "job": self._job.number, "waits": self._job.is_parked}
        claim |= {"asked_s": self._job.asked_s}
        with faults_of_files(path):
            durable.write(path, json.dumps(claim).encode())

    # -- the loop

    def _take(self, fd: int) -> None:
        if not self._barrier.take(fd):
            self._relay.link.take(fd)

    def _obey_one(self, words: list[str]) -> None:
        if words[0] == "arrange":
            self._brief()
        elif words[0] == "stream":
            self._relay.link.dial(self.poller)
        elif words[0] == "drop":
            place, why = words[1], " ".join(words[2:])
            if not self.is_started:
                self.stop("aborted", why)
            self._dropped[place] = why
            self._barrier.say("drop", place, why)
        elif words[0] == "hasten":
            if self._is_waiting:
                self._is_hastened, self._look_at = True, time.monotonic()
        elif words[0] != "renew" or not self._is_waiting:
            super()._obey_one(words)
            if words[0] == "renew":
                self._barrier.say("renew")

    def _limit(self, limit_s: float) -> None:
        super()._limit(limit_s)
        for node in self._barrier.nodes.values():
            node.spec["time_limit_s"] = limit_s
        self._barrier.say("limit", str(limit_s))

    def _see_nodes(self) -> None:
        """Draw the conclusions from what the nodes have said."""
        barrier = self._barrier
        if self._is_waiting and barrier.early:
            self._look_at = min(self._look_at, time.monotonic() + self._after_early_s)
            self._after_early_s = SOON_S
        if READY not in self._said and barrier.all_said(READY):
            self._look_at = float("inf")
            here = {"pid": os.getpid(), "job": self._job.number, "boot": boot_id()}
            self._say(READY, here, durable=True)
        self._start_if_ready()
        if self.is_started and RUN not in self._said and barrier.all_said(RUN):
            self._say(RUN, start_times(self._barrier.nodes.values()))
        if not self.is_started and not self._reason:
            for node in barrier.nodes.values():
                if END in node.records:
                    self.stop(node.records[END]["reason"], node.records[END]["detail"])
                    return
        if self.is_started and self.spec.get("once"):
            barrier.finish_holders()
        if barrier.all_said(END):
            self._let_wrappers_go()
            self._is_over = True
            return
        self._see_missing()

    def _see_missing(self) -> None:
        """Have a look soon, once, where something is lost."""
        barrier, was_lost = self._barrier, self._is_lost
        is_early = self._may_wait and not barrier.nodes
        is_broken = barrier.has_lost_early if is_early else barrier.is_broken
        is_there = not (is_early or barrier.missing)
        self._is_lost = not is_there and (is_broken or self._job.has_lost_step)
        if self._is_lost and not was_lost:
            self._look_at = min(self._look_at, time.monotonic() + SOON_S)

    def _say(self, step: int, record: dict[str, Any], durable: bool = False) -> None:
        self._said.add(step)
        self._status.record(step, record, durable)

    def _start_if_ready(self) -> None:
        """Pass the point of no return: first in the status, then to the nodes.

        It need not be on the disk first, which would take several milliseconds on a busy one:
        READY is, and after a loss of power what was ready counts as started (`has_started`).
        """
        if self.is_started or self._reason or not self.go_asked:
            return
        self._barrier.listen()
        if not self._barrier.all_said(READY) or self._barrier.is_broken:
            return
        try:
            self._status.write(START, {"boot": boot_id()})
        except OSError as error:
            self.stop("state_unwritable", f"{self._folder}: {error.strerror}")
            return
        self._barrier.say("go")
        self.is_started = True
        self.lease_end = float("inf")

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        self._barrier.drop_unauthenticated()
        self._look_at_lease(now)
        if now >= self._tell_at:
            self._tell_at = float("inf")
            self._status.tell()
        if now >= self._give_up_at:
            self._is_over = True
        elif now >= self._kill_at:
            self._kill_at = float("inf")
            self._job.kill()
        if now >= self._look_at and not self._is_over:
            is_alone = self._is_waiting and is_whole(self.spec)
            self._look_at = now + (TURN_S if is_alone else LOOK_S)
            if self._is_waiting:
                self._look_at_turn()
            else:
                self._ask_system()
            # Wrappers are heard between two looks, however long one takes.
            self._look_at = max(self._look_at, time.monotonic() + SOON_S)

    def _ask_system(self) -> None:
        """Ask what became of the job, since something of it is missing."""
        asked_at, self._asked_at = self._asked_at, time.monotonic()
        self._missing_s += min(LOOK_S, self._asked_at - asked_at)
        state, reason = self._job.state()
        if state is None and self.is_started:
            # Out of reach; nothing is known. What cuts us off may keep the wrappers from calling.
            self._missing_s = 0.0
            return
        if not self._barrier.missing:
            self._missing_s = 0.0
        if not state and self.is_started:
            self._missed += 1
            if self._missed >= 2:
                self._conclude("vanished", f"{self._job.system} knows it no more")
            return
        self._missed = 0
        if state == "" and self._may_wait:
            self._conclude("vanished", f"{self._job.system} knows it no more")
        elif state and state in self._job.ending:
            self._look_at = time.monotonic() + SOON_S
        elif state and (state not in self._job.alive or self._job.has_lost_step):
            self._conclude(*self._job.explained(state, reason))
        elif self._barrier.missing and self._is_away_for_good():
            self._conclude("node_failed", f"{', '.join(self._barrier.missing)} is out of reach")

    def _is_away_for_good(self) -> bool:
        """Whether a wrapper that is missing will not call again."""
        if not (self.is_started or self._barrier.is_broken):
            return False
        may_call = self.is_started or self.spec["site"].get("relay")
        return not may_call or self._missing_s >= RECONNECT_S

    def _conclude(self, reason: str, detail: str) -> None:
        """No more will be heard of some of the nodes."""
        log = self._job.last_words() if reason == "step_failed" else ""
        if reason != "step_failed" or not self._reason:
            self._reason = reason
            self._detail = f"job {self._job.number}: {detail}{f': {log}' if log else ''}"
        self._is_over = True

    # -- the end

    def _let_wrappers_go(self) -> None:
        """Let the batch system's job end with the processes' exit code.

        One whose processes were ended for another reason than their own is cancelled instead.
        """
        ends = [node.records[END] for node in self._barrier.nodes.values()]
        if self._reason or any(end["reason"] not in OWN_ENDS for end in ends):
            self._job.withdraw()
        self._barrier.let_go(exit_code(ends))
