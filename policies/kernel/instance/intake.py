"""From a snapshot to what is to be planned: items, kinds of nodes, groups; plain Python.

An *item* is a rigid job, a moldable job or a task of a workflow, with its modes. A *kind* is a set
of nodes that differ in power only. A *group* is a set of items that may use the same kinds, with
the same number of slots per process, and are let into the same reservations.

What cannot be planned is deferred here, each with one reason: held; of a kind the kernel does not
plan; infeasible (more than exists); insufficient (more than is usable now); or waiting for such a
job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, chain
from math import inf
from typing import Any

from msgspec import Struct

from coalloc.model.flows import last_exit
from coalloc.model.jobs import WorkflowJob
from coalloc.model.plan import Deferred, Reason
from coalloc.model.platform import Node, NodeState
from coalloc.model.snapshot import Reservation, Snapshot
from coalloc.policies.holds import Holds, holds, reserved
from coalloc.policies.kernel.instance.drafting import Drafter
from coalloc.policies.kernel.instance.kinds import MOST_NEEDS, Group, Kind, Needs
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.latest import keep_latest


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTable:
    """The nodes of a snapshot, sorted; not to be changed."""

    nodes: list[Node]
    node_kind: list[int]
    """The kind of each node."""
    kinds: list[Kind]
    place: dict[str, int]
    late: list[int]
    """Nodes that have a ``free_at``."""


class Intake(Struct, kw_only=True):
    """The instance that the decoders see."""

    snapshot: Snapshot
    table: NodeTable
    nodes: list[Node]
    node_kind: list[int]
    kinds: list[Kind]
    reservations: list[Reservation]
    groups: list[Group]
    items: list[Item]
    deferred: list[Deferred]
    holds: Holds

    @property
    def nothing_can_run(self) -> bool:
        """Whether the queue holds only what can never run."""
        reasons = {entry.reason for entry in self.deferred}
        return not self.items and reasons == {Reason.INFEASIBLE}


def read_queue(snapshot: Snapshot, options: Mapping[str, Any]) -> Intake:
    """Sort the queue into items to place and jobs to defer.

    Options are read or have their default: `coallocation`, `coallocate_moldable` and
    `saturation_threshold`.
    """
    return _Reader(snapshot, options).read()


def sort_nodes(
    cover: Mapping[str, tuple[int, ...]],
    stale: Sequence[bool],
    clusters: Sequence[tuple[Node, ...]],
) -> NodeTable:
    """Sort nodes into kinds.

    `stale` (sequence of bool): of each cluster.
    """
    kinds: list[Kind] = []
    node_kind: list[int] = []
    found: dict[Any, int] = {}
    sets: dict[tuple[str, ...], frozenset[str]] = {}
    up = NodeState.UP
    for k, members in enumerate(clusters):
        for node in members:
            usable = node.state is up and not stale[k] and node.free_at != inf
            if (features := sets.get(node.features)) is None:
                features = sets[node.features] = frozenset(node.features)
            kept = cover.get(node.name, ())
            counted = tuple(sorted(node.resources.items())) if node.resources else ()
            sizes = node.slots, node.memory_mb, node.cpus, node.cpus_per_core
            kind = found.setdefault((k, features, kept, usable, sizes, counted), len(found))
            if kind == len(kinds):
                kinds.append(
                    Kind(
                        cluster=k,
                        features=features,
                        memory_mb=node.memory_mb,
                        slots=node.slots,
                        cover=kept,
                        usable=usable,
                        cpus=node.cpus,
                        cpus_per_core=node.cpus_per_core,
                        resources=node.resources,
                    )
                )
            kinds[kind].nodes.append(len(node_kind))
            node_kind.append(kind)
    nodes = list(chain.from_iterable(clusters))
    return NodeTable(
        nodes=nodes,
        node_kind=node_kind,
        kinds=kinds,
        place={node.name: n for n, node in enumerate(nodes)},
        late=[n for n, node in enumerate(nodes) if node.free_at != -inf],
    )


@keep_latest
def sort_free_nodes(*given: Any) -> NodeTable:
    """Sort nodes without reservations into kinds: whether clusters are stale, then their nodes."""
    half = len(given) // 2
    return sort_nodes({}, given[:half], given[half:])


class _Reader:
    """The work of `read_queue`, with what is looked up often."""

    def __init__(self, snapshot: Snapshot, options: Mapping[str, Any]) -> None:
        self.snapshot = snapshot
        self.holds = holds(snapshot)
        self.reservations = [r for r in snapshot.reservations if r.end > snapshot.time]
        cover, clusters = reserved(self.reservations), snapshot.clusters
        stale, nodes = [one.stale for one in clusters], [one.nodes for one in clusters]
        # Where nothing is reserved, the nodes alone decide, and most rounds have those of the last.
        self.table = sort_nodes(cover, stale, nodes) if cover else sort_free_nodes(*stale, *nodes)
        self.nodes, self.node_kind = self.table.nodes, self.table.node_kind
        self.kinds = [copy(kind) for kind in self.table.kinds]
        self.drafter = Drafter(snapshot, self.kinds, self.reservations, options)
        self.needs = self.drafter.needs
        self.reasons = self.drafter.reasons

    def read(self) -> Intake:
        drafts = [self.drafter.draft(n, job) for n, job in enumerate(self.snapshot.queue)]
        self._defer_dependents()
        drafted = [
            (job.id, mine)
            for job, mine in zip(self.snapshot.queue, drafts, strict=True)
            if job.id not in self.reasons
        ]
        items = [item for _, mine in drafted for item in mine]
        self._link(items, drafted)
        groups = self._group(items)
        return Intake(
            snapshot=self.snapshot,
            table=self.table,
            nodes=self.nodes,
            node_kind=self.node_kind,
            kinds=self.kinds,
            reservations=self.reservations,
            groups=groups,
            items=items,
            deferred=self._deferred(),
            holds=self.holds,
        )

    def _group(self, items: list[Item]) -> list[Group]:
        """Cut kinds where memory asks for it; join items that need the same."""
        used = sorted({item.group for item in items})
        self._cut([self.needs[n] for n in used])
        alone = sum(len(kind.nodes) for kind in self.kinds if kind.cut)
        coarse = alone * len(used) > MOST_NEEDS
        groups: list[Group] = []
        found: dict[Any, int] = {}
        group_of: dict[int, int] = {}
        for n in used:
            needs = self.needs[n]
            units = tuple(
                kind.need(needs.memory_mb, coarse) if fit else 0
                for kind, fit in zip(self.kinds, needs.kinds, strict=True)
            )
            group_of[n] = found.setdefault((units, needs.exempt), len(groups))
            if group_of[n] == len(groups):
                groups.append(Group(need=units, exempt=needs.exempt))
        for item in items:
            item.group = group_of[item.group]
        return groups

    def _cut(self, used: list[Needs]) -> None:
        held = self.holds.nodes
        place = self.table.place
        partly = {
            self.node_kind[place[hold.node]]
            for hold in held
            if hold.slots < self.nodes[place[hold.node]].slots
        }
        for number, kind in enumerate(self.kinds):
            if kind.memory_mb is None or kind.slots == 1:
                continue
            needs = {kind.need(n.memory_mb) for n in used if n.kinds[number]} - {0}
            whole = needs == {kind.slots} and number not in partly
            if max(needs, default=1) > 1 and not whole:
                kind.cut_up()

    def _defer_dependents(self) -> None:
        """Defer whatever waits, directly or not, for a deferred job or for itself."""
        bound = [job for job in self.snapshot.queue if job.after]
        known = {job.id for job in self.snapshot.queue} if bound else ()
        waits = {job.id: [n for n in job.after if n in known] for job in bound}
        sorter = TopologicalSorter(waits)
        with suppress(CycleError):  # what no cycle keeps is given out in any case
            sorter.prepare()
        while ready := sorter.get_ready():
            for name in ready:
                for other in waits.pop(name, ()):
                    if other in self.reasons:
                        what = f"waits for job {other}, which has no start in this plan"
                        self.reasons.setdefault(name, (Reason.DEPENDENCY, what))
            sorter.done(*ready)
        for name in waits:
            what = "waits for itself or for jobs that wait for themselves"
            self.reasons.setdefault(name, (Reason.DEPENDENCY, what))

    def _link(self, items: list[Item], drafted: list[tuple[str, list[Item]]]) -> None:
        """Resolve ``after`` and the edges of workflows."""
        snapshot, now = self.snapshot, self.snapshot.time
        bound = [
            job
            for job in snapshot.queue
            if job.after or job.earliest > now or isinstance(job, WorkflowJob)
        ]
        if not bound:
            return
        ends = accumulate(len(mine) for _, mine in drafted)
        span = {
            name: range(end - len(mine), end)
            for (name, mine), end in zip(drafted, ends, strict=True)
        }
        busy = {job.id: job.busy_until(now, snapshot.overrun_s) for job in snapshot.running}
        exits = {job.id: last_exit(job) for job in bound if isinstance(job, WorkflowJob)}
        for job in bound:
            if job.id not in span:
                continue
            mine = span[job.id]
            waits = job.earliest > now or any(
                other in span or busy.get(other, -inf) > now for other in job.after
            )
            for item in items[mine.start : mine.stop]:
                item.waits = waits
            inner: set[int] = set()
            if isinstance(job, WorkflowJob):
                place = {task.id: mine[t] for t, task in enumerate(job.tasks)}
                for edge in job.edges:
                    child = place[edge.child]
                    if edge.parent in place:
                        inner.add(child)
                        items[child].parents.append((place[edge.parent], 8.0 * edge.gb))
            for other in dict.fromkeys(job.after):
                for first in (i for i in mine if i not in inner):
                    if other in span:
                        items[first].parents += [(p, -1.0) for p in _exits(items, span[other])]
                        items[first].release = max(items[first].release, exits.get(other, -inf))
                    elif other in busy:
                        items[first].release = max(items[first].release, busy[other])

    def _deferred(self) -> list[Deferred]:
        out = []
        for job in self.snapshot.queue:
            if job.id not in self.reasons:
                continue
            reason, detail = self.reasons[job.id]
            if not isinstance(job, WorkflowJob):
                out.append(Deferred(job=job.id, reason=reason, detail=detail))
                continue
            for task in job.tasks:
                why, what = self.drafter.task_reasons.get((job.id, task.id), (reason, detail))
                out.append(Deferred(job=job.id, task=task.id, reason=why, detail=what))
        return out


def _exits(items: list[Item], span: range) -> list[int]:
    """Items of a job that no other item of it waits for."""
    job = items[span[0]].job
    if not isinstance(job, WorkflowJob):
        return list(span)
    parents = {edge.parent for edge in job.edges}
    return [span[t] for t, task in enumerate(job.tasks) if task.id not in parents]
