"""``coalloc show``: one job as a block of text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from coalloc.cli.output import aligned, block, figure, node_set, precise, printable, reason
from coalloc.model.jobs import span
from coalloc.model.output_names import DEFAULT_OUTPUT
from coalloc.runtime.texts import between, instant, length
from coalloc.wire.job_rows import JobDetails, PartRow, PieceRow, TaskRow

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
        lines += ["", "Tasks", *_tasks(job)]
    if job.pieces:
        rows = [[printable(cell) for cell in _piece(piece)] for piece in job.pieces]
        table = aligned([PIECE_HEADERS, *rows], PIECE_HEADERS)
        lines += ["", "Pieces", *(f"  {line}" for line in table)]
    if job.parts:
        lines += ["", "Parts", *(_part(part) for part in job.parts)]
    if job.events:
        lines += ["", "History", *(_event(event) for event in job.events)]
    return lines


def _state(job: JobDetails, now: float) -> Iterator[tuple[str, Any]]:
    yield "user", f"{job.user} ({job.uid}:{job.gid})" if job.uid >= 0 else job.user
    if job.origin:
        yield "handed over", f"in {job.origin}, where it is job {job.foreign}"
    if job.progress is not None:
        counts = job.progress
        done = f"{counts.completed} of {counts.total} {counts.unit} completed"
        text = f"{done}, {counts.running} placed"
        yield "progress", text + (f", {counts.failed} failed" if counts.failed else "")
        yield "after a failure", _after_failure(job)
    if job.task:
        yield "task", f"{job.task} of workflow {job.id.partition('.')[0]}"
    if job.chunks:
        chunks = f"{span(job.chunk_first, job.chunks)} ({job.chunks} in all)"
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
        planned = f" (planned {length(job.planned)})" if job.planned else ""
        yield "run time", f"{length(end - job.started)}{planned}"
    if job.ended is not None:
        yield "ended", precise(job.ended)
    yield "exit code", job.exit_code
    if job.skew_ms is not None:
        yield "start skew", f"{job.skew_ms:g} ms between the first processes of its parts"
    yield "nodes", node_set(job.nodes)
    if job.link_gbps:
        yield "link load", ", ".join(f"{n} {figure(v)} Gbit/s" for n, v in job.link_gbps.items())
    if job.round:
        yield "decided", f"round {job.round}, policy {job.policy}"
    if job.attempt > 1 or job.refusals:
        yield "attempts", f"{job.attempt}, {job.refusals} refused in a row"


def _after_failure(job: JobDetails) -> str:
    again = f"{job.retries} more tries, then " if job.retries else ""
    part = "piece" if job.job.get("kind") == "divisible" else "task"
    return again + ("the others go on" if job.keep_going else f"no further {part} is started")


def _asks(job: JobDetails) -> Iterator[tuple[str, Any]]:
    fields = job.job
    if fields.get("kind") == "workflow":
        tasks, edges = fields.get("tasks") or (), fields.get("edges") or ()
        yield "tasks", f"{len(tasks)}, with {len(edges)} edges"
    elif fields.get("kind") == "moldable":
        yield "processes", f"{fields.get('min_procs')} to {fields.get('max_procs')}"
        yield "speed-up", _valued(job, "speedup", _speedup(fields.get("speedup") or {}))
        yield "repaired", job.sources.get("repaired")
    elif fields.get("kind") == "divisible":
        work, chunk = fields.get("work", 0.0), fields.get("chunk_s", 0.0)
        count = 0 if job.progress is None else job.progress.total
        yield "work", f"{figure(work)} s in {count} chunks of {figure(chunk)} s"
    else:
        yield "processes", fields.get("procs", job.procs)
    limit = fields.get("time_limit")
    yield "time limit", "none" if limit is None else _valued(job, "time_limit", length(limit))
    if "base_time" in fields:
        yield "base time", _valued(job, "base_time", f"{figure(fields['base_time'])} s")
    yield "sigma", _valued(job, "sigma", figure(fields.get("sigma", 1.0)))
    if "proc_gbps" in fields:
        rate = f"{figure(fields['proc_gbps'])} Gbit/s per process"
        yield "bandwidth", _valued(job, "proc_gbps", rate)
    if fields.get("memory_mb_per_proc"):
        yield "memory", f"{fields['memory_mb_per_proc']} MiB per process"
    yield "features", ", ".join(fields.get("features") or ())
    clusters = ", ".join(fields.get("clusters") or ())
    if fields.get("one_cluster"):
        clusters = f"one of {clusters}" if clusters else "one of all"
    yield "clusters", clusters
    yield from job.batch.items()
    if fields.get("weight", 1.0) != 1.0:
        yield "weight", figure(fields["weight"])
    if fields.get("earliest", 0.0) > job.submitted + 1.0:
        yield "not before", instant(fields["earliest"])
    if job.finish_by is not None:
        yield "deadline", instant(job.finish_by)
    if job.throttle:
        yield "at once", f"at most {job.throttle} of its array"
    yield "after", ", ".join(f"{kind}:{other}" for kind, other in job.needs)


def _valued(job: JobDetails, key: str, text: str) -> str:
    """A value and where it came from."""
    origin = job.sources.get(key)
    fit = job.sources.get(f"{key}_fit")
    if fit is not None:
        return f"{text}  (fitted from {fit})"
    return text if origin is None else f"{text}  ({ORIGINS.get(origin, origin)})"


def _speedup(model: Mapping[str, Any]) -> str:
    match model.get("model"):
        case "amdahl":
            share = figure(model.get("parallel_fraction"))
            return f"amdahl, {figure(model.get('time'))} s on one process, fraction {share}"
        case "downey":
            shape = f"A {figure(model.get('A'))}, sigma {figure(model.get('sigma'))}"
            return f"downey, {figure(model.get('time'))} s on one process, {shape}"
        case _:
            pairs = zip(model.get("procs", ()), model.get("times", ()), strict=False)
            return ", ".join(f"{n}: {figure(t)} s" for n, t in pairs)


def _executes(job: JobDetails) -> Iterator[tuple[str, Any]]:
    if job.origin:
        yield "command", f"that of job {job.foreign} in {job.origin}, as it was submitted there"
        return
    launch = job.launch
    if job.tasks and not launch.get("argv"):
        yield "commands", "of each task, from the file"
        yield "folder", launch.get("cwd")
        return
    command = shlex.join(launch.get("argv") or ())
    if len(command) > LONGEST_COMMAND:
        command = command[: LONGEST_COMMAND - 3] + "..."
    yield "script" if launch.get("script") else "command", command
    yield "started", "once, for all processes" if job.once else ""
    yield "folder", launch.get("cwd")
    yield "output", launch.get("stdout") or DEFAULT_OUTPUT
    yield "errors", launch.get("stderr")


def _tasks(job: JobDetails) -> Iterator[str]:
    rows = [[printable(cell) for cell in _task(task)] for task in job.tasks]
    return (f"  {line}" for line in aligned([TASK_HEADERS, *rows], TASK_HEADERS))


def _task(task: TaskRow) -> tuple[str, ...]:
    start = task.started if task.started is not None else task.start_estimate
    return (task.id, task.task, *_run(task, start))


def _piece(piece: PieceRow) -> tuple[str, ...]:
    start = piece.started if piece.started is not None else piece.not_before
    return (piece.id, span(piece.first, piece.chunks), *_run(piece, start))


def _run(task: TaskRow | PieceRow, start: float | None) -> tuple[str, ...]:
    """State of a task or a piece that runs or ran."""
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


def _part(part: PartRow) -> str:
    size = sum(part.nodes.values())
    last = part.first_rank + size - 1
    ranks = f"rank {last}" if size == 1 else f"ranks {part.first_rank}-{last}"
    out = f"  {part.index}  {part.cluster}  {node_set(part.nodes)}  {ranks}  {part.state}"
    if part.started is not None:
        out += f"  started {precise(part.started)}"
    if part.exit_code is not None:
        out += f"  exit code {part.exit_code}"
    return printable(out + (f"  {part.detail or part.reason}" if part.reason else ""))


def _event(event: Mapping[str, Any]) -> str:
    fields = " ".join(
        f"{key}={_short(value)}"
        for key, value in event.items()
        if key not in {"seq", "time", "kind"} and value not in (None, "")
    )
    return printable(f"  {precise(event['time'])}  {event['kind']}  {fields}".rstrip())


def _short(value: Any) -> str:
    if isinstance(value, dict) and all(isinstance(count, int) for count in value.values()):
        return node_set(value)
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return str(value)
