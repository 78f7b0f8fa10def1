"""Resources and candidates of this instant: classes of free nodes, residual links, jobs.

All policies of this package plan for one instant, now. Nodes that are alike at this instant (same
cluster, power, features, memory, free slots and reservations) form a class, so that no model
grows with the number of equal nodes.

Deviations
----------
The MBPC paper knows rigid jobs on an idle platform. A moldable job counts as a rigid one of its
smallest allotment; workflows are deferred as unsupported; what waits for another job or for a
later time is deferred.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from typing import Any

from coalloc.model.jobs import WorkflowJob
from coalloc.model.plan import Deferred, Plan, Reason
from coalloc.model.snapshot import Snapshot
from coalloc.model.split import TOLERANCE
from coalloc.model.values import replace
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.holds import fitting
from coalloc.policies.kernel.instance.arrays import free_now
from coalloc.policies.kernel.instance.intake import Intake, read_queue
from coalloc.policies.kernel.instance.kinds import floored_power
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.one_pass import on_view


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    """Nodes that are alike now."""

    kind: int
    """Index into the intake's kinds."""
    cluster: int
    power: float
    """After rounding down by the option ``power_step``."""
    nodes: tuple[int, ...]
    """Indices into the intake's nodes."""
    slots: int
    """Free slots of each of them."""
    memory_mb: float
    """Free memory of each of them, MiB."""
    closes_at: tuple[tuple[int, float], ...]
    """Reservations that keep the nodes, with their starts, seconds."""

    @property
    def capacity(self) -> int:
        """Free slots of all nodes."""
        return self.slots * len(self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateJob:
    """A job that may start now."""

    item: Item
    procs: int
    """tau_j; of a moldable job, the smallest allotment."""
    scaled: float
    """Seconds that scale with the processing and with the communication slowdown."""
    fixed: float
    gbps: Fraction
    """Bandwidth of one process, Gbit/s, exactly as it is written in decimals."""
    splits: bool
    room: Mapping[int, int]
    """What each class takes if the job has it alone; classes that take none are left out."""

    @property
    def id(self) -> str:
        """The job's id."""
        return self.item.job.id

    @property
    def memory_mb(self) -> int:
        """MiB per process."""
        return self.item.job.memory_mb_per_proc

    def seconds(self, power: float, sc: float = 1.0) -> float:
        """Run time where `power` is that of the weakest node."""
        return min(self.scaled / power + self.fixed * sc, self.item.limit)

    def exceeds(self, power: float, sc: float) -> bool:
        """Whether it would run into its time limit."""
        return self.scaled / power + self.fixed * sc > self.item.limit


@dataclass(slots=True, kw_only=True)
class Scene:
    """One instant, ready for any allocation policy."""

    snapshot: Snapshot
    intake: Intake
    options: Mapping[str, Any]
    classes: list[NodeClass]
    capacity: list[Fraction | None]
    """Of each cluster's link, Gbit/s; None is unlimited."""
    loaded: list[Fraction]
    """Load of running work on each link, Gbit/s."""
    candidates: list[CandidateJob]
    waiting: list[Deferred]
    """What can never run, or not now whatever is free."""
    of_cluster: list[list[int]] = field(default_factory=list)

    @property
    def threshold(self) -> float:
        """Load of a link by its capacity, at most (SC); 1 forbids saturation."""
        return float(self.options.get("saturation_threshold", 1.0))

    def admits(self, candidate: CandidateJob, number: int, seconds: float) -> bool:
        """Whether a run of that length ends before the class is kept for others."""
        exempt = self.intake.groups[candidate.item.group].exempt
        end = self.snapshot.time + seconds
        return all(r in exempt or end <= at for r, at in self.classes[number].closes_at)

    def levels(self, candidate: CandidateJob) -> list[float]:
        """Powers of its classes from which on there are enough processes, rising."""
        powers = sorted({self.classes[c].power for c in candidate.room}, reverse=True)
        total, out = 0, []
        for power in powers:
            total += sum(n for c, n in candidate.room.items() if self.classes[c].power == power)
            if total >= candidate.procs:
                out.append(power)
        return out[::-1]

    def limit(self, cluster: int, threshold: float = 1.0) -> Fraction | None:
        """Load that candidates may put on a link, Gbit/s, with the tolerance for rounding."""
        capacity = self.capacity[cluster]
        if capacity is None:
            return None
        allowed = capacity * exact(threshold) * (1 + exact(TOLERANCE))
        return max(allowed - self.loaded[cluster], Fraction(0))

    def per_cluster(self, uses: Mapping[int, int]) -> dict[int, int]:
        """Processes per cluster of processes per class."""
        out: dict[int, int] = {}
        for c, count in uses.items():
            k = self.classes[c].cluster
            out[k] = out.get(k, 0) + count
        return out


def exact(value: float) -> Fraction:
    """The number that the shortest decimal form of a float names."""
    return Fraction(repr(float(value)))


def load(candidate: CandidateJob, inside: int) -> Fraction:
    """Equation (5): BW = PPBW * t * (n - t) / (n - 1), Gbit/s; 0 for one process."""
    return bandwidth(candidate.gbps if candidate.splits else Fraction(0), candidate.procs, inside)


def bandwidth(gbps: Fraction, procs: int, inside: int) -> Fraction:
    """PTBW * t * (tau - t) / (tau - 1), Gbit/s; 0 for one process."""
    if procs < 2:
        return Fraction(0)
    return gbps * inside * (procs - inside) / (procs - 1)


def on_scene(plan: Callable[[Scene, Budget, OnIncumbent | None], Plan]) -> SolveFunction:
    """The policy that plans with the scene of a snapshot; its options are the scene's."""
    return on_view(lambda problem, options, _: read_scene(problem, options), plan)


def read_scene(snapshot: Snapshot, options: Mapping[str, Any]) -> Scene:
    """See what is free now and who may use it."""
    intake = read_queue(_widened(snapshot, options.get("saturation_threshold", 1.0)), options)
    classes = _classes(intake, options.get("power_step", 0.0))
    loaded = [Fraction(0)] * len(snapshot.clusters)
    place = {cluster.name: k for k, cluster in enumerate(snapshot.clusters)}
    for hold in intake.holds.links:
        loaded[place[hold.cluster]] += exact(hold.gbps)
    scene = Scene(
        snapshot=snapshot,
        intake=intake,
        options=options,
        classes=classes,
        capacity=[None if c.link_gbps == inf else exact(c.link_gbps) for c in snapshot.clusters],
        loaded=loaded,
        candidates=[],
        waiting=list(intake.deferred),
        of_cluster=[
            [c for c, one in enumerate(classes) if one.cluster == k]
            for k in range(len(snapshot.clusters))
        ],
    )
    for item in intake.items:
        why = _not_now(scene, item)
        if why is None:
            scene.candidates.append(_candidate(scene, item))
        else:
            scene.waiting.append(item.deferred(*why))
    return scene


def _widened(snapshot: Snapshot, threshold: float) -> Snapshot:
    """The snapshot with what links may carry at most, so that no job is refused too early."""
    if threshold <= 1.0:
        return snapshot
    clusters = tuple(replace(c, link_gbps=c.link_gbps * threshold) for c in snapshot.clusters)
    return replace(snapshot, clusters=clusters)


def _classes(intake: Intake, step: float) -> list[NodeClass]:
    slots, memory = free_now(intake)
    shares_memory = any(item.job.memory_mb_per_proc > 0 for item in intake.items)
    groups: dict[Any, list[int]] = {}
    for n, node in enumerate(intake.nodes):
        if slots[n] <= 0:
            continue
        mixed = shares_memory and slots[n] > 1 and memory[n] < inf
        power = floored_power(node.power, step)
        key = (intake.node_kind[n], power, slots[n], memory[n], n if mixed else -1)
        groups.setdefault(key, []).append(n)
    out = []
    for (kind, power, count, free_mb, _), nodes in groups.items():
        out.append(
            NodeClass(
                kind=kind,
                cluster=intake.kinds[kind].cluster,
                power=power,
                nodes=tuple(nodes),
                slots=count,
                memory_mb=free_mb,
                closes_at=tuple(
                    (r, intake.reservations[r].start) for r in intake.kinds[kind].cover
                ),
            )
        )
    return out


def _not_now(scene: Scene, item: Item) -> tuple[Reason, str] | None:
    if isinstance(item.job, WorkflowJob):
        return Reason.UNSUPPORTED, "this policy plans no workflows"
    now = scene.snapshot.time
    if item.parents:
        parent = scene.intake.items[item.parents[0][0]]
        reason, early = Reason.DEPENDENCY, f"waits for job {parent.job.id}"
    elif item.job.earliest > now:
        reason, early = Reason.BEGIN_TIME, f"may not start for {item.job.earliest - now:.6g} s"
    elif item.release > now:
        reason, early = Reason.DEPENDENCY, f"waits {item.release - now:.6g} s for what runs"
    else:
        return None
    return reason, f"{early}; this policy plans starts now only"


def _candidate(scene: Scene, item: Item) -> CandidateJob:
    need = scene.intake.groups[item.group].need
    memory = item.job.memory_mb_per_proc
    procs, scaled, fixed, _ = item.modes[0]
    room = {}
    for c, one in enumerate(scene.classes):
        each = fitting(one.slots, one.memory_mb, memory)
        if need[one.kind] > 0 and each > 0:
            room[c] = min(each * len(one.nodes), procs)
    return CandidateJob(
        item=item,
        procs=procs,
        scaled=scaled,
        fixed=fixed,
        gbps=exact(item.proc_gbps),
        splits=item.splits,
        room=room,
    )
