"""An administrator at work in running streams, and what each act must lead to.

The acts are drawn at random among those that some job or node allows at the moment. They are judged
by the marks of the jobs' processes, not by what the daemon says of them; only how soon it says so
is taken from there. A job is the target of one act at most.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from coalloc.adapters.runner.command import BatchError, CommandRefusedError, UnreachableError
from tests.slurm.open_jobs import Item, is_long
from tests.slurm.open_stream import CoallocArm, Row, Seen, keys_of, marks_in, not_once
from tests.support.live_site import ENDED

SOON_S = 4.0
"""For a reading and an order, on a crowded machine; wall-clock seconds."""
EXTENDED_MIN = 3
TRIED = 5
"""Kinds of acts that are tried at one time, until one finds a job or a node."""


@dataclass(slots=True, kw_only=True)
class Act:
    """Something the administrator, or the owner of a job, did in Slurm.

    Attributes
    ----------
    target : str
        Name of a job; of others a node, or nothing.
    at, done : float
        Before and after the command; wall-clock seconds.
    undone : float
        When it was taken back; 0: it was not.
    told_s : float
        Until the daemon said so; -1: it has not, or it need not.
    """

    kind: str
    cluster: str
    target: str
    at: float
    done: float
    undone: float = 0.0
    told_s: float = -1.0


# -- judgements: what is wrong with a job after an act on it; empty where nothing is -------------


def _begun(seen: Seen, after: float, before: float = float("inf"), cluster: str = "") -> bool:
    """Whether a process began in a time, in one cluster or anywhere."""
    return any(
        after < when < before and (not cluster or place[0] == cluster)
        for key, times in seen.began.items()
        for when, place in zip(times, seen.where[key], strict=True)
    )


def cancelled(act: Act, item: Item, seen: Seen, state: str, keys: set[str]) -> str:
    """A waiting job's claim was cancelled by somebody else: it runs elsewhere or not at all."""
    if _begun(seen, act.done + SOON_S, cluster=act.cluster):
        return "ran where it had been cancelled"
    if state == "completed":
        return not_once(seen, keys)
    if state == "cancelled" and (item.is_wide or _begun(seen, 0.0, act.done + SOON_S)):
        return ""
    return f"ended as {state}"


def cancelled_by_owner(act: Act, item: Item, seen: Seen, state: str, keys: set[str]) -> str:
    """The owner cancelled a claim that waited: the job is cancelled."""
    if _begun(seen, act.done + SOON_S):
        return "ran after its owner had cancelled it"
    if state == "completed" and _begun(seen, 0.0, act.done + SOON_S):
        return not_once(seen, keys)
    return "" if state == "cancelled" else f"ended as {state}"


def ended(act: Act, item: Item, seen: Seen, state: str, keys: set[str]) -> str:
    """A part that ran was cancelled: the job ends, and is not run again."""
    if _begun(seen, act.done + SOON_S):
        return "ran again"
    if state == "completed" and max(t for times in seen.ended.values() for t in times) < (
        act.done + SOON_S
    ):
        return not_once(seen, keys)
    return "" if state == "cancelled" else f"ended as {state}"


def held(act: Act, item: Item, seen: Seen, state: str, keys: set[str]) -> str:
    """A claim was held by somebody else, and released: it waited or ran elsewhere meanwhile."""
    if _begun(seen, act.done + SOON_S, act.undone, act.cluster):
        return "ran where it was held"
    return not_once(seen, keys) if state == "completed" else f"ended as {state}"


def held_by_owner(act: Act, item: Item, seen: Seen, state: str, keys: set[str]) -> str:
    """The owner held a claim, and released the job: it ran nowhere meanwhile."""
    if _begun(seen, act.done + SOON_S, act.undone):
        return "ran while its owner held it"
    return not_once(seen, keys) if state == "completed" else f"ended as {state}"


