"""Eligibility of clusters and nodes for a job, by the rules of the clusters' batch systems.

All policies respect it without knowing of it: clusters that would not take a job are taken from
those that may run it, and where only some of the nodes may, these get a feature that the job then
asks for (`Marks`). So a job is never planned where it would be refused, as far as the rules are
known; what they do not tell is learnt from refusals (`core.barring`).

Notes
-----
A cluster that lets a job have only so many nodes, or processes, offers it no more: those that are
free first. The part that the job has there then keeps to the bound, whatever else it gets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from coalloc.core.avoiding import avoided, shape_of
from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.core.batch_accounts import account_there
from coalloc.model.batch_options import PLAIN, BatchOptions
from coalloc.model.constraint import admits
from coalloc.model.cost import shortest_time
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob, WorkflowJob
from coalloc.model.nodeset import fold
from coalloc.model.platform import NodeState
from coalloc.model.ranges import EVENT
from coalloc.model.reading import NodeReading
from coalloc.model.reserved import Reserved
from coalloc.model.site_rules import ANY, Asking, Verdict, judged, span_text
from coalloc.model.snapshot import Reservation


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose job it is, and what batch systems are told of it."""

    user: str = ""
    uid: int = -1
    gid: int = -1
    batch: BatchOptions = PLAIN


UNKNOWN_OWNER = Owner()
OF_NODES = frozenset({"partition", "gres", "constraint"})
"""Options that say on which nodes a job may run."""
TOLERANCE = 1e-9
MOST_KEPT = 10_000
"""Verdicts of one cluster that are kept."""


def owner_of(record: JobRecord) -> Owner:
    """The owner of a job; of one that was handed over, the batch system has judged it before."""
    if record.foreign:
        return UNKNOWN_OWNER
    return Owner(user=record.user, uid=record.uid, gid=record.gid, batch=record.batch)


def verdict_of(cluster: ClusterState, job: Job, owner: Owner) -> Verdict:
    """Verdict of a cluster's batch system on a job; kept until its rules change."""
    rules = None if cluster.reading is None else cluster.reading.rules
    if rules is None or owner is UNKNOWN_OWNER:
        return ANY
    key = (owner, job.time_limit, widest(job))
    if key not in cluster.verdicts:
        if len(cluster.verdicts) >= MOST_KEPT:
            cluster.verdicts.clear()
        account = account_there(cluster.settings.accounts, owner.user, owner.batch.account)
        asking = Asking(
            user=owner.user,
            uid=owner.uid,
            gid=owner.gid,
            batch=owner.batch.with_account(account),
            time_limit_s=job.time_limit,
            procs=widest(job),
        )
        cluster.verdicts[key] = judged(rules, asking)
    return cluster.verdicts[key]


def widest(job: Job) -> int:
    """Processes of one start of a job, at the most."""
    match job:
        case RigidJob(procs=procs):
            return procs
        case MoldableJob(max_procs=procs):
            return procs
        case WorkflowJob(tasks=tasks):
            return max((task.max_procs for task in tasks), default=1)
        case DivisibleJob():
            return job.chunks


def narrowest(job: Job) -> int:
    """Processes of one start of a job, at the least."""
    match job:
        case RigidJob(procs=procs):
            return procs
        case MoldableJob(min_procs=procs):
            return procs
        case WorkflowJob(tasks=tasks):
            return max((task.min_procs for task in tasks), default=1)
        case DivisibleJob():
            return 1


def open_nodes(
    cluster: ClusterState, verdict: Verdict, batch: BatchOptions
) -> tuple[NodeReading, ...]:
    """The nodes in the right partitions, with the generic resources asked for.

    All of them where nothing is asked; kept until the nodes change.
    """
    assert cluster.reading is not None
    is_known = cluster.reading.rules is not None
    if not is_known or (verdict.partitions is None and not batch.gres and not batch.constraint):
        return cluster.reading.nodes
    key = (verdict.partitions, batch.gres, batch.constraint)
    if key not in cluster.openings:
        partitions = frozenset(verdict.partitions or ())
        wanted = wanted_gres(batch.gres)
        cluster.openings[key] = tuple(
            node
            for node in cluster.reading.nodes
            if (verdict.partitions is None or not partitions.isdisjoint(node.partitions))
            and all(node.gres.get(name, 0) >= count for name, count in wanted.items())
            and (not batch.constraint or admits(batch.constraint, node.features))
        )
    return cluster.openings[key]


