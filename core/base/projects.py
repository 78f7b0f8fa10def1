"""Projects as a tree of shares, the limits that hold for projects and users, and their usage.

The configuration gives both. A job belongs to the project that its submit names, else to the first
one that lists its user, else to none: `OTHERS`, a project of its own beside the highest ones.

Usage is decayed for the shares, and counted by day for the limits of a window. A slot held for a
second at time t counts as 2^(-(now - t) / h) processor-seconds now, h the half-life. The ended jobs
of a user in a project are one number, and the time for which it holds; what runs is counted from
its records. Both by the same integral, so that nothing jumps when a job ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from math import inf, log
from typing import NamedTuple

from msgspec import Struct

from coalloc.core.base.records import JobRecord, PartRecord
from coalloc.model.ranges import WEIGHT
from coalloc.model.settings import LimitsConfig, ProjectConfig

OTHERS = ""
"""The project of jobs that belong to none."""
DAY_S = 86_400.0
ITS_ARRAY = "its array"


class Scope(Struct, frozen=True, kw_only=True):
    """Jobs that one set of limits holds for."""

    project: str | None
    """None: of all of them. A project stands for those below it too."""
    user: str | None
    """None: of all of them."""
    limits: LimitsConfig
    array: str = ""
    """Number of the job array whose throttle it is; empty: none."""

    def __str__(self) -> str:
        if self.array:
            return ITS_ARRAY
        if self.project is None:
            return f"user {self.user}"
        return f"project {self.project}" + (f", user {self.user}" if self.user is not None else "")


class Lead(Struct, frozen=True, kw_only=True):
    """Lead of a project, or in the end a user within it, over its siblings."""

    name: str
    """Of the project, or of the user."""
    share: float
    """Of everything, 0..1."""
    usage_proc_s: float
    """Decayed, processor-seconds."""
    seconds: float
    """Of its entitlement, ahead of the sibling with waiting jobs that is furthest behind."""


class Factors(Struct, frozen=True, kw_only=True):
    """The terms of one job's effective weight; all but the weights in doublings."""

    submitted: float
    """Its weight as it was submitted."""
    allowed: float
    """As much of it as its limits admit."""
    operator: float
    """A term, in doublings of ``allowed``, like the next three."""
    age: float
    size: float
    shares: float
    """Not above 0."""
    weight: float
    """The effective one."""
    leads: tuple[Lead, ...] = ()
    """Below, from the highest project to the user; empty where shares do not count."""
    ahead_s: float = 0.0
    """Entitlement of its project that the project's earlier jobs take, seconds."""

    @property
    def unshared(self) -> float:
        """The effective weight if shares did not count."""
        return within(self.allowed * 2.0 ** (self.operator + self.age + self.size))

    @property
    def precedence(self) -> float:
        """Order among those that have waited too long: the operator's word, then the shares."""
        return self.operator + self.shares


def within(weight: float) -> float:
    """A weight that policies take; one of 0 stays 0."""
    return min(max(weight, WEIGHT.low), WEIGHT.high) if weight > 0.0 else 0.0


