"""Common ground of all submissions: options, and how a job is sent and waited for."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from coalloc.adapters.runner.once import REPEATED, gpus_of
from coalloc.cli import arguments as parse
from coalloc.cli.command import BAD_USAGE, CommandError, connect, note
from coalloc.cli.jobs.wait import wait_and_tell
from coalloc.client.client import NoAnswerError, RefusedError
from coalloc.client.submission import SubmissionOptions, portable
from coalloc.option_text import Reader, add_options
from coalloc.runtime import texts

if TYPE_CHECKING:
    from coalloc.wire.answers import Estimate, Submitted


TIME_LIMIT = "-t --time TIME @time_limit   {}"
PROCS = "-n --ntasks N|MIN-MAX @procs   {}"
BASE_TIME = "--base-time TIME   expected run time on dedicated full-speed nodes"
MEMORY = """\
--mem-per-proc SIZE @memory_mb_per_proc   memory of one process, in M unless K, G or T is given
"""
NAME = "-J --job-name NAME @name   default: {}"
ORDER = """
-M --cluster --clusters NAMES @clusters   clusters that may run it
-C --constraint FEATURES   features every node must have: fast&ib; what else Slurm knows is passed
                           on to it
--weight --priority W      importance (default 1)
-d --dependency KIND:JOB,... @needs   afterok:1:2,afterany:3,afternotok:4,after:5 (has
                           started),aftercorr:6 (the same member of an array),singleton (my other
                           jobs of this name)
-b --begin TIME @earliest  no start before: now+1hour, 16:00
--deadline TIME @finish_by   start it only if it can end by then, and end it once it cannot:
                           now+2hours, 16:00
-H --hold                  queue it held
"""
BATCH = """
-A --account NAME            account to charge; sites map it for each cluster
-q --qos NAME                quality of service
-p --partition NAMES         only on nodes of one of these, as in sbatch
--reservation NAME           use the nodes it keeps
-L --licenses NAME[:N],...   of each cluster that runs a part
--gres NAME[:TYPE][:N],...   on each of its nodes
"""
OUTPUT = """
-o --output PATTERN @stdout   file for its output: %j {of}, %A array, %a index, %x name, %u user,
                              %r rank (default coalloc-%j.out)
-e --error PATTERN @stderr    file for its errors (default: that of -o)
"""
"""``%j`` stands for `of`."""
LAUNCHED = """
-D --chdir DIR @cwd   working folder (default: this one)
--export WHAT         environment: ALL (default), NONE, or VAR,VAR=value, also after ALL
"""
COPIES = """
--stage-in FROM:TO *    copied to its own folder on each cluster that may run it, before it waits
                        there; paths as rsync's
--stage-out FROM:TO *   copied back after its end, as its output; then the folder is removed
"""
FAILURES = """
--retries N       run a failed {of} again so often (default 0)
-k --keep-going   after a failure, {then}
"""
ANSWER = """
--test-only    say when it would start; queue nothing
-W --wait      until it has ended; its exit code is ours
-Q --quiet     print nothing but warnings
--parsable     print the job's number only
--token TEXT   a submit with the token of an earlier one is the same job
"""


def _limit(text: str) -> float:
    """A time limit; infinite is none (None would mean that the option was not given)."""
    value = parse.time_limit(text)
    return float("inf") if value is None else value


def _folder(path: str) -> str:
    """The folder a job is to run in, which must be there."""
    if not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"{path}: there is no such folder")
    return path


READERS: Mapping[str, Reader] = {
    **dict.fromkeys(("base_time", "work", "chunk_s"), parse.seconds),
    **dict.fromkeys(("earliest", "finish_by"), parse.begin),
    "time_limit": _limit,
    "procs": parse.procs,
    "memory_mb_per_proc": parse.mebibytes,
    "sigma": texts.fraction,
    "proc_gbps": parse.gbps,
    "speedup": texts.speedup,
    "times": parse.times,
    "clusters": parse.names,
    "constraint": parse.constraint,
    "weight": texts.number,
    "needs": parse.needs,
    "array": parse.array,
    "gres": parse.gres,
    "cwd": _folder,
    "mail_type": parse.mail_types,
    "retries": parse.count,
    **dict.fromkeys(("stage_in", "stage_out"), parse.copy),
}
"""Of all these, and of what single commands add, by the names of the values."""


def add(group: Any, *texts: str, **readers: Reader) -> None:
    """Declare options of a submission, with other readers where they are given."""
    add_options(group, "\n".join(texts), **{**READERS, **readers})


def given_options(
    args: argparse.Namespace, kind: type[SubmissionOptions], command: str
) -> dict[str, Any]:
    """Options for the client that were typed, each under its name there.

    `command` is named where an option is refused.
    """
    typed = {name: getattr(args, name, None) for name in kind.__annotations__}
    given = {k: v for k, v in typed.items() if v is not None and v is not False and v != []}
    if isinstance(given.get("constraint"), tuple):
        given["features"] = given.pop("constraint")
    if "export" in args:
        env = given["env"] = _environment(args.export, command)
        if given.get("once"):
            for option, name in REPEATED.items():
                env.pop(name, None)  # of the job from within which it is submitted
                if words := gpus_of({"per_proc": getattr(args, option, None) or {}}):
                    env[name] = words
    return given


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
