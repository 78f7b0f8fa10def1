"""``coalloc submit``: sbatch's habits, and what co-allocation adds."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coalloc.cli.command import Command, Parser, note
from coalloc.cli.files import LARGEST_SCRIPT, read_script, script_of
from coalloc.cli.output import node_set
from coalloc.cli.submit import options as shared
from coalloc.cli.submit.script_lines import COALLOC, SBATCH, lines_of, programs
from coalloc.cli.submit.shape_words import add_layout, lay_out
from coalloc.cli.submit.told import (
    Told,
    add_words,
    before_the_script,
    judge,
    judge_marks,
    merged,
    script_options,
)
from coalloc.client.submission import JobOptions, submission
from coalloc.runtime.texts import between, instant
from coalloc.wire.answers import Estimate, Submitted

ABOUT = """\
Queue a job: a script, or a command after --.

A script begins with #! and may hold options in lines that start with #COALLOC, before its
first command; the command line wins. The script is copied when it is submitted: it need not
be executable, and may be changed afterwards.

A job with more processes than one cluster has is split over several; --bandwidth says what
that asks of the links. --ntasks=1-64 lets the planner choose, from --speedup or --times, or
from what earlier runs of the command, or the site's default, say.

--divisible 100h --chunk 5m is work in chunks that run in any order, apart from each other, in the
time that other jobs leave idle. It runs in pieces of some chunks each; a process finds its own in
COALLOC_CHUNK_FIRST and COALLOC_CHUNKS. The job completes when all its chunks have.

