"""Runs of open streams in one or two arms side by side, and what came of each job."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.slurm.open_jobs import QOS, SLOTS, Item
from tests.slurm.open_stream import LOOK_S, Arm, CoallocArm, Row, Seen, feed, marks_in, shapes
from tests.testbeds.accounts import accounts
from tests.testbeds.slurm import SlurmTestbed, bed

ACCOUNTS = (
    ("account", "phys"),
    ("qos", "few", "MaxJobsPerUser=2"),
    ("qos", "small", "GrpTRES=cpu=4"),
)
ROUNDED_S = 0.5
"""Mean of what Slurm's whole seconds leave out."""


@contextmanager
def arms(
    names: Sequence[str],
    *,
    policy: str = "plain",
    accounting: bool = False,
    given: Any = None,
    as_root: bool = False,
) -> Iterator[list[Arm]]:
    """The pairs of clusters with their users; needs root.

    Parameters
    ----------
    names : sequence of str
        ``coalloc``, ``plain`` or both.
    accounting : bool
        Whether there are associations and the QOS of `QOS`.
    given : mapping
        Settings of each cluster.
    as_root : bool
        Whether our jobs are root's.
    """
    with ExitStack() as stack:
        ann, bob = stack.enter_context(accounts("ann", "bob"))
        ours = None if as_root else ann
        made: list[Arm] = []
        for name in names:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="co-")))
            root.chmod(0o755)
            running = stack.enter_context(bed(*shapes(), accounting=accounting))
            if accounting:
                _associate(running, ann.pw_name, bob.pw_name)
            if name == "plain":
                made.append(Arm(running, root, ours, bob))
            else:
                arm = CoallocArm(running, root, ours, bob, policy=policy, given=given)
                made.append(stack.enter_context(arm))
        yield made


def _associate(running: SlurmTestbed, *users: str) -> None:
    qos = ",".join(("normal", *QOS))
    for words in (*ACCOUNTS, *(("user", user, "account=phys", f"qos={qos}") for user in users)):
        next(iter(running)).run("sacctmgr", "-i", "add", *words)


class Watch:
    """Load average, and the longest time for which this process was not run."""

    def __init__(self) -> None:
        self.loads: list[float] = []
        self.pause_s = 0.0

    def sleep(self, seconds: float) -> None:
        """Wait, and note how much longer it took."""
        began = time.monotonic()
        time.sleep(seconds)
        self.pause_s = max(self.pause_s, time.monotonic() - began - seconds)
        self.loads.append(os.getloadavg()[0])


def drive(
    running: Sequence[Arm], items: Sequence[Item], drain_s: float, turn: Any = lambda: True
) -> Watch:
    """Submit everything in every arm, and see it end, or the limit pass.

    Parameters
    ----------
    drain_s : float
        After the last submission, until what has not started is given up.
    turn : callable
        Called now and then; whether it has done all that it has to do.
    """
    watch, began = Watch(), time.monotonic() + LOOK_S
    span = max(item.at for item in items)
    threads = []
    for arm in running:
        arm.forget_rpcs()
        arm.began = time.time() + LOOK_S
        threads += feed(arm, items, began)
    try:
        while any(arm.took_s is None for arm in running):
            watch.sleep(LOOK_S)
            is_over = turn()
            now = time.monotonic() - began
            for arm in running:
                _look(arm, items, now, is_fed=now > span, is_over=is_over)
            if now > span + drain_s:
                break
    finally:
        for arm in running:
            arm.over.set()
        for thread in threads:
            thread.join()
    for arm in running:
        arm.look(now=True)
    return watch


def _look(arm: Arm, items: Sequence[Item], now: float, *, is_fed: bool, is_over: bool) -> None:
    if arm.error is not None:
        raise arm.error
    arm.look()
    if is_fed and not arm.rpcs_a_minute:
        arm.fed_at = time.time()
        arm.rpcs_a_minute = {
            cluster: {name: round(60.0 * count / now, 1) for name, count in counts.items()}
            for cluster, counts in arm.rpcs().items()
        }
    if is_over and arm.took_s is None and arm.is_done(items):
        arm.took_s = now