def extended(act: Act, item: Item, seen: Seen, state: str, keys: set[str]) -> str:
    """A limit was made longer: the job completes, where it ran there and was not about to end."""
    late = seen.first is None or seen.first + 60.0 * item.limit_min - SOON_S < act.done
    there = any(place[0] == act.cluster for places in seen.where.values() for place in places)
    if state == "completed":
        return not_once(seen, keys)
    if state == "timeout" and (late or not there):
        return ""
    return f"ended as {state}"


def local_cancelled(act: Act, item: Item, seen: Seen, state: str, keys: set[str]) -> str:
    """A waiting job that is not ours was cancelled."""
    return "ran after it had been cancelled" if _begun(seen, act.done + SOON_S) else ""


def local_held(act: Act, item: Item, seen: Seen, state: str, keys: set[str]) -> str:
    """A waiting job that is not ours was held, and released."""
    if _begun(seen, act.done + SOON_S, act.undone):
        return "ran while it was held"
    return not_once(seen, keys)


def unharmed(act: Act, item: Item, seen: Seen, state: str, keys: set[str]) -> str:
    """Nothing was done to a job that would change what becomes of it."""
    return not_once(seen, keys)


JUDGES: dict[str, Callable[[Act, Item, Seen, str, set[str]], str]] = {
    "cancel": cancelled,
    "cancel_by_owner": cancelled_by_owner,
    "cancel_running": ended,
    "hold": held,
    "hold_by_owner": held_by_owner,
    "extend": extended,
    "cancel_local": local_cancelled,
    "hold_local": local_held,
    "extend_local": unharmed,
}


def judged(
    items: Sequence[Item],
    acts: Sequence[Act],
    marks: dict[str, Seen],
    states: dict[str, str],
    keys: Callable[[Item], set[str]],
) -> list[str]:
    """What went otherwise than it had to, a line for each job."""
    by_target = {act.target: act for act in acts if act.kind in JUDGES}
    found = []
    for item in items:
        seen, act = marks.get(item.name, Seen()), by_target.get(item.name)
        state = states.get(item.name, "") if item.is_ours else ""
        twice = [key for key, times in seen.began.items() if len(times) > 1]
        if twice:
            text = f"began twice: {twice}"
        elif act is not None:
            text = JUDGES[act.kind](act, item, seen, state, keys(item))
        elif is_long(item):
            text = "" if state == "timeout" else f"ended as {state}"
        else:
            text = not_once(seen, keys(item))
        if text:
            what = "" if act is None else f"{act.kind} in {act.cluster} at {act.done:.1f}: "
            found.append(f"{item.name} ({item.kind}, {item.width} wide), {what}{text}")
    return found


