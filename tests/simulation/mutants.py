"""Planted defects: one line of the real cores changed, to prove that the simulation finds it.

A mutant names a function, the text that stands in its source, and what it says instead. Where the
source no longer holds that text, planting fails: a mutant that changes nothing proves nothing.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from coalloc.core import coordinator
from coalloc.core.base import composites, state
from coalloc.core.clusters import native_jobs, presence
from coalloc.core.commands import queue
from coalloc.core.commands import updates as updating
from coalloc.core.executor import machine as executor
from coalloc.core.executor import turn as executor_turn
from coalloc.core.jobs import after_restore, deadlines, dependencies, occupation, workflows
from coalloc.core.rounds import commitment as committing
from coalloc.core.sharing import accounting, limit_book, limits
from coalloc.core.starts import late_moves as moving
from coalloc.core.starts import negotiation as negotiating
from coalloc.core.starts import placements as placing
from coalloc.core.starts import queued_claims as queueing
from coalloc.core.starts import requeue as requeueing
from coalloc.core.starts import two_phase as starting
from coalloc.daemon import outbox
from coalloc.daemon.store import restore
from tests.simulation import daemon as shell


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One defect.

    Attributes
    ----------
    of : callable
        The function, or the method as its class has it.
    old, new : str
        Text of its source, and what stands there instead.
    steps : int
        With faults, in each seed.
    """

    of: Callable[..., Any]
    old: str
    new: str
    steps: int = 400