class ProjectTree:
    """The projects of the configuration, with what follows from their order."""

    def __init__(
        self,
        projects: Mapping[str, ProjectConfig],
        users: Mapping[str, LimitsConfig] | None = None,
        others_share: float = 1.0,
    ) -> None:
        self.projects = dict(projects)
        self.users = dict(users or {})
        self._paths: dict[str, tuple[str, ...]] = {}
        self._of_user: dict[str, str] = {}
        """Users' projects, which patterns take long to find."""
        self._owners: dict[tuple[str, str], ProjectUser] = {}
        self._scopes: dict[tuple[str, str], tuple[Scope, ...]] = {}
        every = list(self.users.values())
        for project in projects.values():
            every += [project, project.each_user]
        self.has_limits = any(limits.holds_starts for limits in every)
        self.has_weights = any(limits.max_weight is not None for limits in every)
        windows = [one.window_days for one in every if one.max_proc_hours is not None]
        self.window_days = max(windows, default=0)
        """For which usage must be known."""
        self.guaranteed = {name: given for name, given in projects.items() if given.guarantees}
        self.shares = self._shares(others_share)
        """Of everything, 0..1, by project."""

    def path(self, project: str) -> tuple[str, ...]:
        """A project and those above it, the highest first; of one that is not there, `OTHERS`."""
        found = self._paths.get(project)
        if found is None:
            names = []
            step = project
            while step in self.projects and step not in names:
                names.append(step)
                step = self.projects[step].parent
            found = self._paths[project] = tuple(reversed(names)) or (OTHERS,)
        return found

    def project(self, account: str, user: str) -> str:
        """The project that a user's job is charged to, where it names an account."""
        if account and (not self.projects or account in self.projects):
            return account
        return self.of_user(user)

    def owner_of(self, account: str, user: str) -> ProjectUser:
        """Project and user whose share a job counts against, by the account that it names."""
        found = self._owners.get((account, user))
        if found is None:
            found = self._owners[account, user] = self.owner(self.project(account, user), user)
        return found

    def owner(self, project: str, user: str) -> ProjectUser:
        """Whose share is used: what is charged to a project that is not there is the others'."""
        return (project if project in self.projects else OTHERS), user

    def of_user(self, user: str) -> str:
        """The project of a user's jobs that name none."""
        found = self._of_user.get(user)
        if found is None:
            listing = (name for name, project in self.projects.items() if project.lists(user))
            found = self._of_user[user] = next(listing, OTHERS)
        return found

    def refusal(self, account: str, user: str) -> str:
        """Reason why a user's job may not name this project; empty if it may."""
        if not account or not self.projects:
            return ""
        project = self.projects.get(account)
        if project is None:
            return f"there is no project {account!r}; there are {', '.join(self.projects)}"
        if project.users and not project.lists(user):
            return f"{user} is not a user of project {account}"
        return ""

    def scopes(self, project: str, user: str) -> tuple[Scope, ...]:
        """The limits that a user's job of a project is under, the widest project first."""
        found = self._scopes.get((project, user))
        if found is None:
            found = self._scopes[project, user] = tuple(self._scopes_of(project, user))
        return found

    def _scopes_of(self, project: str, user: str) -> Iterator[Scope]:
        for name in self.path(project):
            if name in self.projects:
                here = self.projects[name]
                yield Scope(project=name, user=None, limits=here)
                yield Scope(project=name, user=user, limits=here.each_user)
        for pattern, limits in self.users.items():
            if fnmatchcase(user, pattern):
                yield Scope(project=None, user=user, limits=limits)
                return

    def max_weight(self, project: str, user: str) -> float:
        """The most that a weight of this user's jobs counts for."""
        if not self.has_weights:
            return inf
        given = (scope.limits.max_weight for scope in self.scopes(project, user))
        return min((weight for weight in given if weight is not None), default=inf)

    def _shares(self, others_share: float) -> dict[str, float]:
        """Each project's share of everything, 0..1: its part of its siblings', down the tree."""
        siblings: dict[str, float] = {OTHERS: others_share}
        for project in self.projects.values():
            siblings[project.parent] = siblings.get(project.parent, 0.0) + project.share
        out = {OTHERS: others_share / siblings[OTHERS] if siblings[OTHERS] else 1.0}
        for name in self.projects:
            share = 1.0
            for step in self.path(name):
                project = self.projects[step]
                share *= project.share / siblings[project.parent]
            out[name] = share
        return out


ProjectUser = tuple[str, str]
"""Project and user."""


class DayUsage(Struct, frozen=True, kw_only=True):
    """Usage of a cluster by a user in a project on one day of UTC."""

    project: str
    user: str
    cluster: str
    proc_s: float
    """Processor-seconds of attempts that have ended."""
    coallocated_proc_s: float = 0.0
    """Of these, by jobs on several clusters."""
    jobs: int = 0
    """That ended, each on the day of its end and at its first cluster."""
    wait_s: float = 0.0
    """Of these, seconds."""


class Usage(NamedTuple):
    """Decayed usage, processor-seconds, and the time it was counted at."""

    proc_s: float
    at: float

    def now(self, now: float, half_life_s: float) -> float:
        """The same at a later time."""
        return self.proc_s * decay(now - self.at, half_life_s)


def decay(elapsed_s: float, half_life_s: float) -> float:
    """Share of usage that is left after so many seconds."""
    return float(2.0 ** (-max(elapsed_s, 0.0) / half_life_s))


def decayed_proc_s(procs: int, start: float, end: float, now: float, half_life_s: float) -> float:
    """Usage of processes that ran from `start` to `end`, as it counts at `now` >= `end`."""
    if end <= start:
        return 0.0
    mean_s = half_life_s / log(2.0)
    return procs * mean_s * (decay(now - end, half_life_s) - decay(now - start, half_life_s))


def added(usage: Usage | None, proc_s: float, now: float, half_life_s: float) -> Usage:
    """Usage with some more that counts at `now`."""
    before = 0.0 if usage is None else usage.now(now, half_life_s)
    return Usage(before + proc_s, now)


def by_day(start: float, end: float) -> Iterator[tuple[int, float]]:
    """Days of UTC since 1970 that an interval touches, with the seconds in each."""
    if end <= start:
        return
    day = int(start // DAY_S)
    while day * DAY_S < end:
        seconds = min(end, (day + 1) * DAY_S) - max(start, day * DAY_S)
        if seconds > 0.0:
            yield day, seconds
        day += 1


def spans(record: JobRecord, now: float) -> Iterator[tuple[PartRecord, int, float, float]]:
    """The parts of a job that have run until now, each with its slots, start and end."""
    for part in record.parts:
        start = part.started if part.started is not None else record.started
        end = part.ended if part.ended is not None else record.ended
        end = now if end is None else end
        if start is not None and end > start:
            yield part, sum(part.held.values()), start, end
