"""Common ground of all submissions: options, and how a job is sent and waited for."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from coalloc.cli import arguments as parse
from coalloc.cli.command import BAD_USAGE, CommandError, connect, note
from coalloc.cli.jobs.wait import wait_and_tell
from coalloc.client.client import NoAnswerError, RefusedError
from coalloc.client.submission import SubmissionOptions, portable
from coalloc.runtime import texts

if TYPE_CHECKING:
    from coalloc.wire.answers import Estimate, Submitted


def add_order(group: Any) -> None:
    """Options of time and place."""
    group.add_argument(
        "-M",
        "--cluster",
        "--clusters",
        dest="clusters",
        type=parse.names,
        metavar="NAMES",
        help="clusters that may run it",
    )
    group.add_argument(
        "-C",
        "--constraint",
        type=parse.constraint,
        metavar="FEATURES",
        help="features every node must have: fast&ib; what else Slurm knows is passed on to it",
    )
    group.add_argument(
        "--weight", "--priority", type=texts.number, metavar="W", help="importance (default 1)"
    )
    group.add_argument(
        "-d",
        "--dependency",
        dest="needs",
        type=parse.needs,
        metavar="KIND:JOB,...",
        help="afterok:1:2,afterany:3,afternotok:4,after:5 (has started),aftercorr:6 (the same "
        "member of an array),singleton (my other jobs of this name)",
    )
    add_begin(group, "-b", "--begin")
    add_deadline(group)
    group.add_argument("-H", "--hold", action="store_true", help="queue it held")


def add_begin(group: Any, *flags: str) -> None:
    """Options of its earliest start."""
    group.add_argument(
        *flags,
        dest="earliest",
        type=parse.begin,
        metavar="TIME",
        help="no start before: now+1hour, 16:00",
    )


def add_deadline(group: Any, read: Callable[[str], float] = parse.begin) -> None:
    """Options of its latest end."""
    group.add_argument(
        "--deadline",
        dest="finish_by",
        type=read,
        metavar="TIME",
        help="start it only if it can end by then, and end it once it cannot: now+2hours, 16:00",
    )


def add_batch(group: Any) -> None:
    """Options that are passed on to batch systems."""
    group.add_argument(
        "-A", "--account", metavar="NAME", help="account to charge; sites map it for each cluster"
    )
    group.add_argument("-q", "--qos", metavar="NAME", help="quality of service")
    group.add_argument(
        "-p", "--partition", metavar="NAMES", help="only on nodes of one of these, as in sbatch"
    )
    group.add_argument("--reservation", metavar="NAME", help="use the nodes it keeps")
    group.add_argument(
        "-L", "--licenses", metavar="NAME[:N],...", help="of each cluster that runs a part"
    )
    group.add_argument(
        "--gres", type=parse.gres, metavar="NAME[:TYPE][:N],...", help="on each of its nodes"
    )


def add_output(group: Any, of: str) -> None:
    """Options of output, and those of `add_launched`; ``%j`` stands for `of`."""
    group.add_argument(
        "-o",
        "--output",
        dest="stdout",
        metavar="PATTERN",
        help=f"file for its output: %%j {of}, %%A array, %%a index, %%x name, %%u user, %%r rank "
        "(default coalloc-%%j.out)",
    )
    group.add_argument(
        "-e",
        "--error",
        dest="stderr",
        metavar="PATTERN",
        help="file for its errors (default: that of -o)",
    )
    add_launched(group)


def add_copies(group: Any) -> None:
    """Options of data that are copied to clusters and back."""
    kind: Any = {"action": "append", "type": parse.copy, "metavar": "FROM:TO"}
    about = "copied to its own folder on each cluster that may run it, before it waits there"
    group.add_argument("--stage-in", **kind, help=f"{about}; paths as rsync's")
    about = "copied back after its end, as its output; then the folder is removed"
    group.add_argument("--stage-out", **kind, help=about)


def add_launched(group: Any) -> None:
    """Options of working folder and environment."""
    group.add_argument(
        "-D",
        "--chdir",
        dest="cwd",
        type=_folder,
        metavar="DIR",
        help="working folder (default: this one)",
    )
    group.add_argument(
        "--export",
        metavar="WHAT",
        help="environment: ALL (default), NONE, or VAR,VAR=value, also after ALL",
    )


def add_failures(group: Any, of: str, then: str) -> None:
    """Options of retries of a piece or a task, and of what ``--keep-going`` does then."""
    group.add_argument(
        "--retries",
        type=parse.count,
        metavar="N",
        help=f"run a failed {of} again so often (default 0)",
    )
    group.add_argument("-k", "--keep-going", action="store_true", help=f"after a failure, {then}")


def _limit(text: str) -> float:
    """A time limit; infinite is none (None would mean that the option was not given)."""
    value = parse.time_limit(text)
    return float("inf") if value is None else value


SHARED: Mapping[str, tuple[str, Callable[[str], Any], str, str]] = {
    "name": ("-J --job-name", str, "NAME", "default: "),
    "procs": ("-n --ntasks", parse.procs, "N|MIN-MAX", ""),
    "base_time": (
        *("--base-time", parse.seconds, "TIME"),
        "expected run time on dedicated full-speed nodes",
    ),
    "memory_mb_per_proc": (
        *("--mem-per-proc", parse.mebibytes, "SIZE"),
        "memory of one process, in M unless K, G or T is given",
    ),
    "time_limit": ("-t --time", _limit, "TIME", ""),
}
"""Flags, reader, value and help of options of several commands, by the name of their values."""


def add(group: Any, dest: str, about: str = "") -> None:
    """Declare one of `SHARED`; what is said of it here ends its help."""
    flags, read, metavar, text = SHARED[dest]
    group.add_argument(*flags.split(), dest=dest, type=read, metavar=metavar, help=text + about)


def add_answer(group: Any) -> None:
    """Options of the output, and of the command's end."""
    group.add_argument(
        "--test-only", action="store_true", help="say when it would start; queue nothing"
    )
    group.add_argument(
        "-W", "--wait", action="store_true", help="until it has ended; its exit code is ours"
    )
    group.add_argument("-Q", "--quiet", action="store_true", help="print nothing but warnings")
    group.add_argument("--parsable", action="store_true", help="print the job's number only")
    group.add_argument(
        "--token", metavar="TEXT", help="a submit with the token of an earlier one is the same job"
    )