class Administrator:
    """Root of both clusters, and the owner of our jobs where he uses Slurm himself.

    Parameters
    ----------
    count : int
        Acts.
    span_s : float
        In which they are done.
    """

    def __init__(
        self, arm: CoallocArm, items: Sequence[Item], count: int, *, seed: int, span_s: float
    ) -> None:
        self.arm, self.acts = arm, list[Act]()
        self._items = {item.name: item for item in items}
        self._draw = random.Random(seed)
        kinds, weights = list(self.KINDS), [weight for weight, _ in self.KINDS.values()]
        self._left = [*kinds, *self._draw.choices(kinds, weights, k=count)][:count]
        self._draw.shuffle(self._left)
        self._every_s = span_s / count
        self._next = time.monotonic() + 1.0
        self._end = time.monotonic() + span_s * 1.5
        self._undo: list[tuple[float, Act, Callable[[], None]]] = []

    def turn(self) -> bool:
        """Do what is due; whether all is done, and undone."""
        now = time.monotonic()
        for entry in [entry for entry in self._undo if entry[0] <= now]:
            self._undo.remove(entry)
            try:
                entry[2]()
            except UnreachableError:
                self._undo.append((now + 1.0, *entry[1:]))
                continue
            except CommandRefusedError:
                pass  # that node has been resumed, say
            entry[1].undone = time.time()
        while self._left and now >= self._next and now < self._end:
            self._next += self._every_s
            for kind in self._left[:TRIED]:
                self._left.remove(kind)
                if self._act(kind):
                    break
                self._left.append(kind)  # there is nobody to do it to at the moment
        self._listen()
        return (not self._left or now >= self._end) and not self._undo

    def judge(self) -> list[str]:
        """What went otherwise than it had to."""
        states = {name: str(row["state"]) for name, row in self.arm.states().items()}
        marks, items = marks_in(self.arm.marks), list(self._items.values())
        return judged(items, self.acts, marks, states, lambda item: keys_of(self.arm, item))

    def told(self) -> list[str]:
        """Acts by kind, and how soon the daemon said so of those of which it must."""
        counts = Counter(act.kind for act in self.acts)
        lines = [", ".join(f"{kind}: {count}" for kind, count in sorted(counts.items()))]
        for kind in self.TOLD:
            times = sorted(act.told_s for act in self.acts if act.kind == kind)
            known = [each for each in times if each >= 0.0]
            if known:
                late = f"median {known[len(known) // 2]:.1f} s, at most {known[-1]:.1f} s"
                lines.append(f"{kind} obeyed after {late}; never said: {len(times) - len(known)}")
        return lines

    TOLD = ("cancel", "cancel_by_owner", "cancel_running", "hold", "hold_by_owner", "extend")

    def _listen(self) -> None:
        """Note which acts the daemon shows."""
        for act in self.acts:
            if act.kind not in self.TOLD or act.told_s >= 0.0 or act.undone:
                continue
            if time.time() - act.done > 60.0:
                continue
            job = self.arm.site.job(self.arm.jobs[act.target])
            is_there = any(part["cluster"] == act.cluster for part in job["parts"])
            is_over = job["state"] in {*ENDED, "held"} or str(job["reason"]).startswith("held_by")
            elsewhere = act.kind in {"cancel", "hold"} and not is_there
            limits = [p.get("time_limit") for p in job["parts"] if p["cluster"] == act.cluster]
            is_longer = act.kind == "extend" and 60.0 * EXTENDED_MIN in (job["time_limit"], *limits)
            if is_longer or elsewhere or (is_over and act.kind != "extend"):
                act.told_s = time.time() - act.done

    def _act(self, kind: str) -> bool:
        """Do one thing; whether there was something to do it to."""
        for cluster in self._draw.sample(list(self.arm.bed.clusters), 2):
            act = Act(kind=kind, cluster=cluster, target="", at=time.time(), done=0.0)
            try:
                is_done = self.KINDS[kind][1](self, act)
            except BatchError:  # it has just ended, or is out of reach
                continue
            act.done = time.time()
            if is_done:
                self.acts.append(act)
                return True
        return False

    def _run(self, act: Act, name: str, *words: str, by_owner: bool = False) -> None:
        account = self.arm.ours if by_owner else None
        self.arm.bed[act.cluster].run(name, *words, account=account)

    def _later(self, act: Act, undo: Callable[[], None]) -> None:
        self._undo.append((time.monotonic() + self._draw.uniform(3.0, 8.0), act, undo))

    def _pick(self, act: Act, state: str, choose: Callable[[Item], bool]) -> Row | None:
        """A job in this state in the act's cluster that nothing was done to yet."""
        taken = {each.target for each in self.acts}
        names = {job: name for name, job in self.arm.jobs.items()}
        found = []
        for row in self.arm.rows_now(act.cluster):
            item = self._items.get(names.get(row.job, row.name))
            if item is not None and row.state == state and item.name not in taken and choose(item):
                found.append((item.name, row))
        if not found:
            return None
        act.target, chosen = self._draw.choice(found)
        return chosen

    def _cancel(self, act: Act) -> bool:
        row = self._pick(act, "PENDING", lambda item: item.is_ours and not is_long(item))
        if row is not None:
            self._run(act, "scancel", row.number, by_owner=act.kind == "cancel_by_owner")
        return row is not None

    def _cancel_running(self, act: Act) -> bool:
        begun = marks_in(self.arm.marks)
        row = self._pick(
            act, "RUNNING", lambda item: item.is_ours and not is_long(item) and item.name in begun
        )
        if row is not None:
            self._run(act, "scancel", row.number)
        return row is not None

    def _hold(self, act: Act) -> bool:
        row = self._pick(act, "PENDING", lambda item: item.is_ours and not is_long(item))
        if row is None:
            return False
        by_owner = act.kind == "hold_by_owner"
        self._run(act, "scontrol", "hold", row.number, by_owner=by_owner)

        def release() -> None:
            with contextlib.suppress(BatchError):
                self._run(act, "scontrol", "release", row.number, by_owner=by_owner)
            self.arm.site.ask("release", job=self.arm.jobs[act.target])

        self._later(act, release)
        return True

    def _extend(self, act: Act) -> bool:
        state = self._draw.choice(("PENDING", "RUNNING"))
        row = self._pick(act, state, is_long)
        if row is not None:
            words = (f"JobId={row.number}", f"TimeLimit={EXTENDED_MIN}")
            self._run(act, "scontrol", "update", *words)
        return row is not None

    def _local(self, act: Act) -> bool:
        row = self._pick(act, "PENDING", lambda item: not item.is_ours)
        if row is None:
            return False
        if act.kind == "cancel_local":
            self._run(act, "scancel", row.number)
        elif act.kind == "extend_local":
            self._run(act, "scontrol", "update", f"JobId={row.number}", "TimeLimit=5")
        else:
            self._run(act, "scontrol", "hold", row.number)
            self._later(act, lambda: self._run(act, "scontrol", "release", row.number))
        return True

    def _drain(self, act: Act) -> bool:
        act.target = node = self._draw.choice(self.arm.bed[act.cluster].node_names)
        name = f"NodeName={node}"
        self._run(act, "scontrol", "update", name, "State=DRAIN", "Reason=disk")
        self._later(act, lambda: self._run(act, "scontrol", "update", name, "State=RESUME"))
        return True

    def _close(self, act: Act) -> bool:
        self._run(act, "scontrol", "update", "PartitionName=main", "State=DOWN")
        words = ("scontrol", "update", "PartitionName=main", "State=UP")
        self._later(act, lambda: self._run(act, *words))
        return True

    def _maintain(self, act: Act) -> bool:
        node = self._draw.choice(self.arm.bed[act.cluster].node_names)
        act.target = name = f"maint{len(self.acts)}"
        words = ("StartTime=now", "Duration=10", f"Nodes={node}", "Users=root")
        flags = ("Flags=MAINT,IGNORE_JOBS",)
        self._run(
            act, "scontrol", "create", "reservation", f"ReservationName={name}", *words, *flags
        )
        self._later(act, lambda: self._run(act, "scontrol", "delete", f"ReservationName={name}"))
        return True

    def _restart(self, act: Act) -> bool:
        cluster = self.arm.bed[act.cluster]
        cluster.kill_controller(signal.SIGTERM)  # one that is killed forgets its last seconds
        cluster.start_controller()
        return True

    KINDS: ClassVar[dict[str, tuple[int, Callable[[Administrator, Act], bool]]]] = {
        "cancel": (14, _cancel),
        "cancel_by_owner": (6, _cancel),
        "cancel_running": (10, _cancel_running),
        "hold": (12, _hold),
        "hold_by_owner": (6, _hold),
        "extend": (12, _extend),
        "cancel_local": (8, _local),
        "hold_local": (8, _local),
        "extend_local": (4, _local),
        "drain": (8, _drain),
        "close": (4, _close),
        "maintain": (5, _maintain),
        "restart": (3, _restart),
    }
    """Weight of each act, and what does it."""


def summary(admin: Administrator) -> dict[str, Any]:
    """Its acts as values."""
    keys = ("kind", "cluster", "target", "at", "done", "undone", "told_s")
    return {"acts": [{key: getattr(act, key) for key in keys} for act in admin.acts]}
