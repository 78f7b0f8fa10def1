"""Options that all submissions share: when and where, output, and what is answered."""

from __future__ import annotations

from typing import Any

from coalloc.daemon import cli_parse as parse


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
        "--weight", "--priority", type=parse.number, metavar="W", help="importance (default 1)"
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