MUTANTS: dict[str, Mutant] = {
    # The daemon's order of things
    "reply-before-commit": Mutant(
        of=shell.DaemonHost._carry_out,
        old="        if self._crashes():\n",
        new=(
            "        from coalloc.core.base.effects import Reply\n"
            "        for reply in effects:\n"
            "            if isinstance(reply, Reply):\n"
            "                self.answers.append((reply.origin, reply.answer))\n"
            "        if self._crashes():\n"
        ),
    ),
    "send-before-commit": Mutant(
        of=shell.DaemonHost._carry_out,
        old="        if self._crashes():\n",
        new=(
            "        from coalloc.core.base.effects import SendOrder\n"
            "        self._speak([e for e in effects if isinstance(e, SendOrder)], now)\n"
            "        if self._crashes():\n"
        ),
    ),
    # Starting together, once
    "start-before-all-ready": Mutant(
        of=starting._advance,
        old="all(s is PartState.READY for s in states)",
        new="any(s is PartState.READY for s in states)",
    ),
    "start-not-recorded": Mutant(
        of=starting._advance,
        old="deadline=None)\n            state.put(record)",
        new="deadline=None)\n            state.index(record)",
    ),
    "start-sent-to-one-part-only": Mutant(
        of=starting._advance,
        old="for part in record.parts:\n",
        new="for part in record.parts[:1]:\n",
    ),
    "ended-jobs-start-again": Mutant(
        of=starting._advance,
        old="if record.cancelled_by or started:",
        new="if record.cancelled_by:",
    ),
    "ended-with-its-first-part": Mutant(
        of=starting._advance,
        old="elif all(s in PART_ENDED for s in states):",
        new="elif any(s in PART_ENDED for s in states):",
    ),
    # Claims that wait, and how parts meet
    "arranged-before-all-are-granted": Mutant(
        of=negotiating.went_on,
        old="if all(p.granted is not None for p in record.parts):",
        new="if any(p.granted is not None for p in record.parts):",
    ),
    "arranged-for-one-part-only": Mutant(
        of=negotiating._arranged,
        old="    for part in record.parts:\n",
        new="    for part in record.parts[:1]:\n",
    ),
    "granted-nodes-not-followed": Mutant(
        of=starting.reported,
        old="nodes=report.nodes or part.nodes",
        new="nodes=part.nodes",
    ),
    "idle-nodes-held-for-ever": Mutant(
        of=negotiating._deadline, old="if held <= 0.0:", new="if True:"
    ),
    "claims-that-wait-take-no-link": Mutant(
        of=queueing.queue_up, old="misfit_of_links(", new="bool(view) and not misfit_of_links("
    ),
    "put-off-for-ever": Mutant(
        of=negotiating._hasten, old="    put_off = [", new="    put_off = [] and ["
    ),
    "tasks-take-no-turn": Mutant(
        of=queueing._later, old="placement.chunks is None", new="placement.task is None"
    ),
    "pieces-take-no-turn": Mutant(
        of=queueing._send_pieces, old="if is_crowded(state, name)", new="if False"
    ),
    # Moves from one queue to another place
    "moves-not-saved": Mutant(
        of=moving._look_at,
        old="        state.put(record)\n",
        new="        state.index(record)\n",
    ),
    "moved-again-and-again": Mutant(
        of=moving._look_at, old="moves=record.moves + 1", new="moves=record.moves or 1"
    ),
    "moved-for-any-gain": Mutant(
        of=moving._look_at, old="state.settings.start.move_margin_s * 2.0", new="0.0 * 2.0"
    ),
    "moved-and-forgotten": Mutant(
        of=requeueing._move, old="    state.put(\n", new="    state.index(\n"
    ),
    # Expected starts
    "expected-starts-forgotten-by-a-restart": Mutant(
        of=coordinator.Coordinator.__init__,
        old="            learning=past.learning,\n",
        new="            learning=past.learning.promises.clear() or past.learning,\n",
    ),
    "start-errors-forgotten-by-a-restart": Mutant(
        of=coordinator.Coordinator.__init__,
        old="            learning=past.learning,\n",
        new="            learning=Learning(promises=past.learning.promises),\n",
    ),
    # Fencing
    "no-fencing-by-attempt": Mutant(
        of=starting._part, old="record.attempt != report.attempt", new="False"
    ),
    "attempt-not-counted": Mutant(
        of=placing.place, old="attempt=record.attempt + 1", new="attempt=1"
    ),
    "old-epochs-accepted": Mutant(
        of=executor.ExecutorCore._ordered,
        old="not state.welcomed or numbered.epoch != state.epoch",
        new="not state.welcomed",
    ),
    "orders-carried-out-again": Mutant(
        of=executor.ExecutorCore._ordered,
        old="numbered.seq <= state.last_seq",
        new="False",
    ),
    "gaps-ignored": Mutant(
        of=executor.ExecutorCore._ordered,
        old="numbered.seq > state.last_seq + 1",
        new="False",
    ),
    "written-before-carried-out": Mutant(
        of=executor_turn.carry_out,
        old="    while waiting:\n",
        new="    _is_saved(core.progress(), hands)\n    while waiting:\n",
        steps=3000,
    ),
    "lease-ignored": Mutant(
        of=executor.ExecutorCore._ticked,
        old="now - state.last_heard > state.lease_s:",
        new="False:",
    ),
    # Launchers and disks that fail
    "failures-cost-the-rest-of-a-turn": Mutant(
        of=executor_turn._performed,
        old="        events = [EffectFailed",
        new="        return []\n        events = [EffectFailed",
    ),
    "failed-starts-left": Mutant(
        of=executor.ExecutorCore._failed,
        old="        match effect:\n",
        new=(
            "        if isinstance(effect, StartPart):\n            return\n        match effect:\n"
        ),
    ),
    "failed-claims-not-given-up": Mutant(
        of=executor.ExecutorCore._failed,
        old='                self._out.append(EndPart(key=order.key, reason="its claim failed"))\n',
        new="",
    ),
    # What survives a restart
    "outbox-forgotten": Mutant(
        of=outbox.Delivery.restore,
        old="self._boxes[cluster] = Outbox(orders=dict(kept), sent=min(kept, default=1) - 1)",
        new="pass",
    ),
    "numbers-not-saved": Mutant(
        of=state.State.send,
        old="self.out.append(SaveMeta(",
        new="(lambda effect: None)(SaveMeta(",
    ),
    "token-not-saved": Mutant(
        of=queue._queued,
        old="state.out.append(SaveToken(",
        new="(lambda effect: None)(SaveToken(",
    ),
    "unwritten-arrays-acknowledged": Mutant(
        of=coordinator.Coordinator._take_back,
        old='job.partition("_")[0]',
        new="job",
    ),
    "unwritten-submits-kept": Mutant(
        of=coordinator.Coordinator._take_back,
        old="state.remove(job)",
        new="pass",
    ),
    # Executors and the daemon agree in the end
    "strangers-not-answered": Mutant(
        of=starting._answer_stranger,
        old='    """A part',
        new='    return\n    """A part',
    ),
    # Nodes and links
    "plans-not-checked-again": Mutant(
        of=occupation.misfit, old='    """Reason', new='    return ""\n    """Reason'
    ),
    "links-not-counted": Mutant(
        of=occupation.loads_of, old='    """Link load', new='    return {}\n    """Link load'
    ),
    # Order among jobs, and time
    "dependencies-ignored": Mutant(
        of=dependencies.resolved,
        old="common += ((kind, member) for member in members)",
        new="pass",
    ),
    "tasks-before-their-parents": Mutant(
        of=composites.WorkflowState.is_ready, old="and not self.unmet[task]", new=""
    ),
    "chunks-given-twice": Mutant(
        of=composites.ChunkPool.take,
        old="self.given = max(self.given, record.chunk_first + record.chunks)",
        new="self.given = max(self.given, record.chunk_first)",
    ),
    "chunks-left-behind": Mutant(of=placing._piece, old="    if rest:\n", new="    if False:\n"),
    "failures-not-counted": Mutant(
        of=workflows.tries_again,
        old="failures = record.failures + 1",
        new="failures = record.failures",
    ),
    "guests-taken-twice": Mutant(
        of=native_jobs._queue,
        old="state.out.append(SaveToken(",
        new="(lambda effect: None)(SaveToken(",
    ),
    # Executors that are not the one before
    "orders-of-the-former-carried-out-by-the-next": Mutant(
        of=presence.taken_over,
        old="    forget_orders(state, hello.cluster)\n",
        new="",
        steps=1000,
    ),
    "identity-not-saved": Mutant(
        of=presence.taken_over,
        old="    state.out.append(SaveMeta(",
        new="    (lambda effect: None)(SaveMeta(",
    ),
    # A store that is an older copy of itself
    "restored-under-its-old-epoch": Mutant(
        of=restore.renumbered,
        old='epoch = max(int(now), high.get("epoch", 0) + 1)',
        new='epoch = own.get("epoch", 0)',
        steps=800,
    ),
    "restored-without-asking-executors": Mutant(
        of=restore.renumbered,
        old='] = "1"',
        new='] = ""',
        steps=800,
    ),
    "restored-with-numbers-used-again": Mutant(
        of=restore.renumbered,
        old="last_job) + NUMBERS_AHEAD)",
        new="last_job))",
        steps=800,
    ),
    "restored-while-being-prepared": Mutant(
        of=restore.unprepared,
        old="    if record.state is not",
        new="    if True or record.state is not",
        steps=800,
    ),
    "overtaken-jobs-not-held": Mutant(
        of=after_restore._hold,
        old="state=JobState.HELD, attempt=attempt, ",
        new="attempt=attempt, ",
        steps=800,
    ),
    "claims-of-nobody-kept": Mutant(
        of=after_restore._is_unknown,
        old='    """A part of',
        new='    return False\n    """A part of',
        steps=600,
    ),
    # Limits, reservations, changes and usage
    "limits-not-checked-again": Mutant(
        of=limits.holds,
        old="why = book.why_not(record, *start_of(record, placement))",
        new='why = ""',
        steps=600,
    ),
    "reserved-nodes-given-to-others": Mutant(
        of=committing._obstacle,
        old="if not why and is_kept_from(",
        new="if False and is_kept_from(",
        steps=800,
    ),
    "changes-not-saved": Mutant(
        of=updating.update, old="state.put(record)", new="state.index(record)", steps=800
    ),
    "usage-not-saved": Mutant(
        of=accounting.charge, old="state.out.append(saved)", new="pass", steps=400
    ),
    "priorities-not-saved": Mutant(
        of=queue.set_priority,
        old="state.put(replace(record, priority=command.priority))",
        new="state.index(replace(record, priority=command.priority))",
        steps=800,
    ),
    # Throttles of arrays, and deadlines
    "throttles-ignored": Mutant(
        of=limit_book.LimitBook._scopes, old="if record.throttle and record.array:", new="if False:"
    ),
    "throttles-of-waiting-members-only": Mutant(
        of=updating.update, old="            if record.is_placed:\n", new="            if False:\n"
    ),
    "started-too-late": Mutant(
        of=deadlines.misses, old="    limit = record", new="    return False\n    limit = record"
    ),
    "late-jobs-wait-for-ever": Mutant(
        of=deadlines._end, old="    end_waiting(state, record, now,", new="    (state, record, now,"
    ),
    "deadlines-forgotten-by-a-restart": Mutant(
        of=state.State.index_all,
        old="            self.index(record)\n",
        new="            self.index(record)\n            self.deadlines.forget(record.id)\n",
    ),
    "after-before-the-start": Mutant(
        of=dependencies.is_open,
        old="needed.state is JobState.RUNNING",
        new="needed.state is not JobState.HELD",
        steps=600,
    ),
}
"""Every planted defect."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a mutant for a while; the empty name plants nothing.

    Raises
    ------
    LookupError
        If the source does not hold the text to be changed exactly once.
    """
    if not name:
        yield
        return
    mutant = MUTANTS[name]
    changed = _changed(mutant)
    places = list(_places(mutant.of))
    for owner, attribute in places:
        setattr(owner, attribute, changed)
    try:
        yield
    finally:
        for owner, attribute in places:
            setattr(owner, attribute, mutant.of)


def _changed(mutant: Mutant) -> Callable[..., Any]:
    source = inspect.getsource(mutant.of)
    if source.count(mutant.old) != 1:
        raise LookupError(f"{mutant.of.__qualname__} does not say {mutant.old!r} once")
    source = textwrap.dedent(source.replace(mutant.old, mutant.new))
    code = compile(f"from __future__ import annotations\n{source}", "<mutant>", "exec")
    made: dict[str, Any] = {}
    exec(code, dict(vars(sys.modules[mutant.of.__module__])), made)
    changed: Callable[..., Any] = made[mutant.of.__name__]
    return changed


def _places(function: Callable[..., Any]) -> Iterator[tuple[Any, str]]:
    """Where a function is bound: its class, or every module that has imported it."""
    owner, _, name = function.__qualname__.rpartition(".")
    if owner:
        yield getattr(sys.modules[function.__module__], owner), name
        return
    for module in list(sys.modules.values()):
        if module.__name__.startswith(("coalloc.", "tests.")):
            for attribute, value in list(vars(module).items()):
                if value is function:
                    yield module, attribute
