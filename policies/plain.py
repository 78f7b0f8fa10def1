"""First come, first served, without compiler or arrays: what answers while those are not ready.

Jobs are taken in arrival order and placed if they can start now. The first that finds no room ends
the round, so that no job is overtaken: it and all later ones are deferred as not selected. What may
not start yet, or can never run, is passed by. The daemon uses it until its solver is warm, and as
the last fallback; there it deals the chunks of divisible jobs to the slots that are left, if no job
waits for them.

Notes
-----
For each power from the strongest on, the nodes of at least that power that stay free until the end
are counted per cluster; the first power at which the job fits ends it soonest. Cost: queued jobs
that start times nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

from coalloc.model.cost import base_time, link_loads, piece_time, run_time, task_time
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob
from coalloc.model.plan import Deferred, Objective, Placement, Plan, Reason, Status
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget, OnIncumbent, Solve
from coalloc.policies.kernel.intake import Intake, read_queue
from coalloc.policies.kernel.modes import Item
from coalloc.policies.kernel.split import TOLERANCE, low_side, split


def plain_fcfs(snapshot: Snapshot, *, pieces: bool = False) -> Plan:
    """Start in arrival order what can start now, up to the first job that cannot.

    Parameters
    ----------
    pieces : bool
        Start divisible jobs on what is left then, if no job was stopped.
    """
    intake = read_queue(snapshot, {})
    state = _Now(snapshot, intake)
    placements: list[Placement] = []
    deferred = list(intake.deferred)
    stopped = ""
    for item in intake.items:
        name = None if item.task is None else item.task.id
        early = intake.why_not_yet(item)
        if early is not None:
            deferred.append(Deferred(job=item.job.id, task=name, reason=early[0], detail=early[1]))
            continue
        placement = None if stopped else state.place(item)
        if placement is not None:
            placements.append(placement)
            continue
        detail = f"comes after job {stopped}" if stopped else "does not fit now"
        deferred.append(
            Deferred(job=item.job.id, task=name, reason=Reason.NOT_SELECTED, detail=detail)
        )
        stopped = stopped or item.job.id
    if pieces and not stopped:
        placements += state.pieces()
        placed = {placement.job for placement in placements}
        deferred = [entry for entry in deferred if entry.job not in placed]
    return Plan(
        policy="plain",
        status=Status.INFEASIBLE if intake.nothing_can_run else Status.HEURISTIC,
        objective=Objective(
            name="makespan",
            value=max((p.end for p in placements), default=snapshot.time) - snapshot.time,
            deferred=len({entry.job for entry in deferred}),
        ),
        placements=tuple(placements),
        deferred=tuple(deferred),
        stats={"work": len(placements), "seed": 0},
    )


class _Now:
    """What is free at the snapshot's time."""

    def __init__(self, snapshot: Snapshot, intake: Intake) -> None:
        self.snapshot = snapshot
        self.intake = intake
        self.clusters = {cluster.name: cluster for cluster in snapshot.clusters}
        self.order = list(self.clusters)
        place = {node.name: n for n, node in enumerate(intake.nodes)}
        self.free = [
            node.slots if intake.kinds[kind].usable and node.free_at <= snapshot.time else 0
            for node, kind in zip(intake.nodes, intake.node_kind, strict=True)
        ]
        self.residual = dict.fromkeys(self.clusters, 0.0)
        for name, cluster in self.clusters.items():
            self.residual[name] = cluster.link_gbps
        self.memory = [
            inf if node.memory_mb is None else float(node.memory_mb) for node in intake.nodes
        ]
        for hold in intake.holds.nodes:
            n = place[hold.node]
            self.free[n] = max(self.free[n] - hold.slots, 0)
            self.memory[n] -= hold.memory_mb
        for load in intake.holds.links:
            self.residual[load.cluster] -= load.gbps
        self.powers = sorted({node.power for node in intake.nodes}, reverse=True)

    def place(self, item: Item) -> Placement | None:
        """Start an item now if it fits; the mode and nodes that end first."""
        best: tuple[float, int, dict[int, int]] | None = None
        for mode in item.modes:
            found = self._fit(item, mode[0])
            if found is not None and (best is None or found[0] < best[0] - 1e-9):
                best = (found[0], mode[0], found[1])
        if best is None:
            return None
        end, _, nodes = best
        self._take(item, nodes)
        names = {self.intake.nodes[n].name: count for n, count in sorted(nodes.items())}
        task = None if item.task is None else item.task.id
        return Placement(job=item.job.id, task=task, start=self.snapshot.time, end=end, nodes=names)

    def pieces(self) -> list[Placement]:
        """All chunks of the divisible jobs that may start, dealt evenly to the slots left."""
        out: list[Placement] = []
        now = self.snapshot.time
        for job in self.snapshot.queue:
            if not isinstance(job, DivisibleJob) or job.held or job.after or job.earliest > now:
                continue
            groups = self._lanes(job)
            lanes = sum(sum(nodes.values()) for nodes in groups.values())
            each, left = -(-job.chunks // max(lanes, 1)), job.chunks
            for (_, power), nodes in groups.items():
                count = min(left, each * sum(nodes.values()))
                left -= count
                mine = self._first(nodes, -(-count // each))
                if not mine:
                    break
                end = now + piece_time(job.chunk_s, count, sum(mine.values()), power)
                names = {self.intake.nodes[n].name: procs for n, procs in mine.items()}
                out.append(Placement(job=job.id, start=now, end=end, nodes=names, chunks=count))
                for n, procs in mine.items():
                    self.free[n] -= procs
                    self.memory[n] -= job.memory_mb_per_proc * procs
        return out

    def _lanes(self, job: DivisibleJob) -> dict[tuple[int, float], dict[int, int]]:
        """Free slots that a divisible job may use, by cluster and power, the strongest first."""
        groups: dict[tuple[int, float], dict[int, int]] = {}
        wanted, memory = set(job.features), job.memory_mb_per_proc
        for n, free in enumerate(self.free):
            node, kind = self.intake.nodes[n], self.intake.kinds[self.intake.node_kind[n]]
            name = self.order[kind.cluster]
            allowed = job.clusters is None or name in job.clusters
            if not allowed or kind.cover or not wanted.issubset(kind.features):
                continue
            if memory > 0 and self.memory[n] != inf:
                free = min(free, int(self.memory[n] // memory))
            if free > 0:
                groups.setdefault((kind.cluster, node.power), {})[n] = free
        return dict(sorted(groups.items(), key=lambda group: -group[0][1]))

    def _first(self, nodes: Mapping[int, int], procs: int) -> dict[int, int]:
        """So many slots, in the order of the nodes."""
        out: dict[int, int] = {}
        for n, free in nodes.items():
            if procs > 0:
                out[n] = min(free, procs)
                procs -= out[n]
        return out

    def _fit(self, item: Item, procs: int) -> tuple[float, dict[int, int]] | None:
        """Return the end of an item and the processes on each node; None if it does not fit."""
        room = self._room(item)
        if sum(room.values()) < procs:
            return None
        whole: tuple[float, dict[int, int]] | None = None
        for power in self.powers:
            chosen = [n for n in room if self.intake.nodes[n].power >= power]
            if sum(room[n] for n in chosen) < procs:
                continue
            for subset in self._subsets(item, chosen):
                end = self._end(item, procs, power, subset)
                open_nodes = [n for n in subset if not self._reserved(item, n, end)]
                nodes = self._nodes(item, procs, open_nodes, room)
                if nodes is not None and (whole is None or end < whole[0] - 1e-9):
                    whole = (end, nodes)
            if whole is not None:
                return whole
        return None

    def _subsets(self, item: Item, nodes: list[int]) -> Iterable[list[int]]:
        """A task's time depends on its cluster: try them one by one."""
        if item.task is None:
            return [nodes]
        of: dict[int, list[int]] = {}
        for n in nodes:
            of.setdefault(self._cluster(n), []).append(n)
        late = [k for k, ready in enumerate(item.arrival) if ready > self.snapshot.time]
        return [nodes for k, nodes in of.items() if k not in late]

    def _room(self, item: Item) -> dict[int, int]:
        """Processes of an item that each node could take."""
        need = self.intake.groups[item.group].need
        memory = item.job.memory_mb_per_proc
        room = {}
        for n, free in enumerate(self.free):
            if free > 0 and need[self.intake.node_kind[n]] > 0:
                count = free
                if memory > 0 and self.memory[n] != inf:
                    count = min(free, int(self.memory[n] // memory))
                if count > 0:
                    room[n] = count
        return room

    def _cluster(self, n: int) -> int:
        return self.intake.kinds[self.intake.node_kind[n]].cluster

    def _end(self, item: Item, procs: int, power: float, nodes: list[int]) -> float:
        job: Job = item.job
        if item.task is not None:
            inside = {self.order[self._cluster(nodes[0])]: procs}
            seconds = task_time(item.task, inside, power, self.clusters)
        else:
            assert isinstance(job, RigidJob | MoldableJob)
            seconds = run_time(base_time(job, procs), job.sigma, power)
        return self.snapshot.time + seconds

    def _reserved(self, item: Item, n: int, end: float) -> bool:
        exempt = self.intake.groups[item.group].exempt
        for r in self.intake.kinds[self.intake.node_kind[n]].cover:
            if r not in exempt and self.intake.reservations[r].start < end:
                return True
        return False

    def _nodes(
        self, item: Item, procs: int, nodes: list[int], room: Mapping[int, int]
    ) -> dict[int, int] | None:
        """Choose weak nodes first on as few clusters as the links allow."""
        free = [0] * len(self.order)
        for n in nodes:
            free[self._cluster(n)] += room[n]
        if item.splits:
            low = [
                low_side(
                    procs,
                    item.proc_gbps,
                    self.residual[name],
                    self.clusters[name].link_gbps * TOLERANCE,
                )
                for name in self.order
            ]
        else:
            low = [0] * len(self.order)
        take = split(procs, free, low)
        if take is None:
            return None
        out = {}
        for n in sorted(nodes, key=lambda n: self.intake.nodes[n].power):
            count = min(take[self._cluster(n)], room[n])
            if count > 0:
                take[self._cluster(n)] -= count
                out[n] = count
        return out

    def _take(self, item: Item, nodes: Mapping[int, int]) -> None:
        inside: dict[str, int] = {}
        for n, count in nodes.items():
            self.free[n] -= count
            self.memory[n] -= item.job.memory_mb_per_proc * count
            name = self.order[self._cluster(n)]
            inside[name] = inside.get(name, 0) + count
        for name, load in link_loads(item.proc_gbps, inside).items():
            self.residual[name] -= load


def solve(
    problem: Snapshot,
    options: Mapping[str, Any],
    budget: Budget,
    on_incumbent: OnIncumbent | None = None,
) -> Plan:
    """Plan with `plain_fcfs`; there are no options, and there is no search."""
    return plain_fcfs(problem)


SOLVERS: Mapping[str, Solve] = {"plain": solve}
