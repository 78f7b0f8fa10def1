"""What holds after every step, whatever has failed, and what holds in the end."""

from __future__ import annotations

from collections import Counter

from coalloc.core.base.messages import Prepare
from coalloc.core.base.records import ArrayRest, JobRecord, JobState
from coalloc.core.jobs.deadlines import DEADLINE
from coalloc.model.cost import link_loads
from coalloc.model.jobs import DivisibleJob, RigidJob, WorkflowJob
from coalloc.model.sites.parts import PartState
from tests.simulation import shares, siblings
from tests.simulation.batch import Batch
from tests.simulation.daemon import DaemonHost
from tests.simulation.part import HELD, is_whole
from tests.simulation.users import Users

TOLERANCE = 1e-9
HASTENED_S = 8.0
"""News and orders take no longer, where nothing fails, seconds."""
DECIDED = frozenset({JobState.STARTING, JobState.RUNNING})


def at_commit(
    daemon: DaemonHost,
    capacity: dict[str, float],
    touched: set[str],
    batches: dict[str, Batch],
) -> None:
    """What each transaction must keep.

    Parameters
    ----------
    touched : set of job
        Some of it ran, and the store was replaced by an older copy: one that was cancelled before
        anybody heard of that may be put back by its batch system, and be a new job here.

    Raises
    ------
    AssertionError
    """
    disk = daemon.disk
    for before, record in disk.changed.values():
        if before is None:
            continue
        assert not before.is_ended or before == record, (
            f"job {record.id} was {before.state}, and is {record.state}"
        )
        assert record.attempt >= before.attempt, f"job {record.id}: an attempt is taken back"
        is_put_back = record.requeue and any(record.id in b.preempted for b in batches.values())
        failed_again = record.failures > before.failures or record.foreign or is_put_back
        if before.state in DECIDED and record.is_waiting and not failed_again:
            assert all(part.started is None for part in before.parts), (
                f"job {record.id} ran, and waits again"
            )
    if daemon.core is not None:
        state = daemon.core.state
        assert disk.promises == state.learning.promises, (
            "expected starts on disk are not those in memory"
        )
        learnt = max(disk.start_errors, default=0)
        assert learnt == state.learning.calibration.last, f"{learnt} starts were learnt from"
    for flow in {record.flow for _, record in disk.changed.values() if record.chunks}:
        _chunks_apart(disk.jobs, flow)
    guests: dict[tuple[str, str], str] = {}
    for record in disk.jobs.values():
        is_put_back = record.state is JobState.CANCELLED and record.id in touched
        if record.origin and not is_put_back:
            first = guests.setdefault((record.origin, record.foreign), record.id)
            assert first == record.id, f"jobs {first} and {record.id} are one of {record.origin}"
    load = dict.fromkeys(capacity, 0.0)
    for record in disk.jobs.values():
        if record.is_placed:
            for name, value in loads(record).items():
                load[name] += value
    shares.at_commit(daemon)
    siblings.at_commit(daemon)
    for name, value in load.items():
        assert value <= capacity[name] * (1 + TOLERANCE), f"link of {name}: {value} Gbit/s"


def _chunks_apart(jobs: dict[str, JobRecord], flow: str) -> dict[int, JobRecord]:
    """No two pieces of a divisible job hold one chunk; returns the piece of each chunk."""
    found: dict[int, JobRecord] = {}
    for record in jobs.values():
        if record.flow == flow:
            for chunk in range(record.chunk_first, record.chunk_first + record.chunks):
                other = found.setdefault(chunk, record)
                assert other is record, f"{other.id} and {record.id} hold chunk {chunk}"
    return found


def loads(record: JobRecord) -> dict[str, float]:
    """Load of a placed job on each link, by its parts."""
    if not isinstance(record.job, RigidJob) or record.siblings:
        return {}
    inside = {part.cluster: sum(part.nodes.values()) for part in record.parts}
    return link_loads(record.job.proc_gbps, inside)


def at_step(daemon: DaemonHost, batches: dict[str, Batch], users: Users) -> None:
    """What holds between any two steps.

    Raises
    ------
    AssertionError
    """
    for name, batch in batches.items():
        full = batch.overfull()
        assert not full, f"{name}: {full}"
        batch.guests.check()
    jobs = daemon.disk.jobs
    for token, job in users.acknowledged.items():
        assert job in jobs or f"{job}_1" in jobs, f"{token} was acknowledged, and is not on disk"
    shares.at_step(daemon, users)
    if users.bounded is not None:
        users.bounded.at_step(daemon.disk)
    for job in users.cancelled:
        record = jobs.get(job)
        assert record is None or record.is_ended or record.cancelled_by, (
            f"the cancel of job {job} was acknowledged, and forgotten"
        )
        whole = jobs.get(f"{job}_")
        assert whole is None or whole.rest is None or not whole.rest.left, (
            f"members of array {job} are to follow, and its cancel was acknowledged"
        )


