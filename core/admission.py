"""What a submit of each kind of job may ask for, besides what the formats say."""

from __future__ import annotations

from coalloc.core.requests import Submit, SubmitWorkflow
from coalloc.model.errors import InputError
from coalloc.model.jobs import DivisibleJob, Job, WorkflowJob


def check(command: Submit, job: Job, max_tasks: int) -> None:
    """Refuse what could be queued, and could not be run as it is asked for.

    Parameters
    ----------
    max_tasks : int
        Of one workflow.

    Raises
    ------
    InputError
    """
    _check_retries(command, job)
    if isinstance(job, WorkflowJob):
        _check_workflow(command, job, max_tasks)
    elif isinstance(command, SubmitWorkflow):
        raise InputError("job.kind", "is not workflow")
    elif isinstance(job, DivisibleJob):
        _check_divisible(command, job)


def _check_retries(command: Submit, job: Job) -> None:
    """Refuse tries of what has no parts to be tried again.

    Raises
    ------
    InputError
    """
    if command.retries < 0:
        raise InputError("retries", f"{command.retries} is below 0")
    if not isinstance(job, WorkflowJob | DivisibleJob) and (command.retries or command.keep_going):
        option = "retries" if command.retries else "keep_going"
        raise InputError(option, "is for workflows and divisible jobs")


def _check_divisible(command: Submit, job: DivisibleJob) -> None:
    """Refuse a divisible job whose pieces cannot be run.

    Raises
    ------
    InputError
    """
    if command.array:
        raise InputError("array", "a divisible job cannot be an array")
    if job.time_limit is not None and job.time_limit < job.chunk_s:
        limit = f"the time limit of a piece, {job.time_limit:g} s"
        raise InputError("job.chunk_s", f"{job.chunk_s:g} s is longer than {limit}")


def _check_workflow(command: Submit, job: WorkflowJob, max_tasks: int) -> None:
    """Refuse a workflow whose tasks cannot all be run.

    Raises
    ------
    InputError
    """
    if not isinstance(command, SubmitWorkflow):
        raise InputError("job.kind", "a workflow is submitted with submit_workflow")
    if job.started:
        raise InputError("job.started", "is set by the daemon")
    if len(job.tasks) > max_tasks:
        many = f"{len(job.tasks)} tasks, at most {max_tasks}"
        raise InputError("job.tasks", many)
    if command.array:
        raise InputError("array", "a workflow cannot be an array")
    names = {task.id for task in job.tasks}
    unknown = next((name for name in command.commands if name not in names), None)
    if unknown is not None:
        raise InputError(f"commands.{unknown}", "there is no such task")
    if not command.launch.argv:
        missing = next((task.id for task in job.tasks if not command.commands.get(task.id)), None)
        if missing is not None:
            raise InputError(f"commands.{missing}", "is missing: nothing says what this task runs")
