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
from coalloc.core.jobs import (
    after_restore,
    arrays,
    deadlines,
    dependencies,
    eligibility,
    occupation,
    workflows,
)
from coalloc.core.rounds import turn
from coalloc.core.sharing import accounting, limits
from coalloc.core.starts import negotiation as negotiating
from coalloc.core.starts import packs, requeue, siblings
from coalloc.core.starts import placements as placing
from coalloc.core.starts import queued_claims as queueing
from coalloc.core.starts import two_phase as starting
from coalloc.daemon import outbox
from coalloc.daemon.store import restore
from tests.simulation import daemon as shell


@dataclass(frozen=True)
class Mutant:
    """One defect: a function, text of its source, and what stands there instead."""

    of: Callable[..., Any]
    """The function, or the method as its class has it."""
    old: str
    new: str
    steps: int = 400
    """With faults, in each seed."""


MUTANTS: dict[str, Mutant] = {
    # The daemon's order of things
    "reply-before-commit": Mutant(
        shell.DaemonHost._carry_out,
        "        if self._crashes():\n",
        (
            "        from coalloc.core.base.effects import Reply\n"
            "        for reply in effects:\n"
            "            if isinstance(reply, Reply):\n"
            "                self.answers.append((reply.origin, reply.answer))\n"
            "        if self._crashes():\n"
        ),
    ),
    "send-before-commit": Mutant(
        shell.DaemonHost._carry_out,
        "        if self._crashes():\n",
        (
            "        from coalloc.core.base.effects import SendOrder\n"
            "        self._speak([e for e in effects if isinstance(e, SendOrder)], now)\n"
            "        if self._crashes():\n"
        ),
    ),
    # Starting together, once
    "start-before-all-ready": Mutant(
        starting._advance,
        "all(s is PartState.READY for s in states)",
        "any(s is PartState.READY for s in states)",
    ),
    "start-not-recorded": Mutant(
        starting._advance,
        "deadline=None)\n            state.put(record)",
        "deadline=None)\n            state.index(record)",
    ),
    "start-sent-to-one-part-only": Mutant(
        starting._advance, "for part in record.parts:\n", "for part in record.parts[:1]:\n"
    ),
    "ended-jobs-start-again": Mutant(
        starting._advance, "if record.cancelled_by or started:", "if record.cancelled_by:"
    ),
    "ended-with-its-first-part": Mutant(
        starting._advance,
        "elif all(s in PART_ENDED for s in states):",
        "elif any(s in PART_ENDED for s in states):",
    ),
    # Members taken ahead
    "pack-given-back-after-its-start": Mutant(
        requeue.settle_packs, "state is JobState.PREPARING", "started is None"
    ),
    "pack-holds-no-slot": Mutant(packs.hand_on, "{} if record is holder else ", ""),
    # Claims that wait, and how parts meet
    "arranged-before-all-are-granted": Mutant(
        negotiating.went_on,
        "if all(p.granted is not None for p in record.parts):",
        "if any(p.granted is not None for p in record.parts):",
    ),
    "arranged-for-one-part-only": Mutant(
        negotiating._arranged,
        "    for part in record.parts:\n",
        "    for part in record.parts[:1]:\n",
    ),
    "granted-nodes-not-followed": Mutant(
        starting.reported, "nodes = report.nodes or part.nodes", "nodes = part.nodes"
    ),
    "idle-nodes-held-for-ever": Mutant(negotiating._deadline, "if held <= 0.0:", "if True:"),
    "claims-that-wait-take-no-link": Mutant(
        queueing.queue_up, "misfit_of_links(", "bool(by) and not misfit_of_links("
    ),
    "put-off-for-ever": Mutant(negotiating.hasten, "    put_off = [", "    put_off = [] and ["),
    "tasks-take-no-turn": Mutant(
        queueing._later, "placement.chunks is None", "placement.task is None"
    ),
    "pieces-take-no-turn": Mutant(queueing._send_pieces, "if is_crowded(state, name)", "if False"),
    # Siblings, of which one runs
    "confirmed-before-the-commit": Mutant(
        executor.ExecutorCore._news,
        "        self.state.parts[key] = report\n",
        (
            "        self.state.parts[key] = report\n"
            "        if report.state is PartState.READY and report.nodes:\n"
            "            self._out.append(StartPart(key=key))\n"
        ),
    ),
    "confirmed-twice": Mutant(
        siblings._chosen,
        '        abort_parts(state, record.alone(part), f"granted in {winner.cluster}")\n',
        (
            "        from coalloc.core.base.messages import Start\n"
            "        state.send(part.cluster, Start(job=record.id, attempt=record.attempt))\n"
        ),
    ),
    "losers-not-withdrawn": Mutant(
        siblings._chosen,
        'abort_parts(state, record.alone(part), f"granted in {winner.cluster}")',
        "pass",
    ),
    "late-grants-accepted": Mutant(
        starting._answer_stranger,
        "(not record.is_placed or report.state in CLAIMED)",
        "not record.is_placed",
        steps=1000,
    ),
    "chosen-before-all-were-heard-of": Mutant(
        siblings.settled, " and not state.presence.unreconciled", "", steps=2000
    ),
    "siblings-counted-apart": Mutant(
        limits.LimitBook._count,
        "procs = record.placed_slots",
        "procs = sum(sum(part.held.values()) for part in record.parts)",
    ),
    # Expected starts
    "expected-starts-forgotten-by-a-restart": Mutant(
        coordinator.Coordinator.__init__,
        "            learning=past.learning,\n",
        "            learning=past.learning.promises.clear() or past.learning,\n",
    ),
    "start-errors-forgotten-by-a-restart": Mutant(
        coordinator.Coordinator.__init__,
        "            learning=past.learning,\n",
        "            learning=Learning(promises=past.learning.promises),\n",
    ),
    # Fencing
    "no-fencing-by-attempt": Mutant(starting._part, "record.attempt != report.attempt", "False"),
    "attempt-not-counted": Mutant(
        placing.place, "attempt=max(record.attempt, record.reserved) + 1", "attempt=1"
    ),
    "old-epochs-accepted": Mutant(
        executor.ExecutorCore._ordered,
        "not state.welcomed or numbered.epoch != state.epoch",
        "not state.welcomed",
    ),
    "orders-carried-out-again": Mutant(
        executor.ExecutorCore._ordered, "numbered.seq <= state.last_seq", "False"
    ),
    "gaps-ignored": Mutant(
        executor.ExecutorCore._ordered, "numbered.seq > state.last_seq + 1", "False"
    ),
    "written-before-carried-out": Mutant(
        executor_turn.carry_out,
        "    while waiting:\n",
        "    _is_saved(core.progress(), hands)\n    while waiting:\n",
        steps=3000,
    ),
    "lease-ignored": Mutant(
        executor.ExecutorCore._ticked, "now - state.last_heard > state.lease_s:", "False:"
    ),
    # Launchers and disks that fail
    "failures-cost-the-rest-of-a-turn": Mutant(
        executor_turn._performed,
        "        events = [EffectFailed",
        "        return []\n        events = [EffectFailed",
    ),
    "failed-starts-left": Mutant(
        executor.ExecutorCore._failed,
        "        match effect:\n",
        "        if isinstance(effect, StartPart):\n            return\n        match effect:\n",
    ),
    "failed-claims-not-given-up": Mutant(
        executor.ExecutorCore._failed,
        '                self._out.append(EndPart(key=order.key, reason="its claim failed"))\n',
        "",
    ),
    # What survives a restart
    "outbox-forgotten": Mutant(
        outbox.Delivery.restore,
        "self._boxes[cluster] = Outbox(orders=dict(kept), sent=min(kept, default=1) - 1)",
        "pass",
    ),
    "numbers-not-saved": Mutant(
        state.State.send, "self.out.append(SaveMeta(", "(lambda effect: None)(SaveMeta("
    ),
    "token-not-saved": Mutant(
        queue.numbered, "state.out.append(SaveToken(", "(lambda effect: None)(SaveToken("
    ),
    "what-follows-of-an-array-not-saved": Mutant(
        arrays._make, "    state.put(replace(whole, rest", "    state.index(replace(whole, rest"
    ),
    "unwritten-arrays-acknowledged": Mutant(
        coordinator.Coordinator._take_back, 'job.partition("_")[0]', "job"
    ),
    "unwritten-submits-kept": Mutant(
        coordinator.Coordinator._take_back, "state.remove(job)", "pass"
    ),
    # Executors and the daemon agree in the end
    "strangers-not-answered": Mutant(
        starting._answer_stranger, '    """A part', '    return\n    """A part'
    ),
    # Nodes and links
    "plans-not-checked-again": Mutant(
        occupation.misfit, '    """Reason', '    return ""\n    """Reason'
    ),
    "links-not-counted": Mutant(
        occupation.loads_of, '    """Link load', '    return {}\n    """Link load'
    ),
    # Order among jobs, and time
    "dependencies-ignored": Mutant(
        dependencies.resolved, "common += ((kind, member) for member in members)", "pass"
    ),
    "tasks-before-their-parents": Mutant(
        composites.WorkflowState.is_ready, "and not self.unmet[task]", ""
    ),
    "chunks-given-twice": Mutant(
        composites.ChunkPool.take,
        "self.given = max(self.given, record.chunk_first + record.chunks)",
        "self.given = max(self.given, record.chunk_first)",
    ),
    "chunks-left-behind": Mutant(placing._piece, "    if rest:\n", "    if False:\n"),
    "failures-not-counted": Mutant(
        workflows.tries_again, "failures = record.failures + 1", "failures = record.failures"
    ),
    "guests-taken-twice": Mutant(
        native_jobs._queue,
        "    record = JobRecord(",
        '    state.out[:] = [e for e in state.out if "token" not in e.__struct_fields__]\n'
        "    record = JobRecord(",
    ),
    # Executors that are not the one before
    "orders-of-the-former-carried-out-by-the-next": Mutant(
        presence.taken_over, "    forget_orders(state, hello.cluster)\n", "", steps=1000
    ),
    "identity-not-saved": Mutant(
        presence.taken_over, "    state.out.append(SaveMeta(", "    (lambda effect: None)(SaveMeta("
    ),
    # A store that is an older copy of itself
    "restored-under-its-old-epoch": Mutant(
        restore.renumbered,
        'epoch = max(int(now), high.get("epoch", 0) + 1)',
        'epoch = own.get("epoch", 0)',
        steps=800,
    ),
    "restored-without-asking-executors": Mutant(restore.renumbered, '] = "1"', '] = ""', steps=800),
    "restored-without-asking-for-starts": Mutant(
        restore.renumbered, "RESTORED: str(epoch)", 'RESTORED: ""', steps=800
    ),
    "restored-with-numbers-used-again": Mutant(
        restore.renumbered, "last_job) + NUMBERS_AHEAD)", "last_job))", steps=800
    ),
    "restored-while-being-prepared": Mutant(
        restore.unprepared,
        "    if record.state is not",
        "    if True or record.state is not",
        steps=800,
    ),
    "overtaken-jobs-not-held": Mutant(
        after_restore._hold,
        "state=JobState.HELD, attempt=attempt, ",
        "attempt=attempt, ",
        steps=800,
    ),
    "claims-of-nobody-kept": Mutant(
        after_restore._is_unknown,
        '    """A part of',
        '    return False\n    """A part of',
        steps=600,
    ),
    # Limits, reservations, changes and usage
    "limits-not-checked-again": Mutant(
        limits.holds,
        "why = book.why_not(record, *start_of(state, record, placement))",
        'why = ""',
        steps=600,
    ),
    "reserved-nodes-given-to-others": Mutant(
        turn.StartRule.obstacle,
        "if not why and is_kept_from(",
        "if False and is_kept_from(",
        steps=800,
    ),
    "changes-not-saved": Mutant(
        updating.update, "state.put(record)", "state.index(record)", steps=800
    ),
    "usage-not-saved": Mutant(accounting.charge, "state.out.append(saved)", "pass"),
    "priorities-not-saved": Mutant(
        queue.set_priority,
        "state.put(replace(record, priority=command.priority))",
        "state.index(replace(record, priority=command.priority))",
        steps=800,
    ),
    # Shapes
    "slots-counted-as-processes": Mutant(
        occupation.slots_on, "if job.shape == ONE_SLOT:", "if job.shape is not None:"
    ),
    "shapes-sent-to-older-executors": Mutant(
        eligibility.is_older, "return job.shape", "return False and job.shape", steps=800
    ),
    # Throttles of arrays, and deadlines
    "throttles-ignored": Mutant(
        limits.LimitBook._scopes, "if record.throttle and record.array:", "if False:"
    ),
    "throttles-of-waiting-members-only": Mutant(
        updating.update, "            if record.is_placed:\n", "            if False:\n"
    ),
    "started-too-late": Mutant(
        deadlines.misses, "    limit = record", "    return False\n    limit = record"
    ),
    "late-jobs-wait-for-ever": Mutant(
        deadlines._end, "    end_waiting(state, record, now,", "    (state, record, now,"
    ),
    "deadlines-forgotten-by-a-restart": Mutant(
        state.State.index_all,
        "            self.index(record)\n",
        "            self.index(record)\n            self.deadlines.forget(record.id)\n",
    ),
    "after-before-the-start": Mutant(
        dependencies.is_open,
        "needed.state is JobState.RUNNING",
        "needed.state is not JobState.HELD",
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
