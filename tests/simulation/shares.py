"""What holds of projects, limits, usage, changed jobs and the newer dependencies."""

from __future__ import annotations

from math import isclose

from coalloc.core.base.messages import Prepare
from coalloc.core.base.records import JobRecord
from coalloc.core.sharing.accounting import proc_s
from coalloc.model.settings import LimitsConfig
from tests.simulation.daemon import DaemonHost
from tests.simulation.users import Users


def at_commit(daemon: DaemonHost) -> None:
    """No limit is broken by what is placed, and what ends is charged, once.

    Raises
    ------
    AssertionError
    """
    _limits_kept(daemon)
    disk, core = daemon.disk, daemon.core
    assert core is not None
    assert core.state.sharing.usage == disk.usage, "usage in memory is not what is on disk"
    for owner, days in core.state.sharing.days.items():
        for day, used in days.items():
            kept = disk.days.get(owner, {}).get(day, 0.0)
            assert isclose(used, kept, abs_tol=1e-6), f"{owner} has used {used}, on disk {kept}"
    assert core.state.sharing.days.keys() == disk.days.keys(), "usage of days was forgotten"
    expected = 0.0
    for before, record in disk.changed.values():
        is_given_back = not record.parts or (before is not None and record.attempt > before.attempt)
        if before is not None and before.is_placed and is_given_back:
            return  # an attempt that ran may have been charged, and its record tells no more
        if record.is_ended and not (before is not None and before.is_ended and before != record):
            is_new = before is None or not before.is_ended
            expected += proc_s(record) if is_new or before is record else 0.0
    assert isclose(disk.charged, expected, abs_tol=1e-6), (
        f"{disk.charged} processor-seconds are charged for {expected}"
    )


def placed_of(daemon: DaemonHost, project: str) -> list[JobRecord]:
    """Jobs of a project that have nodes, or wait for them in queues."""
    placed = (record for record in daemon.disk.jobs.values() if record.is_placed and record.parts)
    return [record for record in placed if project_of(daemon, record) == project]


def project_of(daemon: DaemonHost, record: JobRecord) -> str:
    """The project of a job; empty if it is of none."""
    projects = daemon.settings.projects
    mine = (name for name, project in projects.items() if record.user in project.users)
    return record.account or next(mine, "")


def procs_of(record: JobRecord) -> int:
    """Processes of a placed job: one of its siblings will run."""
    each = [sum(part.nodes.values()) for part in record.parts]
    return max(each) if record.siblings else sum(each)


def _limits_kept(daemon: DaemonHost) -> None:
    projects = daemon.settings.projects
    if not projects:
        return
    for name, project in projects.items():
        mine = placed_of(daemon, name)
        _keep(project, mine, f"project {name}")
        for user in {record.user for record in mine}:
            theirs = [record for record in mine if record.user == user]
            _keep(project.each_user, theirs, f"user {user} of {name}")


def _keep(limits: LimitsConfig, placed: list[JobRecord], whose: str) -> None:
    procs = sum(map(procs_of, placed))
    jobs = {record.flow or record.id for record in placed}
    most = limits.max_procs
    assert most is None or procs <= most, f"{whose} runs {procs} of {most} processes"
    most = limits.max_running_jobs
    assert most is None or len(jobs) <= most, f"{whose} runs {len(jobs)} of {most} jobs"


def at_step(daemon: DaemonHost, users: Users) -> None:
    """What was acknowledged of changes is on disk.

    Raises
    ------
    AssertionError
    """
    if users.wider is None:
        return
    jobs = daemon.disk.jobs
    for job, fields in users.wider.changed.items():
        record = jobs.get(job)
        for name, value in fields.items() if record is not None else ():
            is_now = getattr(record.job, name) if record is not None else None
            assert is_now == value, f"{name} of job {job} was changed to {value}, and is {is_now}"
    for job, priority in users.wider.priorities.items():
        if job in jobs:
            assert jobs[job].priority == priority, f"the priority of job {job} was forgotten"


def at_start(daemon: DaemonHost, users: Users, order: Prepare) -> None:
    """A job starts as it was changed, and after those that it waits for.

    Raises
    ------
    AssertionError
    """
    if users.wider is None:
        return
    jobs, job = daemon.disk.jobs, order.job
    fields = users.wider.changed.get(job, {})
    told = {"time_limit": order.time_limit, "procs": order.size}
    for name in told.keys() & fields.keys():
        # A limit that was changed while it was prepared goes to its batch system by itself.
        is_followed = name == "time_limit" and fields[name] == jobs[job].job.time_limit
        assert is_followed or told[name] == fields[name], (
            f"job {job} was changed to {name}={fields[name]}, and starts with {told[name]}"
        )
    record = jobs[job]
    for kind, needed in record.needs:
        other = jobs.get(needed)
        if other is None:
            continue
        if kind == "after":
            begun = other.started is not None or other.is_ended or other.requeue
            assert begun, f"job {job} starts before job {needed} has begun"
        elif kind in {"aftercorr", "singleton", "afterany"}:
            assert other.is_ended, f"job {job} starts before job {needed} has ended ({kind})"
    for kind, needed in users.needs_of(job):
        if kind == "aftercorr":
            twin = f"{needed}_{record.array_index}"
            assert (kind, twin) in record.needs or _is_changed(users, job), (
                f"job {job} does not wait for job {twin}"
            )


def _is_changed(users: Users, job: str) -> bool:
    return users.wider is not None and job.partition("_")[0] in users.wider.redirected