def at_start(
    daemon: DaemonHost, batches: dict[str, Batch], cluster: str, users: Users, order: Prepare
) -> None:
    """The decision to start is on disk before anybody carries it out, and is taken once.

    Raises
    ------
    AssertionError
    """
    job, attempt = order.job, order.attempt
    record = daemon.disk.jobs.get(job)
    assert record is not None, f"job {job} starts, and is not on disk"
    assert record.attempt == attempt, f"job {job} starts as attempt {attempt} of {record.attempt}"
    assert record.state in DECIDED or record.is_ended, f"job {job} starts as {record.state}"
    is_chosen = any((p.cluster, p.index) == (cluster, order.part) for p in record.parts)
    assert is_chosen, f"job {job} starts in {cluster}, and {record.clusters} were chosen"
    batch = batches[cluster]
    ran = batch.starts[job]
    back = batch.guests.jobs[order.foreign].requeued if order.foreign else 0
    if record.requeue:
        back += sum(other.preempted.get(job, 0) for other in batches.values())
    assert len(ran) <= 1 + record.failures + back, f"job {job} starts again: attempts {sorted(ran)}"
    shares.at_start(daemon, users, order)
    for kind, needed in users.needs_of(record.flow or job):
        if kind not in {"afterok", "afterany"}:
            continue
        for other in _members(daemon, needed):
            assert other.is_ended, f"job {job} starts before job {other.id} has ended"
            assert kind != "afterok" or other.state is JobState.COMPLETED, (
                f"job {job} starts, and job {other.id} is {other.state}"
            )
    if record.task:
        _after_parents(daemon, record)
    mine, told = (record.chunk_first, record.chunks), (order.chunk_first, order.chunks)
    assert mine == told, f"job {job} has chunks {mine}, and starts with {told}"


def hastened(batches: dict[str, Batch], now: float) -> None:
    """No part is put off for long while another of its job holds nodes; holds without faults.

    Raises
    ------
    AssertionError
    """
    parts = [part for batch in batches.values() for part in batch.parts.values()]
    for part in parts:
        is_put_off = part.state is PartState.WAITING and part.begin > now
        if not is_put_off or part.is_unwanted or is_whole(part.order):
            continue
        for other in parts:
            is_of_it = other.key.start == part.key.start and other.state in HELD
            if is_of_it and other.granted is not None:
                held = now - other.granted
                assert held <= HASTENED_S, f"{part.key} is put off while {other.key} holds nodes"


def nodes_known(batches: dict[str, Batch], order: Prepare) -> None:
    """Every part of a job whose claims might wait knows the nodes of all, as they are.

    Raises
    ------
    AssertionError
    """
    if order.queue is None:
        return
    parts = {
        name: part
        for name, batch in batches.items()
        for key, part in batch.parts.items()
        if (key == order.key if is_whole(order) else key.start == order.key.start)
    }
    held = {node: count for part in parts.values() for node, count in part.nodes.items()}
    # A part that was told to start long before the others may be over and forgotten.
    kept = {node for name in parts for node in batches[name].nodes}
    for part in parts.values():
        nodes = part.order.all_nodes if part.arranged is None else part.arranged.all_nodes
        told = {node: count for node, count in nodes.items() if node in kept}
        assert told == held, f"{part.key} starts, holds {held}, and was told of {told}"


def claimed_together(batches: dict[str, Batch], cluster: str, order: Prepare) -> None:
    """Nodes that are held for one attempt are those of one decision.

    Raises
    ------
    AssertionError
    """
    for name, batch in batches.items():
        for key, part in batch.parts.items():
            is_of_it = key.start == order.key.start and not is_whole(order)
            if is_of_it and part.state in HELD:
                assert part.order.all_nodes == order.all_nodes, (
                    f"{cluster} claims for {key.start}, and {name} holds {part.state} nodes of it"
                )


def _after_parents(daemon: DaemonHost, record: JobRecord) -> None:
    jobs = daemon.disk.jobs
    flow = jobs[record.flow]
    assert isinstance(flow.job, WorkflowJob)
    places = {task.id: f"{flow.id}.{n}" for n, task in enumerate(flow.job.tasks, 1)}
    for edge in flow.job.edges:
        if edge.child == record.task:
            parent = jobs[places[edge.parent]]
            assert parent.state is JobState.COMPLETED, f"{record.id} starts before {parent.id}"


def _members(daemon: DaemonHost, number: str) -> list[JobRecord]:
    jobs = daemon.disk.jobs
    return [job for name, job in jobs.items() if name == number or job.array == number]