def wanted_gres(text: str) -> dict[str, int]:
    """Counts of ``gpu:a100:2,fast`` by name, for each node."""
    counts: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        *names, last = item.removeprefix("gres:").replace("=", ":").split(":")
        is_count = bool(names) and last.isdecimal()
        name = ":".join(names) if is_count else ":".join([*names, last])
        counts[name] = counts.get(name, 0) + (int(last) if is_count else 1)
    return counts


def is_capped(verdict: Verdict, job: Job) -> bool:
    """Whether a job has to do with fewer nodes or processes there than it could use."""
    limits, wanted = verdict.limits, widest(job)
    most = (each for each in (limits.nodes, limits.procs) if each is not None)
    return min(most, default=wanted) < wanted


def offered(
    cluster: ClusterState,
    job: Job,
    owner: Owner,
    verdict: Verdict,
    busy: Mapping[str, int],
) -> tuple[NodeReading, ...]:
    """The nodes that a cluster offers a job.

    Parameters
    ----------
    busy : mapping of node name to slots
        Taken now: of more nodes than may be had, the freest are offered.
    """
    nodes = open_nodes(cluster, verdict, owner.batch)
    if not is_capped(verdict, job):
        return nodes
    limits = verdict.limits
    suiting = [node for node in nodes if set(job.features).issubset(node.features)]
    suiting.sort(key=lambda node: busy.get(node.name, 0) - node.slots)
    chosen: list[NodeReading] = []
    slots = 0
    for node in suiting:
        has_room = limits.procs is None or slots + node.slots <= max(limits.procs, 0)
        if has_room and (limits.nodes is None or len(chosen) < limits.nodes):
            chosen.append(node)
            slots += node.slots
    return tuple(chosen)


def bound_text(verdict: Verdict, job: Job) -> str:
    """Limit of a cluster on a job's nodes or processes, in words, where that is too few."""
    limits, wanted = verdict.limits, widest(job)
    if limits.nodes is not None and limits.nodes < wanted:
        return f"at most {limits.nodes} {'node' if limits.nodes == 1 else 'nodes'} at once"
    if limits.procs is not None and limits.procs < wanted:
        return f"at most {limits.procs} processes at once"
    return ""


def nodes_text(verdict: Verdict, batch: BatchOptions) -> str:
    """Needs of a job on its nodes, in words."""
    partitions = ", ".join(verdict.partitions or ())
    asked = [f"--{k}={v}" for k, v in batch.given() if k in {"gres", "constraint"}]
    return " and ".join([*asked, *([f"partition {partitions}"] if partitions else [])])


