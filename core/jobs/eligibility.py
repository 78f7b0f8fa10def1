"""Eligibility of clusters and nodes for a job, by the rules of the clusters' batch systems.

All policies respect it without knowing of it: clusters that would not take a job are taken from
those that may run it, and where only some of the nodes may, these get a feature that the job then
asks for (`core.jobs.offers`). So a job is never planned where it would be refused, as far as the
rules are known; what they do not tell is learnt from refusals (`core.commands.admission.bar`).

Notes
-----
A cluster that lets a job have only so many nodes, or processes, offers it no more: those that are
free first. The part that the job has there then keeps to the bound, whatever else it gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil, inf

from msgspec import Struct

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.messages import SHAPES
from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.core.base.state_tables import narrowest
from coalloc.core.jobs.batch_accounts import account_there
from coalloc.model.formats.nodeset import fold
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob, WorkflowJob
from coalloc.model.shape import ONE_SLOT
from coalloc.model.sites.batch_options import PLAIN, BatchOptions
from coalloc.model.sites.constraint import admits
from coalloc.model.sites.reading import NodeReading
from coalloc.model.sites.reserved import Reserved
from coalloc.model.sites.site_rules import ANY, Asking, Verdict, judged, span_text
from coalloc.model.snapshot import Reservation


class JobOwner(Struct, frozen=True, kw_only=True):
    """Whose job it is, and what batch systems are told of it."""

    user: str = ""
    uid: int = -1
    gid: int = -1
    batch: BatchOptions = PLAIN


UNKNOWN_OWNER = JobOwner()
OLDER = Verdict(closed="its executor is older than shapes")
MOST_KEPT = 10_000
"""Verdicts of one cluster that are kept."""


def owner_of(record: JobRecord) -> JobOwner:
    """The owner of a job; of one that was handed over, the batch system has judged it before."""
    if record.foreign:
        return UNKNOWN_OWNER
    return JobOwner(user=record.user, uid=record.uid, gid=record.gid, batch=record.batch)


def verdict_of(cluster: ClusterState, job: Job, owner: JobOwner) -> Verdict:
    """Verdict of a cluster's batch system on a job; kept until its rules change."""
    if is_older(cluster, job):
        return OLDER
    if cluster.reading is None or cluster.reading.rules is None or owner is UNKNOWN_OWNER:
        return ANY
    rules, least = cluster.reading.rules, narrowest(job)
    shape = None if job.shape is ONE_SLOT else job.shape
    key = (owner, job.time_limit, widest(job), least, shape)
    if key not in cluster.verdicts:
        if len(cluster.verdicts) >= MOST_KEPT:
            cluster.verdicts.clear()
        account = account_there(cluster.settings.accounts, owner.user, owner.batch.account)
        nodes = cluster.reading.nodes
        if job.shape.cpus_per_proc:
            each = min((node.slots / (node.cpus or node.slots) for node in nodes), default=1.0)
            least = ceil(least * job.shape.cpus_per_proc * each)
        asking = Asking(
            user=owner.user,
            uid=owner.uid,
            gid=owner.gid,
            batch=owner.batch.with_account(account),
            time_limit_s=job.time_limit,
            nodes=most_nodes(job, widest(job)),
            # The part here of a job that is wider than the cluster may be of any width.
            least=least if least <= sum(node.slots for node in nodes) else 1,
        )
        cluster.verdicts[key] = judged(rules, asking)
    return cluster.verdicts[key]


def is_older(cluster: ClusterState, job: Job) -> bool:
    """Whether a job, or a task of it, has a shape, which the cluster's executor does not know."""
    if cluster.abilities is None or SHAPES in cluster.abilities:
        return False
    tasks = job.tasks if isinstance(job, WorkflowJob) else ()
    return job.shape != ONE_SLOT or any(task.shape not in {None, ONE_SLOT} for task in tasks)


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