def given_options(
    args: argparse.Namespace, kind: type[SubmissionOptions], command: str
) -> dict[str, Any]:
    """Options for the client that were typed, each under its name there.

    `command` is named where an option is refused.
    """
    typed = {name: getattr(args, name, None) for name in kind.__annotations__}
    given = {k: v for k, v in typed.items() if v is not None and v is not False}
    if isinstance(given.get("constraint"), tuple):
        given["features"] = given.pop("constraint")
    if "export" in args:
        given["env"] = _environment(args.export, command)
    return given


def _folder(path: str) -> str:
    """The folder a job is to run in, which must be there."""
    if not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"{path}: there is no such folder")
    return path


def _environment(export: str | None, command: str) -> dict[str, str]:
    """Variables of ours that a job inherits."""
    try:
        wanted = parse.exported(export or "ALL", os.environ)
    except argparse.ArgumentTypeError as error:
        raise usage_error(command, f"argument --export: {error}") from error
    kept = portable(wanted)
    left_out = [n for n in wanted if n not in kept and not n.startswith("COALLOC_")]
    if left_out:
        names = ", ".join(ascii(name).strip("'") for name in left_out)
        note(f"not passed on, because it is not UTF-8 text: {names}")
    return kept


def usage_error(command: str, what: str) -> CommandError:
    """The refusal of a command line that cannot be carried out."""
    return CommandError(f"{command}: {what} (see coalloc {command} --help)", BAD_USAGE)


def order(
    args: argparse.Namespace,
    body: Mapping[str, Any],
    test: Callable[[Estimate], str],
    what: Callable[[Submitted], str],
) -> int:
    """Send a submission, or ask when it would start; returns the exit code of the command.

    `test` says start and place, for ``--test-only``; `what` says what was queued.
    """
    with connect(args) as client:
        if args.test_only:
            estimate = client.test_submission(body)
            if estimate.start_estimate is None:
                why = estimate.detail or estimate.reason
                raise CommandError(f"no start can be estimated: {why}")
            print(f"Would {test(estimate)}; nothing was queued")
            return 0
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
        for warning in done.warnings:
            note(f"warning: {warning}")
        again = "; the token was known, nothing new was queued" if done.again else ""
        if not args.quiet:
            print(done.job if args.parsable else f"Submitted {what(done)}{again}")
        if not args.wait:
            return 0
        sys.stdout.flush()
        return wait_and_tell(client, done.job, quiet=True)
