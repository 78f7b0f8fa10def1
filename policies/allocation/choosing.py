"""One job at a time on what is still free: the greedy step that all allocation policies share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
