"""What all submissions share: options, and how a job is sent and waited for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

from coalloc.cli import arguments as parse
from coalloc.cli.command import CommandError, connect
from coalloc.cli.wait import wait_and_tell
from coalloc.client.answers import Submitted
from coalloc.client.client import Client, NoAnswerError, RefusedError
from coalloc.runtime import texts


def add_order(group: Any) -> None:
    """When and where it runs."""
    group.add_argument(
        "-M", "--clusters", type=parse.names, metavar="NAMES", help="clusters that may run it"
    )
    group.add_argument(
        "-C",
        "--constraint",
        type=parse.features,
        metavar="FEATURES",
        help="features every node must have: fast&ib",
    )
    group.add_argument(
        "--weight", "--priority", type=texts.number, metavar="W", help="importance (default 1)"
    )
    group.add_argument(
        "-d",
        "--dependency",
        type=parse.needs,
        metavar="KIND:JOB,...",
        help="afterok:1:2,afterany:3,afternotok:4",
    )
    group.add_argument("--begin", metavar="TIME", help="no start before: now+1hour, 16:00")
    group.add_argument("-H", "--hold", action="store_true", help="queue it held")


def add_output(group: Any, of: str) -> None:
    """Where its output goes, where it works, and what it sees.

    Parameters
    ----------
    of : str
        What ``%j`` stands for.
    """
    group.add_argument(
        "-o",
        "--output",
        metavar="PATTERN",
        help=f"file for its output: %%j {of}, %%r rank (default coalloc-%%j.out)",
    )
    group.add_argument(
        "-e", "--error", metavar="PATTERN", help="file for its errors (default: that of -o)"
    )
    group.add_argument("-D", "--chdir", metavar="DIR", help="working folder (default: this one)")
    group.add_argument(
        "--export",
        metavar="WHAT",
        help="environment: ALL (default), NONE, or VAR,VAR=value, also after ALL",
    )


def add_answer(group: Any) -> None:
    """What is printed, and when the command ends."""
    group.add_argument(
        "--test-only", action="store_true", help="say when it would start; queue nothing"
    )
    group.add_argument(
        "-W", "--wait", action="store_true", help="until it has ended; its exit code is ours"
    )
    group.add_argument("--parsable", action="store_true", help="print the job's number only")
    group.add_argument(
        "--token", metavar="TEXT", help="a submit with the token of an earlier one is the same job"
    )


def order(
    args: argparse.Namespace,
    body: Mapping[str, Any],
    test: Callable[[Client, Mapping[str, Any]], int],
    tell: Callable[[Submitted], None],
) -> int:
    """Send a submission, or ask when it would start; returns the exit code of the command.

    Parameters
    ----------
    args : argparse.Namespace
        With the options of `add_answer`.
    test : callable
        Told to ask when it would start, and to print that.
    tell : callable
        Prints what was queued.

    Raises
    ------
    CommandError
    """
    with connect(args) as client:
        if args.test_only:
            return test(client, body)
        try:
            done = client.send_submission(body)
        except NoAnswerError as error:
            raise CommandError(
                f"{error}; if it was queued after all, --token {body['token']} finds it"
            ) from error
        except RefusedError as error:
            can_be_held = error.code == "infeasible" and "hold_infeasible" in args
            hint = " (--hold-infeasible queues it, held)" if can_be_held else ""
            raise CommandError(f"{error.message}{hint}") from error
        tell(done)
        if not args.wait:
            return 0
        sys.stdout.flush()
        return wait_and_tell(client, done.job, quiet=True)
