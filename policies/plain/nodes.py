"""Nodes for what `plain` has placed on classes, and the pieces that it deals to what is left."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from coalloc.model.jobs import DivisibleJob
from coalloc.model.plan import Placement
from coalloc.policies.kernel.instance.classes import free_now
from coalloc.policies.kernel.instance.intake import Intake
from coalloc.policies.plain.availability import Availability, EarliestFit
from coalloc.policies.uses import fitting, pieces


def chosen_nodes(
    availability: Availability, intake: Intake, places: Mapping[int, EarliestFit]
) -> list[Placement]:
    """Give each placement free slots of its classes, by time of start; the package says why."""
    free, class_of = dict[int, int](), dict[int, int]()
    held: dict[int, list[tuple[float, int, int]]] = {}
    for c, nodes in enumerate(availability.classes.nodes):
        kind = availability.kinds[c]
        free.update(dict.fromkeys(nodes, kind.slots * kind.grain))
        class_of.update(dict.fromkeys(nodes, c))
        held[c] = []
    for node, units, until in availability.held:
        free[node] -= units
        held[class_of[node]].append((until, node, units))
    for heap in held.values():
        heapify(heap)
    out: dict[int, Placement] = {}
    for n in sorted(places, key=lambda n: (places[n].start, places[n].end)):
        item, fit = intake.items[n], places[n]
        need = dict(availability.allowed(item.group))
        nodes_of: dict[int, int] = {}
        for c, procs in fit.procs.items():
            while held[c] and held[c][0][0] <= fit.start:
                _, node, units = heappop(held[c])
                free[node] += units
            for node in availability.classes.nodes[c]:
                count = min(procs, free[node] // need[c])
                if count > 0:
                    procs -= count
                    free[node] -= count * need[c]
                    heappush(held[c], (fit.end, node, count * need[c]))
                    nodes_of[node] = count
                if procs == 0:
                    break
        out[n] = Placement(
            job=item.job.id,
            task=None if item.task is None else item.task.id,
            start=fit.start,
            end=fit.end,
            nodes={intake.nodes[node].name: nodes_of[node] for node in sorted(nodes_of)},
        )
    return [out[n] for n in sorted(out)]


def dealt_pieces(intake: Intake, started: list[Placement]) -> list[Placement]:
    """All chunks of the divisible jobs that may start, dealt evenly to the slots left now."""
    left = _Left(intake, started)
    return [piece for job in intake.snapshot.queue for piece in left.deal(job)]


class _Left:
    """Slots and memory that nothing uses now."""

    def __init__(self, intake: Intake, started: list[Placement]) -> None:
        self.intake, self.now = intake, intake.snapshot.time
        place, jobs = intake.table.place, {job.id: job for job in intake.snapshot.queue}
        self.free, self.memory = free_now(intake)
        for placement in started:
            for name, procs in placement.nodes.items():
                self._take(place[name], procs, jobs[placement.job].memory_mb_per_proc)

    def _take(self, n: int, procs: int, memory_mb: int) -> None:
        self.free[n] -= procs
        self.memory[n] -= memory_mb * procs

    def deal(self, job: object) -> list[Placement]:
        """The pieces of a job, if it is divisible and may start."""
        if not isinstance(job, DivisibleJob) or job.held or job.after or job.earliest > self.now:
            return []
        out = []
        groups = self._lanes(job)
        lanes = sum(sum(nodes.values()) for nodes in groups.values())
        each, left = -(-job.chunks // max(lanes, 1)), job.chunks
        for (_, power), nodes in groups.items():
            count = min(left, each * sum(nodes.values()))
            left -= count
            mine = _first(nodes, -(-count // each))
            if not mine:
                break
            names = {self.intake.nodes[n].name: procs for n, procs in mine.items()}
            out += pieces(job, self.now, names, count, power)
            for n, procs in mine.items():
                self._take(n, procs, job.memory_mb_per_proc)
        return out

    def _lanes(self, job: DivisibleJob) -> dict[tuple[int, float], dict[int, int]]:
        """Free slots that a divisible job may use, by cluster and power, the strongest first."""
        groups: dict[tuple[int, float], dict[int, int]] = {}
        wanted, memory = set(job.features), job.memory_mb_per_proc
        for n, free in enumerate(self.free):
            node, kind = self.intake.nodes[n], self.intake.kinds[self.intake.node_kind[n]]
            name = self.intake.snapshot.clusters[kind.cluster].name
            allowed = job.clusters is None or name in job.clusters
            if not allowed or kind.cover or not wanted.issubset(kind.features):
                continue
            count = fitting(free, self.memory[n], memory)
            if count > 0:
                groups.setdefault((kind.cluster, node.power), {})[n] = count
        return dict(sorted(groups.items(), key=lambda group: -group[0][1]))


def _first(nodes: Mapping[int, int], procs: int) -> dict[int, int]:
    """So many slots, in the order of the nodes."""
    out: dict[int, int] = {}
    for n, free in nodes.items():
        if procs > 0:
            out[n] = min(free, procs)
            procs -= out[n]
    return out
