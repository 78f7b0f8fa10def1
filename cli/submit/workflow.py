"""``coalloc submit-workflow``: a file of tasks and what they need of each other as one job."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from coalloc.cli.command import BAD_USAGE, Command, CommandError, note
from coalloc.cli.submit import options as shared
from coalloc.client.submission import WorkflowOptions, workflow_submission
from coalloc.model.errors import InputError
from coalloc.runtime.texts import instant
from coalloc.wire.answers import Estimate, Submitted

ABOUT = """\
Queue a workflow: a file of tasks and of what each needs of others (WfFormat, DAX, Pegasus YAML,
DOT, or our own JSON; see docs/workflows.md).

It is one job. Every task is started when those it needs have completed, where the plan has it.
A command comes from the file, or from --command-template for all tasks, with {task}, {name},
{id} and {procs} filled in; no shell runs unless it is named. A task sees COALLOC_TASK and
COALLOC_WORKFLOW besides the variables of every job.

A task that fails is run again --retries times. Then no further task is started, those that run
go on, and the workflow has failed; with --keep-going, what does not depend on it is run first."""


OPTIONS = (
    "FILE",
    "--command-template WORDS @template   such as 'run.sh {task} {procs}'",
    shared.FAILURES.format(of="task", then="run what can be run"),
    shared.NAME.format("the file's"),
    shared.TIME_LIMIT.format("each task is ended after this run time"),
    *(shared.ORDER, shared.BATCH, shared.OUTPUT.format(of="task"), shared.LAUNCHED, shared.ANSWER),
)


def _add(parser: argparse.ArgumentParser) -> None:
    shared.add(parser, *OPTIONS, file=Path)


def _run(args: argparse.Namespace) -> int:
    body = _body(args)
    tasks = len(body["job"]["tasks"])

    def what(done: Submitted) -> str:
        return f"workflow {done.job} ({tasks} tasks)"

    return shared.order(args, body, _span, what)


def _body(args: argparse.Namespace) -> dict[str, Any]:
    from coalloc.adapters.formats.workflow import read_workflow

    file = read_workflow(args.file)
    for warning in file.warnings:
        note(f"{args.file}: {warning}")
    given = shared.given_options(args, WorkflowOptions, "submit-workflow")
    options: WorkflowOptions = {"name": file.name or args.file.stem, **given}  # type: ignore[typeddict-item]
    try:
        return workflow_submission(file.job, file.commands, **options)
    except InputError as error:
        raise CommandError(f"{args.file}: {error}", BAD_USAGE) from error


def _span(estimate: Estimate) -> str:
    start, end = instant(estimate.start_estimate), instant(estimate.end_estimate)
    return f"start at {start} and end at {end}"


COMMANDS = {
    "submit-workflow": Command(
        doc="queue a workflow",
        about=ABOUT,
        example="coalloc submit-workflow montage.json --retries 2 --wait\n"
        "  coalloc submit-workflow graph.dot --command-template 'run.sh {task} {procs}'",
        add=_add,
        run=_run,
    )
}
