"""One job at a time on what is still free, and package selection (PAS): which jobs start now.

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from coalloc.model.plan import Deferred, Reason
from coalloc.model.split import low_side, split
from coalloc.policies.allocation.placing import Allocation, Uses, is_allowed, link_totals
from coalloc.policies.allocation.scene import CandidateJob, Scene

Chooser = Callable[["Rest", CandidateJob], Uses | None]
"""Gives a job processes per class of what is left, or None where it finds no way."""


@dataclass(slots=True, kw_only=True)
class Rest:
    """Nodes and links that an allocation leaves free."""

    scene: Scene
    slots: list[int]
    """Per class."""
    memory_mb: list[float]
    """Per class."""
    links: list[float]
    """Gbit/s that each link may still carry; infinite where it has no limit."""

    def room(self, job: CandidateJob) -> dict[int, int]:
        """Processes of a job that each class still takes."""
        out = {}
        for c, most in job.room.items():
            count = min(most, self.slots[c])
            if job.memory_mb > 0 and self.scene.classes[c].slots > 1:
                count = int(min(count, self.memory_mb[c] // job.memory_mb))
            if count > 0:
                out[c] = count
        return out

    def low_sides(self, job: CandidateJob) -> list[int]:
        """See `coalloc.model.split`: w of each cluster's link."""
        if not job.splits:
            return [0] * len(self.links)
        return [low_side(job.procs, float(job.gbps), left) for left in self.links]


def rest_of(scene: Scene, allocation: Allocation) -> Rest:
    """Return what an allocation leaves free."""
    slots = [one.capacity for one in scene.classes]
    memory = [one.memory_mb * len(one.nodes) for one in scene.classes]
    for number, uses in zip(allocation.jobs, allocation.uses, strict=True):
        for c, count in uses.items():
            slots[c] -= count
            memory[c] -= count * scene.candidates[number].memory_mb
    links = []
    for k, total in enumerate(link_totals(scene, allocation)):
        limit = scene.limit(k)
        left = None if limit is None else limit - (total - scene.loaded[k])
        links.append(float("inf") if left is None else float(left))
    return Rest(scene=scene, slots=slots, memory_mb=memory, links=links)


def strongest(rest: Rest, job: CandidateJob) -> Uses | None:
    """End soonest: the highest level of power at which the job fits, on few clusters."""
    scene, room = rest.scene, rest.room(job)
    for power in reversed(scene.levels(job)):
        seconds = job.seconds(power)
        able = {
            c: n
            for c, n in room.items()
            if scene.classes[c].power >= power and scene.admits(job, c, seconds)
        }
        uses = spread(rest, able, split_of(rest, job, able))
        if uses is not None:
            return uses
    return None


def blind(rest: Rest, job: CandidateJob) -> Uses | None:
    """On few clusters with little traffic, whatever the power; nodes in snapshot order."""
    able = patient(rest, job)
    return spread(rest, able, split_of(rest, job, able), float)


def patient(rest: Rest, job: CandidateJob) -> dict[int, int]:
    """Return the classes that a job may use however weak its nodes turn out to be."""
    room = rest.room(job)
    weakest = min((rest.scene.classes[c].power for c in room), default=1.0)
    seconds = job.seconds(weakest)
    return {c: n for c, n in room.items() if rest.scene.admits(job, c, seconds)}


def split_of(rest: Rest, job: CandidateJob, room: Mapping[int, int]) -> list[int] | None:
    """Processes per cluster: fewest clusters, then least load on the links."""
    free = [0] * len(rest.links)
    for c, count in room.items():
        free[rest.scene.classes[c].cluster] += count
    if sum(free) < job.procs:
        return None
    return split(job.procs, free, rest.low_sides(job))


def spread(
    rest: Rest,
    room: Mapping[int, int],
    take: list[int] | None,
    rank: Callable[[int], float] | None = None,
) -> Uses | None:
    """Fill classes of each cluster, lowest rank (the weakest) first, until it has its share."""
    if take is None:
        return None
    uses: dict[int, int] = {}
    left = list(take)
    for c in sorted(room, key=rank or (lambda c: rest.scene.classes[c].power)):
        k = rest.scene.classes[c].cluster
        count = min(room[c], left[k])
        if count > 0:
            uses[c] = count
            left[k] -= count
    return uses if not any(left) else None


def extend(scene: Scene, allocation: Allocation, number: int, choose: Chooser) -> Allocation | None:
    """Add one job by a chooser; None where that breaks a rule or finds nothing."""
    uses = choose(rest_of(scene, allocation), scene.candidates[number])
    if uses is None:
        return None
    longer = allocation.with_job(number, uses)
    return longer if is_allowed(scene, longer, 1.0) else None


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
