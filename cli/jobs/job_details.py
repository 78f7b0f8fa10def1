"""``coalloc show``: one job as a block of text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from coalloc.cli.events import fields_text
from coalloc.cli.output import aligned, block, figure, node_set, precise, reason
from coalloc.core.base.records import PartRecord
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob, WorkflowJob, span
from coalloc.model.output_names import DEFAULT_OUTPUT
from coalloc.model.speedup import AmdahlSpeedup, DowneySpeedup, Speedup, TableSpeedup
from coalloc.runtime.texts import between, instant, length, printable
from coalloc.wire.job_rows import JobDetails, PieceRow, TaskRow

ORIGINS = {
    "user": "given",
    "defaults": "the site's default",
    "history": "from earlier runs of this command",
    "time_limit": "the time limit stands in",
    "built-in": "built-in default",
}
LONGEST_COMMAND = 300
TASK_HEADERS = ("JOBID", "TASK", "STATE", "TRIES", "START", "RUN", "NODES", "REASON")
PIECE_HEADERS = ("JOBID", "CHUNKS", *TASK_HEADERS[2:])


def job_lines(job: JobDetails, now: float) -> list[str]:
    """Everything known of a job, for people."""
    lines = [f"Job {job.id}  {printable(job.name)}  {job.state}"]
    lines += block(_state(job, now))
    lines += ["", "Asks for", *block(_asks(job))]
    lines += ["", "Executes", *block(_executes(job))]
    if job.tasks:
        lines += ["", "Tasks", *_table(TASK_HEADERS, map(_task, job.tasks))]
    if job.pieces:
        lines += ["", "Pieces", *_table(PIECE_HEADERS, map(_piece, job.pieces))]
    if job.record.parts:
        lines += ["", "Parts", *(_part(part, job.time_limit) for part in job.record.parts)]
    if job.events:
        lines += ["", "History", *(_event(event) for event in job.events)]
    return lines


def _state(job: JobDetails, now: float) -> Iterator[tuple[str, Any]]:
    record = job.record
    yield "user", f"{job.user} ({record.uid}:{record.gid})" if record.uid >= 0 else job.user
    if job.origin:
        yield "handed over", f"in {job.origin}, where it is job {job.foreign}"
    if job.progress is not None:
        counts = job.progress
        done = f"{counts.completed} of {counts.total} {counts.unit} completed"
        text = f"{done}, {counts.running} placed"
        yield "progress", text + (f", {counts.failed} failed" if counts.failed else "")
        yield "after a failure", _after_failure(job)
    if (rest := record.rest) is not None:
        ends = "".join(f", {count} {state}" for state, count in rest.ends.items())
        yield "array", f"{rest.members} jobs, {rest.left} not in the queue yet{ends}"
    if job.task:
        yield "task", f"{job.task} of workflow {job.id.partition('.')[0]}"
    if record.chunks:
        chunks = f"{span(record.chunk_first, record.chunks)} ({record.chunks} in all)"
        yield "chunks", f"{chunks} of divisible job {job.id.partition('.')[0]}"
    if job.state in {"pending", "held"}:
        yield "reason", reason(job.reason, job.detail)
    else:
        yield "reason", ": ".join(dict.fromkeys(text for text in (job.reason, job.detail) if text))
    yield "submitted", instant(job.submitted)
    if job.state in {"pending", "held"}:
        likely = between(job.start_early, job.start_late, now)
        start = instant(job.start_estimate, "not known")
        yield "expected start", start + (f"  ({likely})" if likely else "")
    if job.started is not None:
        yield "started", precise(job.started)
        end = now if job.ended is None else job.ended
        planned = f" (planned {length(record.planned)})" if record.planned else ""
        yield "run time", f"{length(end - job.started)}{planned}"
    if job.ended is not None:
        yield "ended", precise(job.ended)
    yield "exit code", job.exit_code
    if job.skew_ms is not None:
        yield "start skew", f"{job.skew_ms:g} ms between the first processes of its parts"
    yield "nodes", node_set(job.nodes)
    if record.link_gbps:
        loads = (f"{name} {figure(gbps)} Gbit/s" for name, gbps in record.link_gbps.items())
        yield "link load", ", ".join(loads)
    if record.round:
        yield "decided", f"round {record.round}, policy {record.policy}"
    if record.attempt > 1 or record.refusals:
        yield "attempts", f"{record.attempt}, {record.refusals} refused in a row"


def _after_failure(job: JobDetails) -> str:
    again = f"{job.retries} more tries, then " if job.retries else ""
    part = "piece" if isinstance(job.record.job, DivisibleJob) else "task"
    return again + ("the others go on" if job.keep_going else f"no further {part} is started")


def _asks(job: JobDetails) -> Iterator[tuple[str, Any]]:
    asked = job.record.job
    yield from _size(job, asked)
    limit = asked.time_limit
    yield "time limit", "none" if limit is None else _valued(job, "time_limit", length(limit))
    if isinstance(asked, RigidJob):
        yield "base time", _valued(job, "base_time", f"{figure(asked.base_time)} s")
    yield "sigma", _valued(job, "sigma", figure(asked.sigma))
    parallel = asked if isinstance(asked, RigidJob | MoldableJob) else None
    if parallel is not None and parallel.proc_gbps is not None:
        rate = f"{figure(parallel.proc_gbps)} Gbit/s per process"
        yield "bandwidth", _valued(job, "proc_gbps", rate)
    if asked.memory_mb_per_proc:
        yield "memory", f"{asked.memory_mb_per_proc} MiB per process"
    for key, value in to_builtins(asked.shape).items():
        counts = value.items() if isinstance(value, dict) else ()
        yield key.replace("_", " "), ", ".join(f"{n} {name}" for name, n in counts) or value
    yield "features", ", ".join(asked.features)
    clusters = ", ".join(asked.clusters or ())
    if parallel is not None and parallel.one_cluster:
        clusters = f"one of {clusters}" if clusters else "one of all"
    yield "clusters", clusters
    yield from job.batch.given()
    yield "passed on", " ".join(job.batch.passed)
    if asked.weight != 1.0:
        yield "weight", figure(asked.weight)
    if asked.earliest > job.submitted + 1.0:
        yield "not before", instant(asked.earliest)
    if job.finish_by is not None:
        yield "deadline", instant(job.finish_by)
    if job.throttle:
        yield "at once", f"at most {job.throttle} of its array"
    for way, copies in (("copied in", job.stage_in), ("copied back", job.stage_out)):
        yield way, ", ".join(f"{source} to {target or '.'}" for source, target in copies)
    if job.mail_type:
        yield "mail", f"{', '.join(job.mail_type)} to {job.mail_user or job.user}"
    yield "if preempted", "run again from its beginning" if job.requeue else ""
    yield "after", ", ".join(f"{kind}:{other}" for kind, other in job.needs)


def _size(job: JobDetails, asked: Job) -> Iterator[tuple[str, Any]]:
    match asked:
        case WorkflowJob(tasks=tasks, edges=edges):
            yield "tasks", f"{len(tasks)}, with {len(edges)} edges"
        case MoldableJob(min_procs=low, max_procs=high, speedup=speedup):
            yield "processes", f"{low} to {high}"
            yield "speed-up", _valued(job, "speedup", _speedup(speedup))
            yield "repaired", job.record.sources.get("repaired")
        case DivisibleJob(work=work, chunk_s=chunk):
            count = 0 if job.progress is None else job.progress.total
            yield "work", f"{figure(work)} s in {count} chunks of {figure(chunk)} s"
        case RigidJob(procs=procs):
            yield "processes", procs


def _valued(job: JobDetails, key: str, text: str) -> str:
    origin = job.record.sources.get(key)
    fit = job.record.sources.get(f"{key}_fit")
    if fit is not None:
        return f"{text}  (fitted from {fit})"
    return text if origin is None else f"{text}  ({ORIGINS.get(origin, origin)})"


def _speedup(model: Speedup) -> str:
    match model:
        case AmdahlSpeedup(time_1=time, parallel_fraction=share):
            return f"amdahl, {figure(time)} s on one process, fraction {figure(share)}"
        case DowneySpeedup(time_1=time, parallelism=mean, variance=sigma):
            shape = f"A {figure(mean)}, sigma {figure(sigma)}"
            return f"downey, {figure(time)} s on one process, {shape}"
        case TableSpeedup(procs=procs, times=times):
            pairs = zip(procs, times, strict=True)
            return ", ".join(f"{n}: {figure(t)} s" for n, t in pairs)


def _executes(job: JobDetails) -> Iterator[tuple[str, Any]]:
    if job.origin:
        yield "command", f"that of job {job.foreign} in {job.origin}, as it was submitted there"
        return
    launch = job.launch
    if job.tasks and not launch.argv:
        yield "commands", "of each task, from the file"
        yield "folder", launch.cwd
        return
    command = shlex.join(launch.argv)
    if len(command) > LONGEST_COMMAND:
        command = command[: LONGEST_COMMAND - 3] + "..."
    yield "script" if launch.script else "command", command
    yield "started", "once, for all processes" if job.once else ""
    yield "folder", launch.cwd
    yield "output", launch.stdout or DEFAULT_OUTPUT
    yield "errors", launch.stderr


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    cells = [[printable(cell) for cell in row] for row in rows]
    return (f"  {line}" for line in aligned([headers, *cells], headers))


def _task(task: TaskRow) -> tuple[str, ...]:
    start = task.started if task.started is not None else task.start_estimate
    return (task.id, task.task, *_run(task, start))


def _piece(piece: PieceRow) -> tuple[str, ...]:
    start = piece.started if piece.started is not None else piece.not_before
    return (piece.id, span(piece.first, piece.chunks), *_run(piece, start))


def _run(task: TaskRow | PieceRow, start: float | None) -> tuple[str, ...]:
    ran = None if task.started is None or task.ended is None else task.ended - task.started
    why = task.detail or task.reason
    code = f"exit code {task.exit_code}"
    if task.exit_code and code not in why:
        why = f"{why}, {code}" if why else code
    return (
        task.state,
        str(task.attempt),
        instant(start),
        "-" if ran is None else length(ran),
        node_set(task.nodes) if task.nodes else "-",
        why,
    )


def _part(part: PartRecord, limit: float | None) -> str:
    size = sum(part.nodes.values())
    last = part.first_rank + size - 1
    ranks = f"rank {last}" if size == 1 else f"ranks {part.first_rank}-{last}"
    out = f"  {part.index}  {part.cluster}  {node_set(part.nodes)}  {ranks}  {part.state}"
    if part.started is not None:
        out += f"  started {precise(part.started)}"
    if part.time_limit is not None and part.time_limit != limit:  # somebody has changed it there
        out += f"  time limit {length(part.time_limit)}"
    if part.exit_code is not None:
        out += f"  exit code {part.exit_code}"
    if part.cpu_s is not None:
        out += f"  {figure(part.cpu_s)} CPU-s"
    if part.max_rss_mb is not None:
        out += f"  {figure(part.max_rss_mb)} MiB at most in a process"
    return printable(out + (f"  {part.detail or part.reason}" if part.reason else ""))


def _event(event: Mapping[str, Any]) -> str:
    left_out = {"seq", "time", "kind"}
    fields = {k: v for k, v in event.items() if k not in left_out and v not in (None, "")}
    return printable(f"  {precise(event['time'])}  {event['kind']}  {fields_text(fields)}".rstrip())
