"""The use of every scope of users and projects, and the limit that holds a further start.

See `core.sharing.limits` for what the limits are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf

from coalloc.core.base.projects import DAY_S, Scope, by_day, spans
from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.core.jobs.eligibility import widest
from coalloc.core.jobs.suitable_nodes import least_slots
from coalloc.core.sharing.priority import project_of
from coalloc.model.settings import LimitsConfig

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
        """Count a start."""
        for _, use in self._uses_of(record):
            use.procs += procs
            use.jobs.add(whole(record))
            use.proc_s += procs * seconds

    def room(self, record: JobRecord) -> float:
        """Processes of a job that may start now at the most, as far as `max_procs` goes."""
        rooms = (
            scope.limits.max_procs - use.procs
            for scope, use in self._uses_of(record)
            if scope.limits.max_procs is not None
        )
        return max(min(rooms, default=inf), 0) / self._each(record)

    def room_s(self, record: JobRecord) -> float:
        """Seconds of processes that may be committed to a job now at the most."""
        rooms = (
            scope.limits.max_proc_hours * HOUR_S - use.proc_s
            for scope, use in self._uses_of(record)
            if scope.limits.max_proc_hours is not None
        )
        return max(min(rooms, default=inf), 0.0) / self._each(record)

    def _each(self, record: JobRecord) -> float:
        """Slots of one process of a job, at the least."""
        procs = widest(record.job)
        return least_slots(self._state, record.job, procs) / procs

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
        """The scopes of a job that may hold it."""
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
