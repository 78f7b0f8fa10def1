"""``coalloc submit-workflow``: a file of tasks and what they need of each other as one job."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coalloc.cli import arguments as parse
from coalloc.cli.command import BAD_USAGE, Command, CommandError, note
from coalloc.cli.submit import environment, folder, limit, read_option
from coalloc.cli.submit_options import add_answer, add_order, add_output, order
from coalloc.client.answers import Submitted
from coalloc.client.client import Client
from coalloc.client.workflow_submission import WorkflowOptions, workflow_submission
from coalloc.model.errors import InputError
from coalloc.runtime.texts import instant

ABOUT = """\
Queue a workflow: a file of tasks and of what each needs of others (WfFormat, DAX, Pegasus YAML,
DOT, or our own JSON; see docs/workflows.md).

It is one job. Every task is started when those it needs have completed, where the plan has it.
A command comes from the file, or from --command-template for all tasks, with {task}, {name},
{id} and {procs} filled in; no shell runs unless it is named. A task sees COALLOC_TASK and
COALLOC_WORKFLOW besides the variables of every job.

A task that fails is run again --retries times. Then no further task is started, those that run
go on, and the workflow has failed; with --keep-going, what does not depend on it is run first."""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument(
        "--command-template", metavar="WORDS", help="such as 'run.sh {task} {procs}'"
    )
    parser.add_argument(
        "--retries",
        type=parse.count,
        metavar="N",
        help="run a failed task again so often (default 0)",
    )
    parser.add_argument(
        "-k", "--keep-going", action="store_true", help="after a failure, run what can be run"
    )
    parser.add_argument("-J", "--job-name", metavar="NAME", help="default: the file's")
    parser.add_argument(
        "-t", "--time", type=limit, metavar="TIME", help="each task is ended after this run time"
    )
    add_order(parser)
    add_output(parser, "task")
    add_answer(parser)


def _run(args: argparse.Namespace) -> int:
    body = _body(args)
    return order(args, body, _test, lambda done: _tell(done, len(body["job"]["tasks"]), args))


def _body(args: argparse.Namespace) -> dict[str, Any]:
    from coalloc.adapters.formats.workflow import read_workflow

    try:
        file = read_workflow(args.file)
    except InputError as error:
        raise CommandError(str(error), BAD_USAGE) from error
    for warning in file.warnings:
        note(f"{args.file}: {warning}")
    try:
        return workflow_submission(file.job, file.commands, **_options(args, file.name))
    except InputError as error:
        raise CommandError(f"{args.file}: {error}", BAD_USAGE) from error


def _options(args: argparse.Namespace, name: str) -> WorkflowOptions:
    """What the client is told, of what was typed."""
    options: dict[str, Any] = {
        "template": args.command_template,
        "retries": args.retries,
        "keep_going": args.keep_going or None,
        "name": args.job_name or name or args.file.stem,
        "weight": args.weight,
        "clusters": args.clusters,
        "features": args.constraint,
        "needs": args.dependency,
        "hold": args.hold or None,
        "cwd": folder(args.chdir),
        "stdout": args.output,
        "stderr": args.error,
        "token": args.token,
        "env": environment(args.export),
    }
    if args.time is not None and args.time != float("inf"):
        options["time_limit"] = args.time
    if args.begin is not None:
        options["earliest"] = read_option("--begin", lambda: parse.begin(args.begin, time.time()))
    kept: WorkflowOptions = {k: v for k, v in options.items() if v is not None}  # type: ignore[assignment]
    return kept


def _test(client: Client, body: Mapping[str, Any]) -> int:
    estimate = client.test_submission(body)
    if estimate.start_estimate is None:
        raise CommandError(f"no start can be estimated: {estimate.detail or estimate.reason}")
    end = instant(estimate.end_estimate)
    print(f"Would start at {instant(estimate.start_estimate)} and end at {end}; nothing was queued")
    return 0


def _tell(done: Submitted, tasks: int, args: argparse.Namespace) -> None:
    if args.parsable:
        print(done.job)
        return
    again = "; the token was known, nothing new was queued" if done.again else ""
    print(f"Submitted workflow {done.job} ({tasks} tasks){again}")


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
