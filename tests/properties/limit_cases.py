"""A judge of limits, which shares no code with them, and random small sites for it.

The judge knows the limits as they were drawn, and what it has seen of jobs: which are placed, on
how many processes, since when, for how long they were planned, what waits, and what
has run before.

`python -m tests.properties.limit_cases --cases 20000 --first 7` plays so many cases, prints how
far it is after every `TOLD` and each case in which a limit was broken, and goes on with the next.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from coalloc.core.base.requests import Cancel, Done, Submit
from coalloc.model.settings import LimitsConfig, PriorityConfig, ProjectConfig
from coalloc.model.sites.batch_options import BatchOptions
from coalloc.model.sites.parts import PartState
from tests.support.core_site import Site

DAY = 86_400
STEPS = 25
"""Of each case."""
TOLD = 1_000
"""Cases between two lines."""
USERS = ("u", "v", "w")
TREE = {"top": None, "left": "top", "right": "top", "side": None}


@dataclass(frozen=True, kw_only=True)
class Run:
    """What has run, as the judge saw it."""

    user: str
    project: str
    procs: int
    start: float
    end: float


@dataclass
class Judge:
    """Checks every limit against what is placed."""

    site: Site
    of_project: dict[str, LimitsConfig]
    of_member: dict[str, LimitsConfig]
    of_user: LimitsConfig
    past: list[Run] = field(default_factory=list)
    placed: dict[str, float] = field(default_factory=dict)
    """Jobs, and how long they are planned to run from when they were placed."""
    known: set[str] = field(default_factory=set)
    """Jobs that were accepted."""
    starts: int = 0

    def look(self) -> None:
        """Check what is placed now.

        Raises
        ------
        AssertionError
        """
        now = self.site.now
        jobs = self.site.state.jobs.values()
        whole = {record.id for record in jobs if not record.flow}
        joined, self.known = [r for r in jobs if r.id in whole - self.known], whole
        waiting = [r for r in jobs if r.id in whole and str(r.state) in WAITING]
        there = [record for record in jobs if str(record.state) in PLACED and record.parts]
        new = {record.id for record in there} - self.placed.keys()
        self.placed = {record.id: record.planned for record in there}
        self.starts += len(new)
        rows = [
            (
                record.flow or record.id,
                record.user,
                project_of(record),
                sum(n for part in record.parts for n in part.nodes.values()),
                now if record.started is None else record.started,
                record.planned,
                record.id in new,
            )
            for record in there
        ]
        for name, limits in (*self.of_project.items(), *self.of_member.items(), ("", self.of_user)):
            is_whole = name in self.of_project and limits is self.of_project[name]
            for user in (None,) if is_whole else USERS:
                mine = [
                    row
                    for row in rows
                    if (not name or name in above(row[2])) and user in (None, row[1])
                ]
                self._check(limits, mine, name, user, now)
                if any(is_of(record, name, user) for record in joined):
                    wait = sum(is_of(record, name, user) for record in waiting)
                    most = limits.max_waiting_jobs
                    where = f"{name or 'everything'} of {user or 'all'}"
                    assert most is None or wait <= most, f"{where}: {wait} wait"

    def _check(
        self, limits: LimitsConfig, mine: list[Any], name: str, user: str | None, now: float
    ) -> None:
        where = f"{name or 'everything'} of {user or 'all'}"
        procs, jobs = sum(row[3] for row in mine), {row[0] for row in mine}
        if limits.max_procs is not None:
            assert procs <= limits.max_procs, f"{where}: {procs} processes"
        if limits.max_running_jobs is not None:
            assert len(jobs) <= limits.max_running_jobs, f"{where}: {len(jobs)} jobs"
        if limits.max_proc_hours is None or not any(row[-1] for row in mine):
            return
        first = (now // DAY - limits.window_days + 1) * DAY
        used = sum(
            run.procs * max(run.end - max(run.start, first), 0.0)
            for run in self.past
            if (not name or name in above(run.project)) and user in (None, run.user)
        )
        running = sum(
            row[3] * (max(now - max(row[4], first), 0.0) + max(row[4] + row[5] - now, 0.0))
            for row in mine
        )
        assert used + running <= limits.max_proc_hours * 3600 + 1e-3, (
            f"{where}: {used:g} used, {running:g} running"
        )


PLACED = frozenset({"preparing", "starting", "running"})
WAITING = frozenset({"pending", "held"})


def project_of(record: Any) -> str:
    """As the users of these sites submit: everybody names a project, or is of none."""
    return str(record.batch.account)


def is_of(record: Any, name: str, user: str | None) -> bool:
    """Whether a job counts for a limit of a project, or of all, and of a user, or of all."""
    return (not name or name in above(project_of(record))) and user in (None, record.user)


def above(project: str) -> tuple[str, ...]:
    """A project and those it lies in."""
    found = []
    step: str | None = project or None
    while step is not None:
        found.append(step)
        step = TREE[step]
    return tuple(found)


def drawn_limits(dice: random.Random) -> LimitsConfig:
    """Few of the limits, and tight ones."""
    return LimitsConfig(
        max_procs=dice.choice((None, None, 2, 4)),
        max_running_jobs=dice.choice((None, None, 1, 2)),
        max_proc_hours=dice.choice((None, None, 0.25, 1.0)),
        max_waiting_jobs=dice.choice((None, None, None, 3)),
        window_days=dice.choice((1, 2)),
    )


def play(seed: int, steps: int = STEPS) -> Judge:
    """A site in which users submit, jobs run and end, and days pass; every step is judged.

    Raises
    ------
    AssertionError
    """
    dice = random.Random(seed)
    of_project = {name: drawn_limits(dice) for name in TREE}
    of_member = {name: drawn_limits(dice) for name in TREE}
    of_user = drawn_limits(dice)
    projects = {
        name: ProjectConfig(
            parent=parent or "", each_user=of_member[name], **structs.asdict(of_project[name])
        )
        for name, parent in TREE.items()
    }
    site = Site(
        {"a": 3, "b": 2},
        slots=2,
        priority=PriorityConfig(shares=dice.choice((0.0, 8.0))),
        projects=projects,
        users={"*": of_user},
        max_age_s=1e9,
    )
    judge = Judge(site, of_project, of_member, of_user)
    for step in range(steps):
        _one_step(site, judge, dice, f"t{step}")
        judge.look()
    return judge


def _one_step(site: Site, judge: Judge, dice: random.Random, token: str) -> None:
    placed = [r.id for r in site.state.jobs.values() if str(r.state) in PLACED and r.parts]
    match dice.randrange(5):
        case 0 | 1 | 2 if dice.random() < 0.9:
            _submit(site, dice, token)
        case 3 if placed:
            _finish(site, judge, dice.choice(placed), dice)
        case 4 if dice.random() < 0.1 and site.state.waiting:
            site.ask(Cancel(job=dice.choice(list(site.state.waiting))), operator=True)
        case _:
            site.wait(dice.choice((60.0, 600.0, DAY / 3)))


def _submit(site: Site, dice: random.Random, token: str) -> None:
    low = dice.choice((1, 1, 2, 3))
    job: dict[str, Any] = {"kind": "rigid", "procs": low, "base_time": dice.choice((300.0, 900.0))}
    kind = dice.random()
    if kind < 0.2:
        job = {"kind": "moldable", "times": [600.0, 400.0, 300.0, 280.0], "min_procs": 1}
    elif kind < 0.4:
        job = {"kind": "divisible", "work": 3000.0, "chunk_s": 300.0}
    command = Submit(
        token=token,
        job=job,
        launch=_launch(),
        batch=BatchOptions(account=dice.choice(("", *TREE))),
    )
    answer = site.ask(command, user=dice.choice(USERS))
    assert isinstance(answer, Done) or answer.code in {"too_many", "infeasible"}, answer


def _launch() -> Any:
    from coalloc.model.sites.parts import Launch

    return Launch(argv=("x",))


def _finish(site: Site, judge: Judge, job: str, dice: random.Random) -> None:
    record = site.job(job)
    if record.started is None:
        site.run(job)
        return
    site.now += dice.choice((1.0, 120.0, record.planned))
    record = site.job(job)
    judge.past.append(
        Run(
            user=record.user,
            project=project_of(record),
            procs=sum(n for part in record.parts for n in part.nodes.values()),
            start=record.started or site.now,
            end=site.now,
        )
    )
    site.say(job, PartState.FINISHED, exit_code=0, started=record.started, ended=site.now)


def main(argv: Sequence[str] | None = None) -> int:
    """Play cases; returns 1 if a limit was broken in one of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.limit_cases")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each case")
    args = parser.parse_args(argv)
    starts, found = 0, 0
    for done, seed in enumerate(range(args.first, args.first + args.cases), 1):
        try:
            starts += play(seed, args.steps).starts
        except Exception:
            found += 1
            print(f"seed {seed}:")
            traceback.print_exc(file=sys.stdout)
        if done % TOLD == 0 or done == args.cases:
            print(f"{done} cases, {starts} starts judged, {found} finds", flush=True)
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
