"""Admission of a submit, and of a job to clusters that refuse it.

The formats say what a job is (`model.job_json`); this is what is refused besides: what a kind of
job may not ask for, and what can never run. A job that a cluster will not take goes elsewhere, or
is held with the reasons of all. A refusal that lasts (no association, a partition or a QOS that is
forbidden) is not tried again; one that is owed to the moment (over a limit of accounts) is waited
for. `release` lets a job try every cluster again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coalloc.core.base.effects import Wake
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.requests import Submit, SubmitWorkflow
from coalloc.core.base.state import State
from coalloc.core.jobs import deadlines
from coalloc.core.jobs.eligibility import (
    UNKNOWN_OWNER,
    JobOwner,
    bound_text,
    is_open_to,
    nodes_text,
    open_nodes,
    owner_of,
    verdict_of,
)
from coalloc.core.jobs.ends import end_waiting
from coalloc.core.jobs.suitable_nodes import fit, lacks, room_of, sizes_of, suitable
from coalloc.model.errors import InputError
from coalloc.model.event_kinds import EventKind
from coalloc.model.flows import APART, homes, streams
from coalloc.model.jobs import (
    DivisibleJob,
    Job,
    MoldableJob,
    RigidJob,
    Task,
    WorkflowJob,
    stays_whole,
)
from coalloc.model.shape import ONE_SLOT
from coalloc.model.sites.batch_options import BatchOptions
from coalloc.model.sites.launch_limits import check_launch
from coalloc.model.sites.parts import ADMIN, CANCELLED_THERE, ENDED_BY_ADMIN, LASTING
from coalloc.model.sites.staging import check_copies
from coalloc.model.sites.streams import PIPES, PTY
from coalloc.model.split import TOLERANCE, low_side, split, split_task
from coalloc.model.values import replace

NOT_ACCEPTED = "not_accepted"
"""Why a job is held: no cluster takes it."""


def check(command: Submit, job: Job, max_tasks: int) -> None:
    """Refuse what could be queued, and not be run as asked; `max_tasks` are of one workflow."""
    commands = command.commands if isinstance(command, SubmitWorkflow) else {}
    check_launch(command.launch, commands)
    if command.retries < 0:
        raise InputError("retries", f"{command.retries} is below 0")
    if not isinstance(job, WorkflowJob | DivisibleJob) and (command.retries or command.keep_going):
        option = "retries" if command.retries else "keep_going"
        raise InputError(option, "is for workflows and divisible jobs")
    if command.throttle < 0:
        raise InputError("throttle", f"{command.throttle} is below 0")
    if command.throttle and not command.array:
        raise InputError("throttle", "is for arrays")
    deadlines.check(command.finish_by)
    if command.once and not isinstance(job, RigidJob | MoldableJob):
        raise InputError("once", "is for rigid and moldable jobs")
    check_passed(command.batch, job, once=command.once)
    if command.stream:
        if not isinstance(job, RigidJob | MoldableJob) or command.array:
            raise InputError("stream", "is for rigid and moldable jobs that are no array")
        if command.stream not in {PIPES, PTY} or (command.stream == PTY and not command.once):
            raise InputError("stream", "is neither pipes, nor pty of a command started once")
    if command.is_staged and (not isinstance(job, RigidJob | MoldableJob) or command.array):
        raise InputError("stage_in", "is for rigid and moldable jobs that are no array")
    check_copies("stage_in", command.stage_in, inside=1)
    check_copies("stage_out", command.stage_out, inside=0)
    if isinstance(job, WorkflowJob):
        _check_workflow(command, job, max_tasks)
    elif isinstance(command, SubmitWorkflow):
        raise InputError("job.kind", "is not workflow")
    elif isinstance(job, DivisibleJob):
        if command.array:
            raise InputError("array", "a divisible job cannot be an array")
        if job.time_limit is not None and job.time_limit < job.chunk_s:
            limit = f"the time limit of a piece, {job.time_limit:g} s"
            raise InputError("job.chunk_s", f"{job.chunk_s:g} s is longer than {limit}")


def check_passed(batch: BatchOptions, job: Job, *, once: bool) -> None:
    """Refuse options that one batch system judges, of a job that may run on several clusters."""
    if batch.passed and not once and not stays_whole(job) and len(job.clusters or ()) != 1:
        why = "is for jobs of one cluster: name it, or ask for one_cluster"
        raise InputError("batch.passed", f"{batch.passed[0]} {why}")


def _check_workflow(command: Submit, job: WorkflowJob, max_tasks: int) -> None:
    if not isinstance(command, SubmitWorkflow):
        raise InputError("job.kind", "a workflow is submitted with submit_workflow")
    if job.started:
        raise InputError("job.started", "is set by the daemon")
    if len(job.tasks) > max_tasks:
        raise InputError("job.tasks", f"{len(job.tasks)} tasks, at most {max_tasks}")
    if command.array:
        raise InputError("array", "a workflow cannot be an array")
    names = {task.id for task in job.tasks}
    unknown = next((name for name in command.commands if name not in names), None)
    if unknown is not None:
        raise InputError(f"commands.{unknown}", "there is no such task")
    if not command.launch.argv:
        missing = next((task.id for task in job.tasks if not command.commands.get(task.id)), None)
        if missing is not None:
            raise InputError(f"commands.{missing}", "is missing: nothing says what this task runs")


def never_fits(state: State, job: Job, owner: JobOwner = UNKNOWN_OWNER) -> str:
    """Reason why the job cannot run on all that exists, whatever its state; empty if it can.

    The rules of batch systems judge it by its owner; without one, they have done so.
    """
    takes = suitable(state, job, owner)
    if takes is None:
        return ""  # Unknown is not "no": the cluster may have what is asked for.
    slots = {name: room_of(nodes, job.shape) for name, nodes in takes.items()}
    lacking = _lacking(state, job, slots, owner)
    rules = _rules_against(state, job, owner) if lacking else ""
    if not rules:
        return lacking
    # Where no cluster takes it at all, its size is not what it lacks.
    return f"{lacking} ({rules})" if any(slots.values()) else rules


def unbounded_memory(state: State, job: Job) -> str:
    """Say where a job's memory is counted and may be exceeded; empty: nowhere, or it has none."""
    named = job.clusters or state.clusters
    read = ((name, each.reading) for name, each in state.clusters.items() if name in named)
    rules = {name: reading.rules for name, reading in read if reading is not None}
    names = [name for name, each in rules.items() if each is not None and not each.bounds_memory]
    if not (job.memory_mb_per_proc or job.shape.memory_mb_per_node) or not names:
        return ""
    return f"memory is planned for, but not enforced on {', '.join(names)}"


