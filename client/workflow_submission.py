"""From a workflow file to the body of a submit request."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from coalloc.client.submission import request_of
from coalloc.model.errors import InputError
from coalloc.model.job_json import write_job
from coalloc.model.jobs import WorkflowJob


class WorkflowOptions(TypedDict, total=False):
    """Options of `Client.submit_workflow` besides the file; all may be left out.

    Attributes
    ----------
    template : str or sequence of str
        The command of every task, in place of those of the file, with ``{task}``, ``{name}``,
        ``{id}`` and ``{procs}``. A text is split into words as a shell would; no shell runs.
    retries : int
        How often a task that has failed is run again. Default 0.
    keep_going : bool
        After a failure, run what does not depend on it.
    name : str
        Default: the file's.
    time_limit : float
        Of each task, seconds of run time.
    weight, earliest : float
    finish_by : float
        It starts only along a plan by which all of it ends by then, seconds since 1970.
    clusters, features : sequence of str
    needs : sequence of (kind, job)
    account, qos, partition, constraint, reservation, licenses, gres : str
        What the clusters' batch systems are told of each task.
    hold, hold_infeasible : bool
    env : mapping
        Default: this process's environment.
    cwd : str
        Default: this process's folder.
    stdout, stderr : str
        Patterns of output files: ``%j`` the task, such as 17.3; ``%r`` rank, ``%x`` name, ``%u``
        user.
    token : str
        A resend with the same token is the same job. Default: a new one.
    """

    template: str | Sequence[str]
    retries: int
    keep_going: bool
    name: str
    time_limit: float | None
    weight: float
    earliest: float | None
    finish_by: float | None
    clusters: Sequence[str]
    features: Sequence[str]
    needs: Sequence[tuple[str, str]]
    account: str
    qos: str
    partition: str
    constraint: str
    reservation: str
    licenses: str
    gres: str
    hold: bool
    hold_infeasible: bool
    env: Mapping[str, str] | None
    cwd: str | None
    stdout: str
    stderr: str
    token: str | None


_SET_BY_DAEMON = ("id", "submitted", "earliest", "passed_over", "held", "after", "started")


def workflow_submission(
    job: WorkflowJob, commands: Mapping[str, Sequence[str]], **options: Unpack[WorkflowOptions]
) -> dict[str, Any]:
    """The body of a submit_workflow request.

    Parameters
    ----------
    job : WorkflowJob
        As a file has it.
    commands : mapping of task to sequence of str
    **options
        See `WorkflowOptions`.

    Raises
    ------
    InputError
        A task has no command, and there is no template.
    TypeError
        For an unknown option.
    """
    given: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    unknown = given.keys() - WorkflowOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"unknown option {min(unknown)!r}")
    argv = words_of(given.get("template", ()))
    if not argv:
        missing = next((task.id for task in job.tasks if not commands.get(task.id)), None)
        if missing is not None:
            raise InputError(
                f"task {missing}", "has no command in the file; a command template can stand for it"
            )
    fields = {k: v for k, v in write_job(job).items() if k not in _SET_BY_DAEMON}
    return {
        **request_of("submit_workflow", given, fields, argv),
        "commands": {} if argv else {task: list(words) for task, words in commands.items()},
    }


def words_of(template: str | Sequence[str]) -> list[str]:
    """The words of a command template.

    Raises
    ------
    InputError
        Its quotes do not match.
    """
    if not isinstance(template, str):
        return list(template)
    try:
        return shlex.split(template)
    except ValueError as error:
        raise InputError("command template", str(error).lower()) from error
