"""From a job to items with their modes, or to the reason why it cannot be planned; plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from coalloc.model.cost import task_loads, task_time
from coalloc.model.flows import APART, Home, arrivals, homes, streams
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob, Task, WorkflowJob
from coalloc.model.plan import Reason
from coalloc.model.shape import ONE_SLOT, Shape
from coalloc.model.snapshot import Reservation, Snapshot
from coalloc.model.split import TOLERANCE, low_side, split, split_task
from coalloc.model.values import replace
from coalloc.policies.kernel.instance.kinds import Capacity, Kind, Needs
from coalloc.policies.kernel.instance.modes import (
    Item,
    Mode,
    may_split,
    offered,
    rigid_mode,
    smallest,
)

Why = tuple[Reason, str]

AWAY = "the data of what ran before reach no cluster that it may use"


class Drafter:
    """Makes the items of one job after the other.

    The kinds are the nodes before any is cut; until then, `Item.group` is an index into `needs`,
    what items ask of nodes. The reservations are those to come. `reasons` and `task_reasons` say
    why a job, or a task of it, cannot be planned.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        kinds: Sequence[Kind],
        reservations: Sequence[Reservation],
        options: Mapping[str, Any],
    ) -> None:
        self.snapshot, self.options = snapshot, options
        self.kinds = kinds
        self.rule = options.get("coallocation", "sooner")
        self.threshold = options.get("saturation_threshold", 1.0)
        self.clusters = {cluster.name: k for k, cluster in enumerate(snapshot.clusters)}
        self.by_name = {cluster.name: cluster for cluster in snapshot.clusters}
        self.links = [cluster.link_gbps for cluster in snapshot.clusters]
        self.entitled: dict[str, frozenset[int]] = {}
        for number, reservation in enumerate(reservations):
            for job in reservation.jobs:
                self.entitled[job] = self.entitled.get(job, frozenset()) | {number}
        self.needs: list[Needs] = []
        self.by_key: dict[Any, int] = {}
        self.fitting: dict[Any, tuple[int, bool]] = {}  # `group` and `splits` by kind of rigid job
        self.reasons: dict[str, Why] = {}
        self.task_reasons: dict[tuple[str, str], Why] = {}
        self.slots = sum(kind.slots * len(kind.nodes) for kind in kinds)

    def draft(self, number: int, job: Job) -> list[Item]:
        """Make the items of a job; note why it cannot be planned, if so."""
        if job.held:
            self.reasons[job.id] = (Reason.HELD, "held by its user or an operator")
            return []
        if isinstance(job, DivisibleJob):
            self.reasons[job.id] = (Reason.UNSUPPORTED, "this policy plans no divisible jobs")
            return []
        if isinstance(job, WorkflowJob):
            return self._draft_tasks(number, job)
        kind = None
        if isinstance(job, RigidJob):
            key = self._key(job, job.clusters, job.shape)
            kind = key, job.procs, job.proc_gbps, job.one_cluster
            if found := self.fitting.get(kind):
                group, splits = found
                item = Item(
                    job=job,
                    number=number,
                    group=group,
                    modes=[rigid_mode(job)],
                    proc_gbps=job.proc_gbps,
                    splits=splits,
                    release=max(job.earliest, self.snapshot.time),
                )
                return [item]
        item, why = self._item(number, job, None, job.clusters, ())
        if why is not None:
            self.reasons[job.id] = why
            return []
        if kind is not None:
            self.fitting[kind] = item.group, item.splits
        return [item]

    def _draft_tasks(self, number: int, job: WorkflowJob) -> list[Item]:
        items: dict[str, Item] = {}
        begun = arrivals(job, self.snapshot.clusters)
        found = homes(job, dict(zip(self.by_name, self.links, strict=True)))
        for tasks in [list(job.tasks)] if found == [job.clusters] else streams(job):
            self._draft_on_first(number, job, tasks, found, begun, items)
        return [] if job.id in self.reasons else [items[task.id] for task in job.tasks]

    def _draft_on_first(
        self,
        number: int,
        job: WorkflowJob,
        tasks: Sequence[Task],
        found: Sequence[Home],
        begun: Mapping[str, tuple[float, ...]],
        items: dict[str, Item],
    ) -> None:
        """Make the items of a workflow, or of one stream of it, on the first home with room."""
        failed: dict[str, Why] = {}
        for names in found:
            made, failed = self._draft_on(number, job, tasks, names, begun)
            if not failed:
                items |= made
                return
        if found[-1:] != [job.clusters]:
            made, failed = self._draft_on(number, job, tasks, job.clusters, begun)
            failed = failed or dict.fromkeys(list(made)[:1], (Reason.INSUFFICIENT, APART))
        for task, reason in failed.items():
            self.task_reasons[job.id, task] = reason
            what = f"task {task} of this workflow cannot run: {reason[1]}"
            self.reasons.setdefault(job.id, (Reason.DEPENDENCY, what))

    def _draft_on(
        self,
        number: int,
        job: WorkflowJob,
        tasks: Sequence[Task],
        names: Home,
        begun: Mapping[str, tuple[float, ...]],
    ) -> tuple[dict[str, Item], dict[str, Why]]:
        made: dict[str, Item] = {}
        failed: dict[str, Why] = {}
        for task in tasks:
            item, why = self._item(number, job, task, names, begun.get(task.id, ()))
            if why is None:
                made[task.id] = item
            else:
                failed[task.id] = why
        return made, failed

    def _item(
        self, number: int, job: Job, task: Task | None, names: Home, arrival: tuple[float, ...]
    ) -> tuple[Item, Why | None]:
        """An item on these clusters, and why it cannot run there, if so."""
        item = Item(job=job, number=number, task=task, arrival=arrival)
        item.group = self._needs(job, names, item.shape)
        item.release = max(job.earliest, self.snapshot.time)
        return item, self._await_data(item, names) or self._set_modes(item)

    def _await_data(self, item: Item, names: Home) -> Why | None:
        """Raise the release to the first arrival on these clusters; the reason if there is none."""
        if not item.arrival:
            return None
        allowed = self.clusters if names is None else names
        first = min(
            (item.arrival[self.clusters[n]] for n in allowed if n in self.clusters), default=inf
        )
        if first == inf:
            return Reason.INSUFFICIENT, AWAY
        item.release = max(item.release, first)
        return None

    def _set_modes(self, item: Item) -> Why | None:
        """Fill in modes and splitting; return the reason if no mode can run."""
        needs = self.needs[item.group]
        if isinstance(item.job, RigidJob | MoldableJob):
            item.proc_gbps = item.job.proc_gbps or 0.0
            item.splits = may_split(item.job, self.options, len(self.links))
        if item.task is not None and self._spread(item, item.task, needs.usable):
            return None
        item.modes = self._modes(item, needs.usable)
        if item.modes:
            return None
        low = smallest(item)
        may = item.task is not None and self._spread(item, item.task, needs.exists)
        if may or self._modes(item, needs.exists):
            free = needs.usable.total if item.splits else needs.usable.largest
            return Reason.INSUFFICIENT, f"needs {low} processes; {free} could run with what is up"
        return Reason.INFEASIBLE, self._why_never(item, needs, low)

    def _spread(self, item: Item, task: Task, free: Capacity) -> bool:
        """Spread a task that no cluster holds alone, on its fewest processes, if that can be."""
        procs = task.min_procs
        if procs <= free.largest or self.rule == "forbidden":
            return False
        take = split_task(procs, free.alone, self.links, task.comm_gb)
        if take is None:
            return False
        clusters = self.by_name
        inside = {name: n for name, n in zip(clusters, take, strict=True) if n}
        loads = task_loads(task, inside, dict(zip(clusters, self.links, strict=True)))
        seconds = task_time(replace(task, work=0.0), inside, 1.0, clusters)
        scaled = offered(item, procs)[0][1]
        item.modes, item.splits, item.parts = [(procs, scaled, seconds, 0.0)], True, tuple(take)
        item.rates = tuple(loads.get(name, 0.0) for name in clusters)
        return True

    def _modes(self, item: Item, free: Capacity) -> list[Mode]:
        """Return the modes that would fit on these empty clusters, alone or together."""
        splits, largest = item.splits, free.largest
        if splits and self.rule == "needed" and smallest(item) <= largest:
            splits = False
        nodes = item.shape.min_nodes
        modes = [
            mode
            for mode in offered(item, free.total if splits else largest)
            if mode[0] >= nodes
            and (mode[0] <= largest or (splits and self._parts_hold(item, mode[0], free)))
        ]
        if modes:
            item.splits = splits
        return modes

    def _parts_hold(self, item: Item, procs: int, free: Capacity) -> bool:
        if procs > free.total or item.proc_gbps <= 0.0:
            return procs <= free.total
        links = [link * self.threshold for link in self.links]
        sides = {
            link: low_side(procs, item.proc_gbps, link, link * TOLERANCE) for link in set(links)
        }
        low = [sides[link] for link in links]
        return sum(map(min, free.apart, low)) >= procs or split(procs, free.apart, low) is not None

    def _why_never(self, item: Item, needs: Needs, low: int) -> str:
        total, largest = needs.exists.total, needs.exists.largest
        if item.shape != ONE_SLOT:
            what = f"needs {low} processes on {item.shape.min_nodes} nodes or more of its shape"
            return f"{what}; {largest} fit on one cluster, {total} on all"
        if low > self.slots:
            return f"needs {low} processes; {self.slots} slots exist"
        if low > total:
            where = "nodes with its clusters, features and memory"
            return f"needs {low} processes; {total} fit on {where}"
        if not item.splits and (item.task is None or self.rule == "forbidden"):
            return f"needs {low} processes on one cluster; the largest takes {largest}"
        return f"needs {low} processes; the links cannot carry any split of them"

    def _needs(self, job: Job, names: Home, shape: Shape) -> int:
        key = self._key(job, names, shape)
        if key in self.by_key:
            return self.by_key[key]
        wanted = frozenset(job.features)
        allowed = {
            k
            for name, k in self.clusters.items()
            if (names is None or name in names) and self._licensed(shape, name)
        }
        fits = tuple(kind.cluster in allowed and wanted <= kind.features for kind in self.kinds)
        rooms: list[list[tuple[int, int, bool]]] = [[] for _ in self.links]
        for kind, fit in zip(self.kinds, fits, strict=True):
            if fit and (room := kind.room(job.memory_mb_per_proc, shape)):
                rooms[kind.cluster].append((room, len(kind.nodes), kind.usable))
        up = [[row for row in found if row[2]] for found in rooms]
        needs = Needs(
            kinds=fits,
            memory_mb=job.memory_mb_per_proc,
            exempt=self.entitled.get(job.id, frozenset()),
            usable=_capacity(up, shape),
            exists=_capacity(rooms, shape),
        )
        self.by_key[key] = len(self.needs)
        self.needs.append(needs)
        return self.by_key[key]

    def _key(self, job: Job, names: Home, shape: Shape) -> Any:
        """All that needs depend on."""
        known = None if shape is ONE_SLOT else shape
        exempt = self.entitled.get(job.id)
        return names, job.features, job.memory_mb_per_proc, known, exempt

    def _licensed(self, shape: Shape, name: str) -> bool:
        """Whether a cluster, or the site, has what a shape takes of it as a whole."""
        own, site = self.by_name[name].resources, self.snapshot.resources
        return all(
            (n in own or n in site) and own.get(n, count) >= count <= site.get(n, count)
            for n, count in shape.per_job.items()
        )


def _capacity(rooms: list[list[tuple[int, int, bool]]], shape: Shape) -> Capacity:
    """Of the nodes of each cluster: processes of each, how many, and whether they are up."""
    alone = [_most(found, shape, shape.min_nodes) for found in rooms]
    return Capacity(alone, [_most(found, shape) for found in rooms])


def _most(rooms: list[tuple[int, int, bool]], shape: Shape, nodes: int = 1) -> int:
    """Processes on as many nodes as a shape may have; none on fewer nodes than these."""
    left, most = sum(count for _, count, _ in rooms), 0
    if left < nodes:
        return 0
    left = left if shape.max_nodes is None else shape.max_nodes
    for room, count, _ in sorted(rooms, reverse=True):
        most += room * min(count, left)
        left -= min(count, left)
    return most
