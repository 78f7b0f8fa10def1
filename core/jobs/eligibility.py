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

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from math import ceil, inf

from msgspec import Struct

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.messages import SHAPES, STAGES
from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.core.base.state_tables import Reserved, narrowest
from coalloc.model.errors import InputError
from coalloc.model.formats.nodeset import fold, named_nodes
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob, WorkflowJob, stays_whole
from coalloc.model.settings import ClusterConfig
from coalloc.model.shape import ONE_SLOT, demands, lays_out, most_procs
from coalloc.model.sites.batch_options import PLAIN, BatchOptions, check_options
from coalloc.model.sites.constraint import admits
from coalloc.model.sites.reading import NodeReading
from coalloc.model.sites.site_rules import (
    ANY,
    MEMORY,
    Asking,
    Limits,
    Verdict,
    judged,
    least_of,
    span_text,
)
from coalloc.model.snapshot import Reservation
from coalloc.model.values import replace


class JobOwner(Struct, frozen=True, kw_only=True):
    """Whose job it is, and what batch systems are told of it."""

    user: str = ""
    uid: int = -1
    gid: int = -1
    batch: BatchOptions = PLAIN
    data: tuple[str, ...] | None = None
    """Clusters on which its data are; None: it has none of its own."""


UNKNOWN_OWNER = JobOwner()
OLDER = Verdict(closed="its executor is older than shapes")
STAGELESS = Verdict(never="only a user's own executor copies files: name paths of its nodes")
UNSTAGED = Verdict(closed="the job's data are not there yet")
PARTLESS = Verdict(never="only jobs of this cluster alone: the clocks of its nodes differ")
EVERY = "*"
_KEY = re.compile(r"\*|[^/*\s]+(/(\*|[^/*\s]+))?")
MOST_KEPT = 10_000
"""Verdicts of one cluster that are kept."""


def owner_of(record: JobRecord) -> JobOwner:
    """The owner of a job; of one that was handed over, the batch system has judged it before."""
    if record.foreign:
        return UNKNOWN_OWNER
    return JobOwner(
        user=record.user,
        uid=record.uid,
        gid=record.gid,
        batch=record.batch,
        data=tuple(n for n, f in record.staged.items() if f) if record.is_staged else None,
    )


def verdict_of(cluster: ClusterState, job: Job, owner: JobOwner) -> Verdict:
    """Verdict of a cluster's batch system on a job; kept until its rules change."""
    if owner.data is not None:
        found = verdict_of(cluster, job, replace(owner, data=None))
        if found.never or cluster.settings.name in owner.data:
            return found
        return UNSTAGED if STAGES in (cluster.abilities or (STAGES,)) else STAGELESS
    if owner is not UNKNOWN_OWNER and (why := cluster.closed_to(owner.user)):
        return Verdict(never=why)
    if is_older(cluster, job):
        return OLDER
    is_wider = owner is not UNKNOWN_OWNER and narrowest(job) > cluster.slots
    if is_wider and not cluster.takes_parts and may_split(job):
        return PARTLESS
    if cluster.reading is None or cluster.reading.rules is None or owner is UNKNOWN_OWNER:
        return ANY
    rules, least = cluster.reading.rules, narrowest(job)
    shape = None if job.shape is ONE_SLOT else job.shape
    key = (owner, job.time_limit, widest(job), least, shape, job.memory_mb_per_proc)
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
            amounts=amounts_of(job, narrowest(job), job.shape.min_nodes),
        )
        found = judged(rules, asking)
        cluster.verdicts[key] = replace(found, limits=_narrowed(found.limits, job))
    return cluster.verdicts[key]


def account_there(accounts: Mapping[str, str], user: str, account: str) -> str:
    """The account of a cluster that stands for a job's; empty: the user's default one.

    The first of ``USER/ACCOUNT``, ``ACCOUNT``, ``USER/*`` and ``*`` that `accounts` has says it;
    where it has none, the account is the job's own.
    """
    keys = (f"{user}/{account}", account) if account else ()
    for key in (*keys, f"{user}/{EVERY}", EVERY):
        if key in accounts:
            return accounts[key]
    return account


def told(settings: ClusterConfig, record: JobRecord) -> BatchOptions:
    """Options that a cluster's batch system is told for a job."""
    account = account_there(settings.accounts, record.user, record.account)
    return record.batch.with_account(account)