def _rules_against(state: State, job: Job, owner: JobOwner) -> str:
    """Objections of the clusters' batch systems to a job, cluster by cluster."""
    told = []
    for name, cluster in state.clusters.items():
        is_named = is_open_to(name, cluster, job, owner.user)
        if not cluster.configured or not is_named or cluster.reading is None:
            continue
        verdict = verdict_of(cluster, job, owner)
        why = verdict.never or bound_text(verdict, job)
        if not why and not open_nodes(cluster, verdict, owner.batch):
            why = f"no node there has {nodes_text(verdict, owner.batch)}"
            why = why if cluster.reading.nodes else "it has no nodes now"
        if why:
            told.append(f"{name}: {why}")
    return "; ".join(told)


def _lacking(state: State, job: Job, slots: Mapping[str, int], owner: JobOwner) -> str:
    """Reason why the job cannot run on these slots, however free; empty if it can."""
    match job:
        case RigidJob(procs=procs, proc_gbps=gbps):
            exist = _reachable(job, slots)
        case MoldableJob(min_procs=procs, proc_gbps=wanted):
            exist = _reachable(job, slots)
            gbps = wanted or 0.0
        case WorkflowJob():
            return _tasks_lack(state, job, owner)
        case DivisibleJob():
            procs, gbps, exist = 1, 0.0, sum(slots.values())
    if job.shape != ONE_SLOT and (short := lacks(state, job, owner, job.shape, procs)):
        unknown = _features_of_no_node(state, job)
        return f"{short}; no node has {unknown}" if unknown else short
    if procs <= exist:
        return _never_carried(state, procs, gbps, slots)
    what = "1 process" if procs == 1 else f"{procs} processes"
    if job.memory_mb_per_proc:
        what += f" of {job.memory_mb_per_proc} MiB"
    unknown = _features_of_no_node(state, job)
    if unknown:
        where = f" on {', '.join(job.clusters)}" if job.clusters else ""
        return f"needs {what} with {'&'.join(job.features)}; no node{where} has {unknown}"
    kind = "suitable " if job.features or job.memory_mb_per_proc or job.clusters else ""
    if isinstance(job, RigidJob | MoldableJob) and job.one_cluster and procs <= sum(slots.values()):
        return f"needs {what} on one cluster; the largest has {exist} {kind}slots"
    return f"needs {what}; {exist} {kind}slots exist"