def at_end(daemon: DaemonHost, batches: dict[str, Batch], touched: set[str]) -> None:
    """What holds once everything has come to an end.

    Parameters
    ----------
    touched : set of job
        Some of it ran, and the store was replaced by an older copy.

    Raises
    ------
    AssertionError
    """
    disk = daemon.disk
    numbers = {job.partition("_")[0].partition(".")[0] for job in disk.jobs}
    made = set(disk.tokens.values())
    assert made == numbers, f"jobs without a token, or the other way round: {made ^ numbers}"
    starts = next(iter(batches.values())).starts
    for record in disk.jobs.values():
        ran = starts.get(record.id, {})
        if record.rest is not None:
            _array_at_end(disk.jobs, record, record.rest)
            continue
        has_own = not isinstance(record.job, WorkflowJob | DivisibleJob)
        if record.state is JobState.COMPLETED and has_own:
            parts = {part.index for part in record.parts}
            assert ran.get(record.attempt) == parts, (
                f"job {record.id} is completed, and did not run"
            )
        is_touched = (record.flow or record.id) in touched
        if ran and not is_touched and not _was_put_back(record, batches):
            # One that failed, and was ended before it ran again, has a last attempt without a run.
            is_between = bool(record.failures or record.requeue) and record.started is None
            assert record.attempt in ran or is_between, (
                f"job {record.id} ran as {ran}, not as {record.attempt}"
            )
    for record in disk.jobs.values():
        if isinstance(record.job, WorkflowJob):
            _workflow_at_end(disk.jobs, record)
        if isinstance(record.job, DivisibleJob):
            _divisible_at_end(disk.jobs, record)
        if record.origin:
            guest = batches[record.origin].guests.jobs[record.foreign]
            here, there = record.state is JobState.COMPLETED, guest.state == "completed"
            # Whoever asks for its end may be too late for it.
            may = here or guest.is_unwanted or bool(record.exit_code) or record.id in touched
            assert here <= there <= may, f"job {record.id} is {record.state}: {guest}"
    for name, batch in batches.items():
        assert not batch.parts, f"{name} still keeps {sorted(batch.parts)}"
    kept = {name: box for name, box in disk.outbox.items() if box}
    assert not kept, f"orders that nobody has carried out: {kept}"


def _array_at_end(jobs: dict[str, JobRecord], whole: JobRecord, rest: ArrayRest) -> None:
    members = [job for job in jobs.values() if job.array == whole.array and job is not whole]
    made = Counter(str(job.state) for job in members)
    assert not rest.left, f"{rest.indices} of array {whole.array} never followed"
    assert sum(rest.ends.values()) == rest.members, f"array {whole.array} has ended as {rest.ends}"
    assert made <= Counter(rest.ends), f"array {whole.array} counts {rest.ends}, and had {made}"
    is_whole = made == {str(JobState.COMPLETED): rest.members}
    assert is_whole is (whole.state is JobState.COMPLETED), f"{whole.id} is {whole.state}: {made}"


def _was_put_back(record: JobRecord, batches: dict[str, Batch]) -> bool:
    """Its own batch system has requeued it: an attempt that ran was not its last."""
    return bool(record.origin and batches[record.origin].guests.jobs[record.foreign].requeued)


def _has_cause(whole: JobRecord, parts: list[JobRecord]) -> None:
    """Somebody cancelled it or what it needs; or it had a deadline, and nothing had begun."""
    if whole.reason == DEADLINE:
        assert whole.finish_by is not None, f"{whole.id} had no deadline"
        begun = [part.id for part in parts if part.started is not None]
        assert not begun, f"{whole.id} was ended for its deadline, and {begun} had begun"
    else:
        assert whole.cancelled_by or whole.needs, f"{whole.id} was cancelled by nobody"


def _workflow_at_end(jobs: dict[str, JobRecord], flow: JobRecord) -> None:
    assert isinstance(flow.job, WorkflowJob)
    tasks = [record for record in jobs.values() if record.flow == flow.id]
    completed = [record for record in tasks if record.state is JobState.COMPLETED]
    if flow.state is JobState.COMPLETED:
        assert len(completed) == len(flow.job.tasks), f"{flow.id} is completed, its tasks are not"
    elif flow.state is JobState.CANCELLED:
        _has_cause(flow, tasks)
    else:
        assert len(completed) < len(tasks), f"{flow.id} is {flow.state}, its tasks completed"


def _divisible_at_end(jobs: dict[str, JobRecord], whole: JobRecord) -> None:
    assert isinstance(whole.job, DivisibleJob)
    pieces = _chunks_apart(jobs, whole.id)
    done = [chunk for chunk, piece in pieces.items() if piece.state is JobState.COMPLETED]
    if whole.state is JobState.COMPLETED:
        assert sorted(done) == list(range(whole.job.chunks)), f"{whole.id} lacks chunks: {done}"
    elif whole.state is JobState.CANCELLED:
        _has_cause(whole, [record for record in jobs.values() if record.flow == whole.id])
    else:
        assert len(done) < whole.job.chunks, f"{whole.id} is {whole.state}, its chunks completed"
