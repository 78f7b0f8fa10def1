"""Package selection (PAS): which jobs start now.

Jobs are taken in arrival order while they fit beside those before them; the first that does not
ends the selection, so that no job overtakes (``select=arrival``). ``skip`` goes on with the later
ones, ``largest`` goes by falling number of processes and skips too. Jobs passed over at least
``guard_after`` times come first, and one of them that does not fit ends the selection.

Deviations
----------
The paper that introduced PAS is cited by the OAS papers only as one that selects the set of jobs
that fits; the rules above are ours.

References
----------
Blanco, Lerida, Guirado, "Multiple job co-allocation strategy for heterogeneous multi-cluster
systems based on linear programming", Journal of Supercomputing 58(3), 2011.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coalloc.model.plan import Deferred, Reason
from coalloc.policies.allocation.choosing import Chooser, extend
from coalloc.policies.allocation.placing import Allocation
from coalloc.policies.allocation.scene import Scene

Prove = Callable[[Allocation, int], Allocation | None]
"""Rearranges an allocation so that one more job fits, or says with None that it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Jobs that start now, a first allocation of them, and the deferred ones."""

    allocation: Allocation
    deferred: tuple[Deferred, ...]


def order_of(scene: Scene) -> list[int]:
    """Candidates in the order in which they are tried."""
    numbers = list(range(len(scene.candidates)))
    if scene.options.get("select") == "largest":
        numbers.sort(key=lambda n: -scene.candidates[n].procs)
    guarded = [n for n in numbers if _is_guarded(scene, n)]
    return guarded + [n for n in numbers if not _is_guarded(scene, n)]


def select(scene: Scene, choose: Chooser, prove: Prove | None = None) -> Selection:
    """Take jobs while they fit.

    `choose`: the quick way to add a job to an allocation.
    `prove`: the thorough way, asked where the quick one finds none though there are slots enough.
    """
    skips = scene.options.get("select", "arrival") != "arrival"
    allocation, deferred, stopper = Allocation(), list[Deferred](), ""
    left = sum(one.capacity for one in scene.classes)
    for number in order_of(scene):
        job = scene.candidates[number]
        if stopper:
            what = f"comes after job {stopper}, which does not fit now"
            deferred.append(Deferred(job=job.id, reason=Reason.NOT_SELECTED, detail=what))
            continue
        longer = None
        if job.procs <= left:
            longer = extend(scene, allocation, number, choose)
            if longer is None and prove is not None and sum(job.room.values()) >= job.procs:
                longer = prove(allocation, number)
        if longer is not None:
            allocation = longer
            left -= job.procs
            continue
        deferred.append(
            Deferred(job=job.id, reason=Reason.INSUFFICIENT, detail=_why(scene, number, left))
        )
        if not skips or _is_guarded(scene, number):
            stopper = job.id
    return Selection(allocation=allocation, deferred=tuple(deferred))


def _why(scene: Scene, number: int, left: int) -> str:
    job = scene.candidates[number]
    if job.procs > left:
        return f"needs {job.procs} processes; {left} slots are free beside the jobs before it"
    able = sum(job.room.values())
    if job.procs > able:
        return f"needs {job.procs} processes; {able} fit on the nodes that are free for it"
    return f"finds no split of {job.procs} processes that nodes and links allow now"


def _is_guarded(scene: Scene, number: int) -> bool:
    after = scene.options.get("guard_after") or 0
    return 0 < after <= scene.candidates[number].item.job.passed_over