def most_nodes(job: Job, procs: int) -> int:
    """Nodes of so many processes of a job, at the most."""
    return procs if job.shape.max_nodes is None else min(procs, job.shape.max_nodes)


def open_nodes(
    cluster: ClusterState, verdict: Verdict, batch: BatchOptions
) -> tuple[NodeReading, ...]:
    """The nodes in the right partitions, that the constraint admits.

    All of them where nothing is asked; kept until the nodes change.
    """
    assert cluster.reading is not None
    is_known = cluster.reading.rules is not None
    if not is_known or (verdict.partitions is None and not batch.constraint):
        return cluster.reading.nodes
    key = (verdict.partitions, batch.constraint)
    if key not in cluster.openings:
        partitions = frozenset(verdict.partitions or ())
        cluster.openings[key] = tuple(
            node
            for node in cluster.reading.nodes
            if (verdict.partitions is None or not partitions.isdisjoint(node.partitions))
            and (not batch.constraint or admits(batch.constraint, node.features))
        )
    return cluster.openings[key]


def offered(
    cluster: ClusterState,
    job: Job,
    owner: JobOwner,
    verdict: Verdict,
    busy: Mapping[str, int],
) -> tuple[NodeReading, ...]:
    """The nodes that a cluster offers a job.

    Of more than may be had, the freest are offered, by the slots that are `busy` now.
    """
    nodes = open_nodes(cluster, verdict, owner.batch)
    if not bound_text(verdict, job):
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
    if limits.nodes is not None and limits.nodes < most_nodes(job, wanted):
        return f"at most {limits.nodes} {'node' if limits.nodes == 1 else 'nodes'} at once"
    if limits.procs is not None and limits.procs < wanted * max(1, job.shape.cpus_per_proc):
        what = "slots" if job.shape.cpus_per_proc else "processes"
        return f"at most {limits.procs} {what} at once"
    return ""


def nodes_text(verdict: Verdict, batch: BatchOptions) -> str:
    """Needs of a job on its nodes, in words."""
    partitions = ", ".join(verdict.partitions or ())
    asked = [f"--constraint={batch.constraint}"] if batch.constraint else []
    return " and ".join([*asked, *([f"partition {partitions}"] if partitions else [])])


def refused_by_all(state: State, record: JobRecord) -> str:
    """Reasons why no cluster takes a waiting job now, one by one; empty where one does."""
    owner, told = owner_of(record), []
    for name, cluster in state.clusters.items():
        if record.job.clusters is None or name in record.job.clusters:
            verdict = verdict_of(cluster, record.job, owner)
            why = record.barred.get(name) or refusal_now(cluster, verdict)
            if not why:
                return ""
            told.append(f"{name}: {why}")
    return "; ".join(told)


def refusal_now(cluster: ClusterState, verdict: Verdict) -> str:
    """Reason why a cluster takes no job of this verdict now; one that may wait there it takes."""
    is_queue = cluster.reading is not None and cluster.reading.queues
    return verdict.never or verdict.closed or ("" if is_queue else verdict.full)


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
        step_s = reading.rules.limit_step_s
        limit_s = ceil(job.time_limit / step_s) * step_s if step_s else job.time_limit
        length = min(length, limit_s)
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

    By its time limit; one without a limit is planned by its expected run time alone.
    """
    reading = state.clusters[cluster].reading
    if reading is None or record.job.time_limit is None:
        return {}
    ends: dict[str, float] = {}
    here = {node.name for node in reading.nodes}
    for kept in _reserved_ahead(state, record, now, record.job.time_limit):
        ends |= {n: max(kept.end, ends.get(n, 0.0)) for n in here.intersection(kept.nodes)}
    return ends


def _reserved_ahead(
    state: State, record: JobRecord, now: float, length_s: float
) -> Iterator[Reserved]:
    for kept in state.maintenance.reserved.values():
        if now < kept.start < now + length_s and record.user not in kept.users:
            yield kept