def _tasks_lack(state: State, job: WorkflowJob, owner: JobOwner) -> str:
    """Reason why some tasks, or those that share data, cannot run on the nodes; empty if none."""
    known = suitable(state, job, owner) or {}
    links = {name: state.clusters[name].settings.link_capacity_gbps for name in known}

    def lack(task: Task, names: Iterable[str]) -> str:
        procs, shape = task.min_procs, job.shape if task.shape is None else task.shape
        takes = suitable(state, job, owner, shape) or {}
        free = [room_of(takes[name], shape) for name in names]
        each = (size for name in names for size in sizes_of(takes[name]))
        if shape != ONE_SLOT and not fit(shape, procs, each):
            short = lacks(state, job, owner, shape, procs)
            return f"task {task.id} {short or 'needs nodes of several clusters'}"
        if procs > sum(free):
            return f"task {task.id} needs {procs} processes; {sum(free)} slots exist"
        if split_task(procs, free, [links[name] for name in names], task.comm_gb) is None:
            several = f"task {task.id} needs {procs} processes, and no cluster has more than"
            return f"{several} {max(free)} suitable slots; links of 0 Gbit/s carry no part of it"
        return ""

    every = list(links)
    found = [
        every if home is None else [name for name in home if name in links]
        for home in homes(job, links)
    ]
    for tasks in streams(job):
        wide = sorted(tasks, key=lambda task: -task.min_procs)
        if all(any(lack(task, home) for task in wide) for home in found):
            return next(filter(None, (lack(task, every) for task in wide)), APART)
    return ""


def _reachable(job: RigidJob | MoldableJob, slots: Mapping[str, int]) -> int:
    """Slots that one start of a job may use: of all clusters, or of the largest."""
    return max(slots.values(), default=0) if stays_whole(job) else sum(slots.values())


def _features_of_no_node(state: State, job: Job) -> str:
    known: set[str] = set()
    for name, cluster in state.clusters.items():
        if job.clusters is None or name in job.clusters:
            known.update(*(node.features for node in cluster.nodes))
    return ", ".join(name for name in job.features if name not in known)


def _never_carried(state: State, procs: int, gbps: float, slots: Mapping[str, int]) -> str:
    """Reason why the idle links cannot carry the job however it is split; empty if they can."""
    largest = max(slots.values(), default=0)
    if procs <= largest:
        return ""
    links = [state.clusters[name].settings.link_capacity_gbps for name in slots]
    low = [low_side(procs, gbps, link, link * TOLERANCE) for link in links]
    if split(procs, list(slots.values()), low) is not None:
        return ""
    narrow = ", ".join(f"{name} {link:g}" for name, link in zip(slots, links, strict=True))
    return (
        f"needs {procs} processes, and no cluster has more than {largest} suitable slots; "
        f"at {gbps:g} Gbit/s each, no split of them fits the links ({narrow} Gbit/s)"
    )


def has_other(state: State, record: JobRecord, cluster: str) -> bool:
    """Whether a job could run without this cluster."""
    left, lacking = _rest(state, record, {**record.barred, cluster: ""})
    return bool(left) and not lacking


def _rest(
    state: State, record: JobRecord, barred: Mapping[str, str]
) -> tuple[tuple[str, ...], str]:
    """The clusters that are left to a job, and why it could not run there; empty: it could."""
    allowed = record.job.clusters
    names = state.clusters if allowed is None else allowed
    left = tuple(name for name in names if name not in barred and name in state.clusters)
    rest = replace(record.job, clusters=left)
    return left, never_fits(state, rest, owner_of(record)) if left else ""


def bar(
    state: State, record: JobRecord, now: float, cluster: str, reason: str, detail: str
) -> bool:
    """Take in a refusal of a part; whether it lasts, and was seen to here.

    Tasks, pieces and jobs that were handed over are left to their back-off.
    """
    if not (reason in LASTING or reason in ADMIN) or record.flow or record.foreign:
        return False
    barred = {**record.barred, cluster: detail or reason}
    left, lacking = _rest(state, record, barred)
    told = "; ".join(f"{name}: {why}" for name, why in barred.items())
    record = replace(record.unplaced(), refusals=0, not_before=now, barred=barred)
    if left and not lacking:
        detail = f"{cluster}: {detail or reason}"
        state.put(replace(record, reason="backing_off", detail=detail))
        state.emit(now, EventKind.JOB_REQUEUED, record.id, detail=detail, pause_s=0.0)
        state.log("cluster_barred", level="warning", job=record.id, cluster=cluster, why=detail)
        state.marked.backing_off.add(record.id)
        state.out.append(Wake(at=now))
        return True
    why = f"{told}; without {', '.join(barred)} it {lacking}" if lacking else told
    if reason == ENDED_BY_ADMIN:
        end_waiting(state, record, now, JobState.CANCELLED, why, CANCELLED_THERE)
        return True
    state.put(replace(record, state=JobState.HELD, reason=NOT_ACCEPTED, detail=why))
    state.tell(now, EventKind.JOB_HELD, record.id, level="warning", why=why)
    return True
