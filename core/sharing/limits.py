"""Limits of users and projects: which waiting jobs they hold, and why.

A job may start while, in each of its scopes (`core.base.projects.Scope`), with it

- no more than `max_procs` slots are taken, one by each process that asks for nothing more,
- no more than `max_running_jobs` jobs run; a workflow or a divisible job is one,
- no more than `max_proc_hours` have been used within `window_days`, with all that runs counted to
  its planned end.

The throttle of a job array is a limit too: `max_running_jobs` of a scope that is the array.

Jobs that do not fit by themselves beside what runs are left out of a round. The others are planned,
up to twice the room that is left, and each start is checked again when it is committed: that check
is what keeps the limits, whatever the plan says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf

from coalloc.core.base.effects import Wake
from coalloc.core.base.projects import DAY_S, Scope, by_day, spans
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.base.state_tables import narrowest
from coalloc.core.jobs.dependencies import open_needs
from coalloc.core.jobs.eligibility import widest
from coalloc.core.jobs.occupation import slots_on
from coalloc.core.jobs.suitable_nodes import least_slots
from coalloc.core.sharing.priority import factors, is_on, project_of
from coalloc.model.cost import base_time
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob, Task, WorkflowJob
from coalloc.model.plan import Placement
from coalloc.model.settings import LimitsConfig
from coalloc.model.shape import ONE_SLOT, Shape
from coalloc.model.sites.parts import OVER_LIMIT
from coalloc.model.speedup import TableSpeedup
from coalloc.model.split import filled
from coalloc.model.values import replace

LIMIT = "limit"
"""Why a job waits: one of its limits holds it."""
ARRAY_LIMIT = "array_limit"
"""The same, where that is the throttle of its array."""
MANY = 1e9


def never_fits(state: State, project: str, user: str, job: Job) -> str:
    """The limit that no start of this job can keep, in words; empty if there is none."""
    procs, seconds = least_of(state, job)
    scopes = state.sharing.tree.scopes(project, user)
    whys = (exceeded(scope, ScopeUse(), job.id, procs, procs * seconds) for scope in scopes)
    return next(filter(None, whys), "")


def least_of(state: State, job: Job) -> tuple[int, float]:
    """The fewest slots of a job at a time, and the seconds for which it has them."""
    procs = narrowest(job)
    slots = least_slots(state, job, procs)
    if isinstance(job, RigidJob | MoldableJob):
        return slots, base_time(job, procs)
    return slots, job.chunk_s if isinstance(job, DivisibleJob) else 0.0


def held_back(state: State, now: float, *, of_site: bool = True) -> dict[str, str]:
    """The waiting jobs that limits hold now, each with the limit in words.

    The greatest weights ask for room first. `of_site`: with the limits of users and projects, not
    only the throttles of arrays.
    """
    held: dict[str, str] = {}
    of_site = of_site and state.sharing.tree.has_limits
    if not of_site and not state.marked.throttled:
        return held
    book = LimitBook(state, now, of_site=of_site)
    pending = [r for r in state.waiting_records() if r.state is JobState.PENDING]
    if is_on(state):  # by falling effective weight
        rows = sorted(factors(state, pending, now), key=lambda row: -row[1].weight)
        pending = [record for record, _ in rows]
    for record in pending:
        if record.id in state.composites or not (of_site or record.throttle):
            continue
        procs, seconds = least_of(state, record.job)
        why = book.why_not(record, procs, seconds) or _no_allotment(book, record)
        is_put_off = record.not_before > now or record.opens(now) > now
        may_start = not (is_put_off or record.id in state.findings.aside)
        if not why and may_start and not open_needs(state, record):
            why = book.overbooked(record, procs)  # only room keeps it waiting
        if why:
            held[record.id] = why
    return held


def _no_allotment(book: LimitBook, record: JobRecord) -> str:
    """A table of run times may have no row that fits the room."""
    job = record.job
    if not isinstance(job, MoldableJob) or not isinstance(job.speedup, TableSpeedup):
        return ""
    most = _allotment(book, record, job)
    if any(job.min_procs <= n <= most for n in job.speedup.procs):
        return ""
    return f"none of its allotments fits the {most} processes that its limits leave"


def capped(book: LimitBook, record: JobRecord, job: Job) -> Job:
    """The job as far as limits let it be planned: no wider than they leave room for."""
    if isinstance(job, MoldableJob):
        most = _allotment(book, record, job)
        return job if most >= job.max_procs else replace(job, max_procs=max(most, job.min_procs))
    if isinstance(job, WorkflowJob):
        limits = (scope.limits.max_procs for scope in book.scopes(record))
        slots = min((most for most in limits if most is not None), default=inf)
        if slots < inf:
            tasks = (_narrowed(task, job.shape, int(slots)) for task in job.tasks)
            return replace(job, tasks=tuple(tasks))
    return job


def _narrowed(task: Task, shape: Shape, slots: int) -> Task:
    """A task no wider than so many slots, where a CPU is one; `shape`: its job's."""
    each = (shape if task.shape is None else task.shape).cpus_per_proc
    most = max(slots // max(1, each), task.min_procs)
    return replace(task, max_procs=most) if most < task.max_procs else task


def _allotment(book: LimitBook, record: JobRecord, job: MoldableJob) -> int:
    """The widest allotment that the limits leave room for, by halves of what it asks for."""
    most = int(min(book.room(record), job.max_procs))
    room_s = book.room_s(record)
    while most > job.min_procs and most * base_time(job, most) > room_s:
        most = max(most // 2, job.min_procs)
    return most


def start_of(state: State, record: JobRecord, placement: Placement) -> tuple[int, float]:
    """Slots and seconds by which a start counts.

    A job's own run time on full-speed nodes, as before it was planned; of tasks and pieces, the
    planned one.
    """
    procs, job = sum(placement.nodes.values()), record.job
    slots = sum(slots_on(state.clusters.values(), job, placement.nodes).values()) or procs
    if isinstance(job, RigidJob | MoldableJob) and not record.flow:
        return slots, base_time(job, procs)
    return slots, placement.end - placement.start


def holds(
    state: State, book: LimitBook, record: JobRecord, placement: Placement, now: float
) -> bool:
    """Whether a limit keeps a placement from starting now; then a job has to be planned again.

    One that would keep its limits on other nodes, or on fewer of them, is, after a pause.
    """
    why = book.why_not(record, *start_of(state, record, placement))
    if why and not record.flow:
        state.findings.limited[record.id] = why
        state.rounds.want(LIMIT)
        shaped = record.job.shape != ONE_SLOT
        if shaped and not book.why_not(record, *least_of(state, record.job)):
            until = now + state.settings.start.backoff_max_s
            state.put(replace(record, not_before=until, reason=OVER_LIMIT, detail=why))
            state.marked.backing_off.add(record.id)
            state.out.append(Wake(at=until))
    return bool(why)


def trimmed(state: State, record: JobRecord, placement: Placement, now: float) -> Placement | None:
    """A placement of pieces on no more processes than the limits leave; None if they leave none."""
    if not state.sharing.tree.has_limits:
        return placement
    book = LimitBook(state, now)
    seconds = placement.end - placement.start
    left = int(min(book.room(record), book.room_s(record) / max(seconds, TOLERANCE_S), MANY))
    nodes = filled(placement.nodes, left)
    if not nodes or book.why_not(record, least_of(state, record.job)[0], seconds):
        return None
    procs, before = sum(nodes.values()), sum(placement.nodes.values())
    if procs == before or placement.chunks is None:
        return placement
    each = -(-placement.chunks // before)
    return replace(placement, nodes=nodes, chunks=min(placement.chunks, each * procs))


def waiting_refusal(state: State, project: str, user: str) -> str:
    """The limit of waiting jobs that a submit would break, an array being one; empty if none."""
    scopes = state.sharing.tree.scopes(project, user)
    for scope in scopes:
        most = scope.limits.max_waiting_jobs
        if most is None:
            continue
        records = (state.jobs[job] for job in state.waiting)
        waiting = len({r.array or r.id for r in records if _is_in(state, r, scope)})
        if waiting >= most:
            return f"{scope} has {waiting} waiting jobs, at most {most}"
    return ""


def _is_in(state: State, record: JobRecord, scope: Scope) -> bool:
    if not record.is_waiting or (scope.user is not None and record.user != scope.user):
        return False
    return scope.project is None or scope.project in state.sharing.tree.path(
        project_of(state, record)
    )


OVERBOOKED = 2
"""Jobs are planned for so many times the room that a limit leaves: not all of them fit at once."""
HOUR_S = 3600.0
TOLERANCE_S = 1e-6

Key = tuple[str | None, str | None, str]


@dataclass(slots=True)
class ScopeUse:
    """Use of one scope, and what the jobs that a round plans ask for."""

    procs: int = 0
    jobs: set[str] = field(default_factory=set)
    proc_s: float = 0.0
    """Within the window, what runs counted to its planned end."""
    days: dict[int, float] = field(default_factory=dict)
    """By day: processor-seconds of ended jobs within the window."""
    asked_procs: int = 0
    asked_jobs: int = 0


class LimitBook:
    """Use of every scope at one instant, and the starts that are added to it.

    `of_site`: with the limits of users and projects, not only the throttles of arrays.
    """

    def __init__(self, state: State, now: float, *, of_site: bool = True) -> None:
        self._state, self._now, self._of_site = state, now, of_site
        self._uses: dict[Key, ScopeUse] = {}
        self._of_owner: dict[tuple[str, str, str, int], tuple[tuple[Scope, ScopeUse], ...]] = {}
        if state.sharing.tree.window_days:
            self._count_days(int(now // DAY_S))
        is_any_held = state.sharing.tree.has_limits or state.marked.throttled
        for record in state.placed_records() if is_any_held else ():
            self._count(record)

    def why_not(self, record: JobRecord, procs: int, seconds: float) -> str:
        """The limit that holds a start on so many processes, in words; empty if none does."""
        for scope, use in self._uses_of(record):
            why = exceeded(scope, use, whole(record), procs, procs * seconds)
            if why:
                return why
        return ""

    def take(self, record: JobRecord, procs: int, seconds: float) -> None:
        for _, use in self._uses_of(record):
            use.procs += procs
            use.jobs.add(whole(record))
            use.proc_s += procs * seconds

    def room(self, record: JobRecord) -> float:
        """Processes of a job that may start now at the most, as far as `max_procs` goes."""
        uses = self._uses_of(record)
        return self._room(record, ((s.limits.max_procs, use.procs) for s, use in uses))

    def room_s(self, record: JobRecord) -> float:
        """Seconds of processes that may be committed to a job now at the most."""
        uses = ((scope.limits.max_proc_hours, use) for scope, use in self._uses_of(record))
        return self._room(record, ((n and n * HOUR_S, use.proc_s) for n, use in uses))

    def _room(self, record: JobRecord, uses: Iterable[tuple[float | None, float]]) -> float:
        """Left of the tightest of these limits, by the slots of one process, at the least."""
        left = min((most - used for most, used in uses if most is not None), default=inf)
        procs = widest(record.job)
        return max(left, 0.0) / (least_slots(self._state, record.job, procs) / procs)

    def overbooked(self, record: JobRecord, procs: int) -> str:
        """Ask for room; says where the jobs before this one have asked for more than there is."""
        uses = self._uses_of(record)
        for scope, use in uses:
            limits = scope.limits
            most = limits.max_procs
            if most is not None and use.asked_procs >= OVERBOOKED * (most - use.procs):
                return f"{scope} runs {use.procs} of {most} processes; other jobs of it go first"
            most = limits.max_running_jobs
            if most is not None and use.asked_jobs >= OVERBOOKED * (most - len(use.jobs)):
                return f"{scope} runs {len(use.jobs)} of {most} jobs; other jobs of it go first"
        for _, use in uses:
            use.asked_procs += procs
            use.asked_jobs += 1
        return ""

    def scopes(self, record: JobRecord) -> Iterator[Scope]:
        return (scope for scope, _ in self._uses_of(record))

    def _uses_of(self, record: JobRecord) -> tuple[tuple[Scope, ScopeUse], ...]:
        """The same, with the use of each; looked up once for all jobs that are charged alike."""
        throttle = record.throttle
        alike = (record.account, record.user, record.array if throttle else "", throttle)
        found = self._of_owner.get(alike)
        if found is None:
            scopes = self._scopes(record)
            found = self._of_owner[alike] = tuple((scope, self._use(scope)) for scope in scopes)
        return found

    def _scopes(self, record: JobRecord) -> Iterator[Scope]:
        state = self._state
        if self._of_site and state.sharing.tree.has_limits:
            every = state.sharing.tree.scopes(project_of(state, record), record.user)
            yield from (scope for scope in every if scope.limits.holds_starts)
        if record.throttle and record.array:
            most = LimitsConfig(max_running_jobs=record.throttle)
            yield Scope(project=None, user=None, limits=most, array=record.array)

    def _use(self, scope: Scope) -> ScopeUse:
        return self._uses.setdefault((scope.project, scope.user, scope.array), ScopeUse())

    def _count(self, record: JobRecord) -> None:
        procs = record.placed_slots
        begun = self._now if record.started is None else record.started
        left_s = max(begun + record.planned - self._now, 0.0)
        for scope, use in self._uses_of(record):
            use.procs += procs
            use.jobs.add(whole(record))
            if scope.limits.max_proc_hours is None:
                continue
            first = int(self._now // DAY_S) - scope.limits.window_days
            use.proc_s += procs * left_s
            for _, count, start, end in spans(record, self._now):
                use.proc_s += sum(count * s for day, s in by_day(start, end) if day > first)

    def _count_days(self, today: int) -> None:
        for (project, user), days in self._state.sharing.days.items():
            for scope in self._state.sharing.tree.scopes(project, user):
                if scope.limits.max_proc_hours is None:
                    continue
                use = self._use(scope)
                for day, proc_s in days.items():
                    if day > today - scope.limits.window_days:
                        use.proc_s += proc_s
                        use.days[day] = use.days.get(day, 0.0) + proc_s


def whole(record: JobRecord) -> str:
    """The job that counts: a task or a piece stands for the whole of which it is one."""
    return record.flow or record.id


def exceeded(scope: Scope, use: ScopeUse, job: str, procs: int, proc_s: float) -> str:
    """The limit that a start would exceed in a scope used so far, in words; empty if none."""
    limits = scope.limits
    most = limits.max_procs
    if most is not None and use.procs + procs > most:
        if procs > most:
            return f"needs {procs} processes, and {scope} may run {most}"
        enough = use.procs + procs - most
        ended = "1 of them has" if enough == 1 else f"{enough} of them have"
        return f"{scope} runs {use.procs} of {most} processes; it starts when {ended} ended"
    most = limits.max_running_jobs
    if most is not None and job not in use.jobs and len(use.jobs) >= most:
        more = len(use.jobs) + 1 - most
        ended = "one has" if more == 1 else f"{more} have"
        return f"{scope} runs {len(use.jobs)} of {most} jobs; it starts when {ended} ended"
    hours = limits.max_proc_hours
    if hours is not None and use.proc_s + proc_s > hours * HOUR_S + TOLERANCE_S:
        return _over_hours(limits, scope, use, proc_s, hours)
    return ""


def _over_hours(
    limits: LimitsConfig, scope: Scope, use: ScopeUse, proc_s: float, hours: float
) -> str:
    """The words for processor-hours that so much more would pass."""
    wanted = f"needs {proc_s / HOUR_S:.4g} processor-hours"
    if proc_s > hours * HOUR_S + TOLERANCE_S:
        return f"{wanted}, and {scope} may use {hours:g} in {limits.window_days} days"
    text = (
        f"{wanted}; {scope} has used or committed {use.proc_s / HOUR_S:.4g} of {hours:g} in "
        f"{limits.window_days} days"
    )
    over = use.proc_s + proc_s - hours * HOUR_S
    for day in sorted(use.days):
        over -= use.days[day]
        if over <= TOLERANCE_S:
            free = datetime.fromtimestamp((day + limits.window_days) * DAY_S, UTC)
            return f"{text}; enough of that is past on {free:%Y-%m-%d}"
    return f"{text}; jobs that run must end first"