@dataclass(slots=True)
class Marks:
    """Features by which a snapshot says which nodes a job may have.

    Attributes
    ----------
    of_nodes : dict of node name to list of str
        To be added to their own.
    """

    of_nodes: dict[str, list[str]] = field(default_factory=dict)
    _names: dict[Hashable, str] = field(default_factory=dict)
    _used: Counter[str] = field(default_factory=Counter)

    def named(self, key: Hashable, label: str, nodes: Iterable[NodeReading]) -> str:
        """The feature that these nodes have and no others do; equal keys are equal nodes."""
        if key not in self._names:
            self._used[label] += 1
            number = self._used[label]
            name = self._names[key] = label if number == 1 else f"{label}#{number}"
            for node in nodes:
                self.of_nodes.setdefault(node.name, []).append(name)
        return self._names[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Offer of the clusters to a job.

    Attributes
    ----------
    refusing : mapping of cluster to reason
        Those that do not take it now, or never.
    mark : str
        Feature of the nodes that it may have; empty: all.
    earliest : float
        Before this it would be refused, seconds.
    """

    refusing: Mapping[str, str]
    mark: str = ""
    earliest: float = -inf


NO_OFFER = Offer(refusing={})


@dataclass(slots=True, kw_only=True)
class Offers:
    """Offers to the jobs of one snapshot; jobs of one kind get the same.

    Attributes
    ----------
    now : float
        Seconds.
    busy : mapping of node name to slots
        Taken now.
    marks : Marks
    """

    state: State
    now: float
    busy: Mapping[str, int]
    marks: Marks = field(default_factory=Marks)
    _kept: dict[Hashable, Offer] = field(default_factory=dict)
    _are_needed: bool | None = None

    def of(self, record: JobRecord) -> Offer:
        """Offer of the clusters to a waiting job."""
        if self._are_needed is None:
            self._are_needed = bool(self.state.reserved) or any(
                cluster.refused or (cluster.reading is not None and cluster.reading.rules)
                for cluster in self.state.clusters.values()
            )
        is_timed = record.finish_by is not None and record.job.time_limit is None
        if not (self._are_needed or is_timed) or record.foreign:
            return NO_OFFER
        job = record.job
        who = (record.user, record.uid, record.gid, record.id if is_timed else "")
        key = (who, shape_of(record), job.time_limit, widest(job), job.clusters)
        if key not in self._kept:
            self._kept[key] = self._made(record)
        return self._kept[key]

    def _made(self, record: JobRecord) -> Offer:
        owner, job = owner_of(record), record.job
        refusing: dict[str, str] = {}
        kinds: list[Hashable] = []
        chosen: list[NodeReading] = []
        ahead: dict[str, float] = {}
        refused: frozenset[str] = frozenset()
        earliest, is_bounded = -inf, False
        least = _least_power(record, self.now)
        for name, cluster in self.state.clusters.items():
            if cluster.reading is None or (job.clusters is not None and name not in job.clusters):
                continue
            verdict = verdict_of(cluster, job, owner)
            if why := verdict.never or verdict.closed:
                refusing[name] = why
                continue
            nodes = offered(cluster, job, owner, verdict, self.busy)
            own = reservation_of(cluster, owner.batch)
            if own is not None:
                nodes = tuple(node for node in nodes if node.name in own.nodes)
                earliest = max(earliest, own.start)
            if least:
                step = self.state.settings.power_step
                nodes = tuple(node for node in nodes if cluster.power_of(node, step) >= least)
            is_bounded |= len(nodes) < len(cluster.reading.nodes)
            chosen += nodes
            ahead |= run_into(cluster, job, verdict, self.now, own)
            ahead |= run_into_reserved(self.state, name, record, self.now)
            refused |= avoided(cluster, record, self.now)
            cap = (job.features, verdict.limits) if is_capped(verdict, job) else None
            kinds.append((name, verdict.partitions, cap))
        clear = [node for node in chosen if node.name not in ahead]
        if len(clear) < len(chosen):
            later = _later(job, clear, chosen, ahead)
            if later is None:
                chosen, is_bounded = clear, True
            else:
                earliest = max(earliest, later)
        untried = [node for node in chosen if node.name not in refused]
        if len(untried) < len(chosen) and _rooms(job, untried) >= narrowest(job):
            chosen, is_bounded = untried, True
        if not is_bounded:
            return Offer(refusing=refusing, earliest=earliest)
        told = owner.batch
        key = (
            tuple(kinds),
            told.gres,
            told.constraint,
            told.reservation,
            frozenset(ahead),
            refused,
            least,
        )
        mark = self.marks.named((key, len(chosen)), _label(owner, ahead, least), chosen)
        return Offer(refusing=refusing, mark=mark, earliest=earliest)


def refused_by_all(state: State, record: JobRecord) -> str:
    """Reasons why no cluster takes a waiting job now, one by one; empty where one does."""
    owner, told = owner_of(record), []
    for name, cluster in state.clusters.items():
        if record.job.clusters is None or name in record.job.clusters:
            verdict = verdict_of(cluster, record.job, owner)
            why = record.barred.get(name) or verdict.never or verdict.closed
            if not why:
                return ""
            told.append(f"{name}: {why}")
    return "; ".join(told)


def reserved_text(state: State, record: JobRecord, now: float) -> str:
    """Reservations of operators that a job could run into, in words; empty where there are none."""
    limit_s = record.job.time_limit
    kept = [] if limit_s is None else list(_reserved_ahead(state, record, now, limit_s))
    if not kept or limit_s is None:
        return ""
    names = " and ".join(f"{each.name} ({fold(each.nodes)})" for each in kept)
    return f"with its time limit of {span_text(limit_s)} it could run into reservation {names}"


def reservation_of(cluster: ClusterState, batch: BatchOptions) -> Reservation | None:
    """The reservation that a job names, among those that are not ours anyway."""
    if not batch.reservation or cluster.reading is None:
        return None
    id = f"{cluster.reading.cluster}:{batch.reservation}"
    return next((each for each in cluster.reading.reservations if each.id == id), None)


def run_into(
    cluster: ClusterState, job: Job, verdict: Verdict, now: float, own: Reservation | None
) -> dict[str, float]:
    """Nodes on which a job that began now could run into a reservation, with that one's end.

    A batch system goes by the time limit, and not by how long the job is expected to run.
    """
    reading = cluster.reading
    if reading is None or reading.rules is None:
        return {}
    length = inf if verdict.limits.time_s is None else verdict.limits.time_s
    if job.time_limit is not None:
        length = min(length, job.time_limit + reading.rules.added_s)
    elif verdict.default_time_s is not None:
        length = min(length, verdict.default_time_s)
    ends: dict[str, float] = {}
    for kept in reading.reservations:
        counts = kept.id in reading.rules.reservations and kept is not own
        if counts and now < kept.start < now + length:
            ends |= {node: max(kept.end, ends.get(node, 0.0)) for node in kept.nodes}
    return ends


def run_into_reserved(
    state: State, cluster: str, record: JobRecord, now: float
) -> dict[str, float]:
    """Nodes on which a job that began now could run into an operator's reservation, with its end.

    By its time limit, and what a batch system that has such reservations too adds to it; one
    without a limit is planned by its expected run time alone.
    """
    reading = state.clusters[cluster].reading
    if reading is None or record.job.time_limit is None:
        return {}
    ends: dict[str, float] = {}
    here = {node.name for node in reading.nodes}
    passed = any(not each.why for each in reading.passed) and reading.rules is not None
    added_s = reading.rules.added_s if passed and reading.rules is not None else 0.0
    for kept in _reserved_ahead(state, record, now, record.job.time_limit + added_s):
        ends |= {n: max(kept.end, ends.get(n, 0.0)) for n in here.intersection(kept.nodes)}
    return ends


def _reserved_ahead(
    state: State, record: JobRecord, now: float, length_s: float
) -> Iterator[Reserved]:
    for kept in state.reserved.values():
        if now < kept.start < now + length_s and record.user not in kept.users:
            yield kept


def _later(
    job: Job,
    clear: Iterable[NodeReading],
    nodes: Iterable[NodeReading],
    ahead: Mapping[str, float],
) -> float | None:
    """Time from which reservations leave a job enough nodes; None: they do now, or never will."""
    needed = narrowest(job)
    room = _rooms(job, clear)
    if room >= needed:
        return None
    ending = (n for n in nodes if ahead.get(n.name, EVENT.high) < EVENT.high)
    for node in sorted(ending, key=lambda n: ahead[n.name]):
        room += _room(job, node)
        if room >= needed:
            return ahead[node.name]
    return None


def _rooms(job: Job, nodes: Iterable[NodeReading]) -> int:
    return sum(_room(job, node) for node in nodes)


def _room(job: Job, node: NodeReading) -> int:
    if node.state is not NodeState.UP or not set(job.features).issubset(node.features):
        return 0
    if node.memory_mb is None or not job.memory_mb_per_proc:
        return node.slots
    return min(node.slots, node.memory_mb // job.memory_mb_per_proc)


def _least_power(record: JobRecord, now: float) -> float:
    """Power below which a job without a time limit ends after its deadline; 0: none is too low."""
    job = record.job
    is_timed = record.finish_by is not None and job.time_limit is None
    if not is_timed or not isinstance(job, RigidJob | MoldableJob):
        return 0.0
    shortest = shortest_time(job)
    left_s = (record.finish_by or 0.0) - max(now, record.opens(now)) - (1.0 - job.sigma) * shortest
    return job.sigma * shortest / left_s * (1.0 - TOLERANCE) if left_s > 0.0 else inf


def _label(owner: Owner, ahead: Mapping[str, float], least: float) -> str:
    asked = [f"{k}={v}" for k, v in owner.batch.given() if k in OF_NODES]
    if least:
        asked.append("fast enough for its deadline")
    if ahead:
        asked.append("no reservation ahead")
    return "&".join(asked) or "offered"