Lengths of time are written as in sbatch (M, M:S, H:M:S, D-H, D-H:M, D-H:M:S), or with a unit:
90s, 5m, 1.5h, 2d."""

ONCE = """
--once   start the command once, not once for each process; it holds the slots of all of them, on
         one cluster (coalloc sbatch reads #SBATCH lines, too)
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "coalloc submit [options] SCRIPT [ARG...] | -- COMMAND [ARG...]"
    assert isinstance(parser, Parser)
    add_shape(parser)
    shared.add(parser.add_argument_group("work in chunks"), CHUNKS)
    shared.add(parser.add_argument_group("when and where"), *ORDER)
    shared.add(parser.add_argument_group("what batch systems are told"), shared.BATCH)
    shared.add(parser.add_argument_group("how it runs"), *LAUNCH, ONCE)
    shared.add(parser.add_argument_group("what is printed"), shared.ANSWER)
    add_words(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="SCRIPT [ARG...]")


NEEDS = f"""
{shared.TIME_LIMIT.format("it is ended after this run time; with --divisible, each piece is")}
{shared.BASE_TIME}; with --speedup, on one process
--sigma 0..1          share of the run time that depends on the nodes' speed; the rest,
                      communication, does not: 1 is all computing (default: the site's)
--bandwidth RATE @proc_gbps   peak of one process's communication, such as 75Mbps or 1.5Gbps
--speedup MODEL       amdahl:FRACTION or downey:A,SIGMA, with --base-time
--times N:S,...       run times by processes, seconds, such as 1:100,2:55,8:20
{shared.MEMORY}
"""


def add_shape(parser: Parser) -> None:
    """Options of its size, its times and its communication."""
    group = parser.add_argument_group("what it needs")
    shared.add(group, shared.PROCS.format("processes (default 1)"))
    add_layout(parser, group)
    shared.add(group, NEEDS)


CHUNKS = """
--divisible WORK @work   run it in pieces beside other jobs; all its work, on one full-speed slot
--chunk TIME @chunk_s    length of a chunk of that
""" + shared.FAILURES.format(of="piece", then="run the other chunks")


ORDER = (
    "--one-cluster   never split it over several clusters",
    shared.ORDER,
    """
-a --array INDICES[%N]   such as 0-9,12,20-30:2; with %5 at most five of them run at once
--hold-infeasible        queue it, held, even if it can never run; otherwise it is refused
--requeue                run it again where a batch system preempts it
""",
)
"""When, where, and how often it runs."""
LAUNCH = (
    shared.NAME.format("the script's"),
    shared.OUTPUT.format(of="job"),
    shared.LAUNCHED,
    shared.COPIES,
    """
--mail-type TYPES       mail at these, where the site sends any: BEGIN,END,FAIL,TIME_LIMIT_80, as in
                        sbatch
--mail-user ADDRESSES   to whom (default: the user who submits)
--wrap TEXT             a shell command instead of a script
""",
)
"""Its name, output and command."""


def _run(args: argparse.Namespace) -> int:
    before_the_script(args, "submit")
    argv, script = asked(args, "submit")
    told = Told("submit")
    said = script_options(script, argv[0], (COALLOC,), told)
    options = merged(args, _add, said, told)
    _warn_of_sbatch(script, argv[0])
    judge(options, told)
    judge_marks(options, told, once=options.once)
    lay_out(options, told, counts=False)
    told.end()

    def what(done: Submitted) -> str:
        return f"job {done.job}" + (f" ({len(options.array[0])} jobs)" if options.array else "")

    return send(options, argv, script, what)


def send(
    options: argparse.Namespace,
    argv: Sequence[str],
    script: str,
    what: Callable[[Submitted], str],
    command: str = "submit",
) -> int:
    """Submit a script or a command, with the options that count; returns the exit code.

    Where the `script` is empty, `argv` is a command. `what` says what was queued; `command` is
    named where an option is refused.
    """
    body = submission(argv, **job_options(options, script, command))
    for program in programs(script) if script else argv[:1]:
        _warn_of_missing_command(program, body["launch"])
    _warn_of_missing_folders(options)
    return shared.order(options, body, _start, what)


def asked(args: argparse.Namespace, command: str) -> tuple[list[str], str]:
    """Command line, and a script's text; `command` is named in the refusal if there is neither."""
    words = list(args.command)
    if args.wrap is not None:
        if words:
            raise shared.usage_error(command, "--wrap takes no script")
        return ["wrap"], f"#!/bin/sh\n{args.wrap}\n"
    if words[:1] == ["--"]:
        if not words[1:]:
            raise shared.usage_error(command, "no command after --")
        return words[1:], ""
    if not words:
        if sys.stdin.isatty():
            what = "neither a script nor a command after -- is given"
            raise shared.usage_error(command, what)
        return ["stdin"], read_script(sys.stdin.buffer.read(LARGEST_SCRIPT + 1), "standard input")
    return [os.path.basename(words[0]), *words[1:]], script_of(Path(words[0]))


def _warn_of_sbatch(script: str, shown: str) -> None:
    """One line that names what is not read; sbatch's options mean something to users."""
    told = [f"{number} ({text.strip()})" for number, text in lines_of(script, (SBATCH,)).read]
    if told:
        note(
            f"warning: {shown}: #SBATCH is not read, in line{'s' * (len(told) > 1)} "
            f"{', '.join(told)}; write {COALLOC} for it, or use coalloc sbatch, which reads it "
            "and starts the script once"
        )


def _warn_of_missing_command(program: str, launch: Mapping[str, Any]) -> None:
    """Tell of a command that is not here; it may be on the nodes, so this is no refusal."""
    where = os.path.join(launch.get("cwd") or os.getcwd(), program) if "/" in program else program
    if shutil.which(where, path=launch["env"].get("PATH", os.defpath)) is None:
        note(
            f"warning: there is no command {program} on this machine; the job fails if its nodes "
            "have none either"
        )


def _warn_of_missing_folders(args: argparse.Namespace) -> None:
    """The same for the folders of its output."""
    for option, pattern in (("--output", args.stdout), ("--error", args.stderr)):
        folder = os.path.dirname(os.path.join(args.cwd or os.getcwd(), pattern or "."))
        if "%" not in folder and not os.path.isdir(folder):
            note(
                f"warning: {option}: there is no folder {folder} on this machine; the job fails if "
                "its nodes have none either"
            )


def job_options(args: argparse.Namespace, script: str, command: str) -> JobOptions:
    """Options for the client, from what was typed."""
    given = shared.given_options(args, JobOptions, command)
    if "array" in given:
        given["array"], throttle = given["array"]
        given |= {"throttle": throttle} if throttle else {}
    if script:
        given["script"] = script
    _check_chunks(args, command)
    if "speedup" in given or "times" in given:
        _check_speedup(given, command)
    if "speedup" in given:
        given["speedup"] = {**given["speedup"], "time": given.pop("base_time")}
    options: JobOptions = given  # type: ignore[assignment]
    return options


NOT_DIVISIBLE = {
    "nodes": "--nodes",
    "ntasks_per_node": "--ntasks-per-node",
    "exclusive": "--exclusive",
    "procs": "--ntasks",
    "base_time": "--base-time",
    "sigma": "--sigma",
    "proc_gbps": "--bandwidth",
    "speedup": "--speedup",
    "times": "--times",
    "array": "--array",
    "once": "--once",
    "one_cluster": "--one-cluster",
}
OF_CHUNKS = {"chunk_s": "--chunk", "retries": "--retries", "keep_going": "--keep-going"}


def _check_chunks(args: argparse.Namespace, command: str) -> None:
    if args.work is None:
        for name, option in OF_CHUNKS.items():
            if getattr(args, name):
                raise shared.usage_error(command, f"{option} is for --divisible")
        return
    if args.chunk_s is None:
        raise shared.usage_error(command, "--divisible needs --chunk, the length of a chunk")
    for name, option in NOT_DIVISIBLE.items():
        if getattr(args, name) not in (None, False):
            raise shared.usage_error(command, f"--divisible and {option} exclude each other")


def _check_speedup(given: Mapping[str, Any], command: str) -> None:
    if "speedup" in given and "times" in given:
        raise shared.usage_error(command, "--speedup and --times exclude each other")
    if "times" in given:
        if "base_time" in given:
            raise shared.usage_error(command, "--times says it all; leave --base-time out")
        return
    if "base_time" not in given:
        raise shared.usage_error(
            command, "--speedup needs --base-time, the run time on one process"
        )
    if "procs" not in given:
        raise shared.usage_error(command, "--speedup needs --ntasks=MIN-MAX")


def _start(estimate: Estimate) -> str:
    likely = between(estimate.start_early, estimate.start_late, estimate.time)
    start = instant(estimate.start_estimate) + (f" ({likely})" if likely else "")
    return f"start at {start} on {node_set(estimate.nodes)}"


COMMANDS = {
    "submit": Command(
        doc="queue a job",
        about=ABOUT,
        example="coalloc submit -n 64 -t 2:00:00 --bandwidth 75Mbps model.sh input.nc\n"
        "  coalloc submit --ntasks=1-64 --speedup amdahl:0.95 --base-time 10h -- ./solve\n"
        "  coalloc submit --divisible 100h --chunk 5m --retries 2 -- ./scan",
        add=_add,
        run=_run,
    )
}
