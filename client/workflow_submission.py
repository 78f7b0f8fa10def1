"""From a workflow file to the body of a submit request."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from coalloc.client.submission import SubmissionOptions, known_options, request_of
from coalloc.model.errors import InputError
from coalloc.model.formats.job_json import write_job
from coalloc.model.jobs import WorkflowJob


class WorkflowOptions(SubmissionOptions, total=False):
    """Options of `Client.submit_workflow` besides the file; all may be left out.

    The batch options, the output and the time limit are those of each task.
    """

    template: str | Sequence[str]
    """The command of every task, in place of those of the file, with ``{task}``, ``{name}``,
    ``{id}`` and ``{procs}``. A text is split into words as a shell would; no shell runs."""


_SET_BY_DAEMON = ("id", "submitted", "earliest", "passed_over", "held", "after", "started")


def workflow_submission(
    job: WorkflowJob, commands: Mapping[str, Sequence[str]], **options: Unpack[WorkflowOptions]
) -> dict[str, Any]:
    """The body of a submit_workflow request; `TypeError` for an unknown option.

    `InputError`: a task has no command, and there is no template.
    """
    given = known_options(options, WorkflowOptions)
    argv = words_of(given.get("template", ()))
    if not argv:
        missing = next((task.id for task in job.tasks if not commands.get(task.id)), None)
        if missing is not None:
            raise InputError(
                f"task {missing}", "has no command in the file; a command template can stand for it"
            )
    fields = {k: v for k, v in write_job(job).items() if k not in _SET_BY_DAEMON}
    if "shape" in given:
        given["shape"] = {**fields.get("shape", {}), **given["shape"]}
    return {
        **request_of("submit_workflow", given, fields, argv),
        "commands": {} if argv else {task: list(words) for task, words in commands.items()},
    }


def words_of(template: str | Sequence[str]) -> list[str]:
    """The words of a command template; `InputError`: its quotes do not match."""
    if not isinstance(template, str):
        return list(template)
    try:
        return shlex.split(template)
    except ValueError as error:
        raise InputError("command template", str(error).lower()) from error