def check_accounts(accounts: Mapping[str, object], where: str) -> None:
    """Refuse keys of another form, and what is no account."""
    for key, value in accounts.items():
        if not _KEY.fullmatch(key):
            forms = "ACCOUNT, USER/ACCOUNT, USER/* or *"
            raise InputError(f"{where}.{key}", f"is none of {forms}")
        if not isinstance(value, str):
            raise InputError(f"{where}.{key}", f"{value!r} is not a text")
        check_options(BatchOptions(account=value), f"{where}.{key}")


def amounts_of(job: Job, procs: int, nodes: int) -> Counter[str]:
    """Memory and resources of so many processes of a job on so many nodes."""
    shape = job.shape
    out = Counter({MEMORY: job.memory_mb_per_proc * procs + shape.memory_mb_per_node * nodes})
    for amounts, times in ((shape.per_proc, procs), (shape.per_node, nodes)):
        out.update({name: count * times for name, count in demands(amounts).items()})
    return out


def _narrowed(limits: Limits, job: Job) -> Limits:
    """Limits with those on a job's resources as limits on its processes and nodes."""
    each, here = amounts_of(job, 1, 0), amounts_of(job, 0, 1)
    nodes, procs = limits.nodes, limits.procs
    for name, most in limits.resources.items():
        if each[name]:
            left = max(most - here[name] * job.shape.min_nodes, 0) // each[name]
            procs = least_of(procs, left * max(1, job.shape.cpus_per_proc))
        if here[name]:
            nodes = least_of(nodes, max(most - each[name], 0) // here[name])
    return replace(limits, nodes=nodes, procs=procs)


def is_older(cluster: ClusterState, job: Job) -> bool:
    """Whether a job, or a task of it, has a shape, which the cluster's executor does not know."""
    if cluster.abilities is None or SHAPES in cluster.abilities:
        return False
    tasks = job.tasks if isinstance(job, WorkflowJob) else ()
    return job.shape != ONE_SLOT or any(task.shape not in {None, ONE_SLOT} for task in tasks)


def may_split(job: Job) -> bool:
    """Whether a job may be co-allocated."""
    return isinstance(job, RigidJob | MoldableJob) and widest(job) > 1 and not stays_whole(job)


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
    """The nodes in the right partitions, that the constraint admits and the job does not exclude.

    None where one that it lists is not among them, all where nothing is asked; kept until the nodes
    change.
    """
    assert cluster.reading is not None
    excluded, listed = (named_nodes(batch.passed, option) for option in ("exclude", "nodelist"))
    asks = verdict.partitions is not None or batch.constraint or excluded or listed
    if cluster.reading.rules is None or not asks:
        return cluster.reading.nodes
    key = (verdict.partitions, batch.constraint, excluded, listed)
    if key not in cluster.openings:
        if len(cluster.openings) >= MOST_KEPT:
            cluster.openings.clear()
        found = tuple(node for node in cluster.reading.nodes if is_open(verdict, batch, node))
        cluster.openings[key] = found if listed <= {plain_name(node) for node in found} else ()
    return cluster.openings[key]


def is_open(verdict: Verdict, batch: BatchOptions, node: NodeReading) -> bool:
    """Whether a node is in the right partitions, admitted by the constraint and not excluded."""
    partitions = verdict.partitions
    is_in = partitions is None or not set(partitions).isdisjoint(node.partitions)
    is_admitted = not batch.constraint or admits(batch.constraint, node.features)
    return is_in and is_admitted and plain_name(node) not in named_nodes(batch.passed, "exclude")


def plain_name(node: NodeReading) -> str:
    """A node's name in its batch system, without that of its cluster."""
    return node.name.rpartition("/")[2]


def offered(
    cluster: ClusterState,
    job: Job,
    owner: JobOwner,
    verdict: Verdict,
    busy: Mapping[str, int],
) -> tuple[NodeReading, ...]:
    """The nodes that a cluster offers a job.

    Of more than may be had, the freest are offered, by the slots that are `busy` now; where the job
    lists nodes, these, and as many more as it needs.
    """
    nodes = open_nodes(cluster, verdict, owner.batch)
    if listed := named_nodes(owner.batch.passed, "nodelist"):
        nodes = _with_listed(job, nodes, listed, busy)
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


def _with_listed(
    job: Job, nodes: tuple[NodeReading, ...], listed: frozenset[str], busy: Mapping[str, int]
) -> tuple[NodeReading, ...]:
    """The nodes that a job lists and, where they are too few, just so many more, the freest first.

    All nodes where even so it does not fit: no more than its layout is known then.
    """
    needed, chosen, room = narrowest(job), list[NodeReading](), list[int]()
    suiting = [node for node in nodes if set(job.features).issubset(node.features)]
    suiting.sort(key=lambda n: (plain_name(n) not in listed, busy.get(n.name, 0) - n.slots))
    left = needed
    for node in suiting:
        if left <= 0 and len(room) >= job.shape.min_nodes and plain_name(node) not in listed:
            break
        chosen.append(node)
        room.append(most_procs(job.shape, job.memory_mb_per_proc, node))
        left -= room[-1]
    return tuple(chosen) if lays_out(job.shape, needed, room) else nodes


def bound_text(verdict: Verdict, job: Job) -> str:
    """Limit of a cluster on a job's nodes or processes, in words, where that is too few."""
    limits, wanted = verdict.limits, widest(job)
    asked = amounts_of(job, wanted, job.shape.min_nodes) if limits.resources else {}
    for name, most in limits.resources.items():
        if asked.get(name, 0) > most:
            return f"at most {most} {'MiB' if name == MEMORY else name} at once"
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
    asked += [option for option in batch.passed if option.startswith("--nodelist=")]
    return " and ".join([*asked, *([f"partition {partitions}"] if partitions else [])])


def is_open_to(name: str, cluster: ClusterState, job: Job, user: str) -> bool:
    """Whether a job names this cluster; one that names none may have all that are not others'."""
    return not cluster.closed_to(user) if job.clusters is None else name in job.clusters


def refused_by_all(state: State, record: JobRecord) -> str:
    """Reasons why no cluster takes a waiting job now, one by one; empty where one does."""
    owner, told = owner_of(record), []
    for name, cluster in state.clusters.items():
        if is_open_to(name, cluster, record.job, record.user):
            verdict = verdict_of(cluster, record.job, owner)
            why = record.barred.get(name) or refusal_now(cluster, verdict)
            if not why:
                return ""
            told.append(f"{name}: {why}")
    return "; ".join(told) or "every cluster belongs to another user"


def refusal_now(cluster: ClusterState, verdict: Verdict) -> str:
    """Reason why a cluster takes no job of this verdict now; one that may wait there it takes."""
    is_queue = cluster.reading is not None and cluster.reading.queues
    return verdict.never or verdict.closed or ("" if is_queue else verdict.full)


def reserved_text(state: State, record: JobRecord, now: float) -> str:
    """Reservations of operators that a job could run into, in words; empty where there are none."""
    kept = _reserved_ahead(state, record, now)
    names = " and ".join(f"{each.name} ({fold(each.nodes)})" for each in kept)
    limit = span_text(record.job.time_limit or 0.0)
    return names and f"with its time limit of {limit} it could run into reservation {names}"


def reservation_of(cluster: ClusterState, batch: BatchOptions) -> Reservation | None:
    """The reservation that a job names, among those that are not ours anyway."""
    if not batch.reservation or cluster.reading is None:
        return None
    id = f"{cluster.reading.cluster}:{batch.reservation}"
    return next((each for each in cluster.reading.reservations if each.id == id), None)


def run_into(
    state: State, name: str, record: JobRecord, verdict: Verdict, now: float
) -> dict[str, float]:
    """Nodes of a cluster on which a job that began now could run into a reservation, with its end.

    Batch systems, and operators' reservations here, go by the time limit, and not by how long the
    job is expected to run. Where it has none, operators' are planned around by its expected run.
    """
    reading, job = state.clusters[name].reading, record.job
    own = reservation_of(state.clusters[name], record.batch)
    if reading is None:
        return {}
    ends: dict[str, float] = {}
    for asked in _reserved_ahead(state, record, now):
        here = {node.name for node in reading.nodes}.intersection(asked.nodes)
        ends |= {node: max(asked.end, ends.get(node, 0.0)) for node in here}
    if reading.rules is None:
        return ends
    length = inf if verdict.limits.time_s is None else verdict.limits.time_s
    if job.time_limit is not None:
        step_s = reading.rules.limit_step_s
        limit_s = ceil(job.time_limit / step_s) * step_s if step_s else job.time_limit
        length = min(length, limit_s)
    elif verdict.default_time_s is not None:
        length = min(length, verdict.default_time_s)
    for kept in reading.reservations:
        counts = kept.id in reading.rules.reservations and kept is not own
        if counts and now < kept.start < now + length:
            ends |= {node: max(kept.end, ends.get(node, 0.0)) for node in kept.nodes}
    return ends


def _reserved_ahead(state: State, record: JobRecord, now: float) -> Iterator[Reserved]:
    """Reservations of operators that a job which began now could run into, by its time limit."""
    until = now + (record.job.time_limit or 0.0)
    for kept in state.maintenance.reserved.values():
        if now < kept.start < until and record.user not in kept.users:
            yield kept