class Delays:
    """How long a local job was first in its queue while so many slots as it needs were idle.

    Where nothing else keeps them idle it is a share that is kept for us. Slurm itself takes some
    seconds of it.
    """

    def __init__(self, arm: Arm) -> None:
        self._arm, self._at = arm, time.monotonic()
        self.by_job: dict[str, float] = {}

    def turn(self) -> bool:
        """Look once; there is nothing else to do."""
        now = time.monotonic()
        passed, self._at = now - self._at, now
        for cluster, slots in SLOTS.items():
            rows = self._arm.rows_now(cluster)
            waiting = [row for row in rows if row.state == "PENDING"]
            idle = slots - sum(row.slots for row in rows if row.state != "PENDING")
            first = min(waiting, key=lambda row: int(row.number), default=None)
            if first and first.user == self._arm.local.pw_name and first.slots <= idle:
                self.by_job[first.name] = self.by_job.get(first.name, 0.0) + passed
        return True


def told(arm: Arm, items: Sequence[Item]) -> list[dict[str, Any]]:
    """One object for each job: what was asked, how long it waited, what it held."""
    marks = marks_in(arm.marks)
    states = arm.states() if isinstance(arm, CoallocArm) else {}
    rows = _rows_of(arm)
    found = []
    for item in items:
        seen = marks.get(item.name, Seen())
        state = states.get(item.name, {})
        claims = rows.get(item.name, [])
        found.append(
            {
                "name": item.name,
                "kind": item.kind,
                "width": item.width,
                "run_s": item.run_s,
                "at": round(item.at, 2),
                "wait_s": _wait_s(arm, item, seen),
                "first_at": None if seen.first is None else round(seen.first - arm.began, 2),
                "used": round(_used(item, seen), 2),
                "held_before": round(sum(_before_s(claim, seen) for claim in claims), 2),
                "held": round(sum(_held(claim) for claim in claims), 2),
                "clusters": sorted({there for each in seen.where.values() for there, _ in each}),
                "job": state.get("id", ""),
                "state": state.get("state", ""),
                "reason": state.get("reason", ""),
                "detail": state.get("detail", ""),
                "claims": [
                    {
                        "cluster": claim.cluster,
                        "number": claim.number,
                        "attempt": claim.attempt,
                        "state": claim.state,
                        "submitted": _at(arm, claim.submitted),
                        "began": _at(arm, claim.began),
                        "ended": _at(arm, claim.ended),
                        "slots": claim.slots,
                        "nodes": claim.nodes,
                    }
                    for claim in sorted(claims, key=lambda row: row.submitted)
                ],
            }
        )
    return found


def _at(arm: Arm, when: float | None) -> float | None:
    return None if when is None else round(when - arm.began, 1)


def _rows_of(arm: Arm) -> dict[str, list[Row]]:
    """What Slurm had of each job, by its name."""
    names = {job: name for name, job in arm.jobs.items()}
    found: dict[str, list[Row]] = {}
    for row in arm.rows.values():
        found.setdefault(names.get(row.job, row.name), []).append(row)
    return found


def _wait_s(arm: Arm, item: Item, seen: Seen) -> float | None:
    """From the submission to the first line; of two unrelated jobs the later one's."""
    firsts = [times[0] for times in seen.began.values()]
    is_pair = arm.title == "plain" and len(item.clusters) > 1
    if len(firsts) < (2 if is_pair else 1):
        return None
    first = max(firsts) if is_pair else min(firsts)
    return round(first - arm.submitted[item.name], 2)


def _used(item: Item, seen: Seen) -> float:
    """Slot-seconds that its processes ran."""
    return item.width * seen.used_s / len(seen.ended) if seen.ended else 0.0


def _held(claim: Row) -> float:
    """Slot-seconds that Slurm gave to a claim."""
    if claim.began is None or claim.ended is None:
        return 0.0
    return claim.slots * (claim.ended - claim.began)


def _before_s(claim: Row, seen: Seen) -> float:
    """Slot-seconds of a claim before the job's first process there, or of one that had none."""
    if claim.began is None or claim.ended is None:
        return 0.0
    firsts = [
        seen.began[key][number]
        for key, places in seen.where.items()
        for number, (cluster, _) in enumerate(places)
        if cluster == claim.cluster
        and claim.began - 1.0 <= seen.began[key][number] <= claim.ended + 2.0
    ]
    if not firsts:
        return _held(claim)
    return claim.slots * (min(firsts) - claim.began - ROUNDED_S)


def never(jobs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the jobs that did not start."""
    return [job for job in jobs if job["wait_s"] is None]
