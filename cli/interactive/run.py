"""``coalloc run``: a command on the clusters as if it ran here; ``coalloc attach``: its output."""

from __future__ import annotations

import argparse
import os
from functools import partial

from coalloc.cli.command import Command, CommandError, Parser, connect, note
from coalloc.cli.interactive.terminal import SignalledError, Terminal, told_end
from coalloc.cli.submit import command as submit
from coalloc.cli.submit import options as shared
from coalloc.cli.submit.shape_words import lay_out
from coalloc.cli.submit.told import Told, add_words, judge, judge_marks, merged
from coalloc.client.client import Client, RefusedError
from coalloc.client.submission import submission
from coalloc.model.sites.streams import PIPES, PTY
from coalloc.option_text import add_options

ABOUT = """\
Run a command as a job, and wait for it: its output and errors come here, and its exit code is
ours, 128 and more after a signal. Nothing is written to files; standard input is empty.

With --pty the command is started once and has this terminal, on the first of its nodes.

An interrupt (Ctrl-C) is passed on to the job's processes; a second one within 2 s ends the job.
SIGTERM and SIGHUP end it at once. If this command is killed, its job is cancelled when it was not
heard of for 60 s. A restart of the daemon is waited for, and nothing of the output is lost."""
ATTACH = """
job     id of a running job
--all   from the beginning, not from the last 4 KiB on
"""
LAST_BYTES = 4096


def _add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "coalloc run [options] [--] COMMAND [ARG...]"
    parser.conflict_handler = "resolve"
    assert isinstance(parser, Parser)
    parser.add_argument("--pty", action="store_true", help="give it a terminal: this one")
    submit.add_shape(parser)
    one_cluster = "--one-cluster   never split it over several"
    shared.add(parser.add_argument_group("when and where"), one_cluster, shared.ORDER)
    shared.add(parser.add_argument_group("what batch systems are told"), shared.BATCH)
    launch = (shared.NAME.format("the command's"), shared.LAUNCHED, shared.COPIES)
    shared.add(parser.add_argument_group("how it runs"), *launch)
    add_words(parser)
    parser.set_defaults(work=None, chunk_s=None, retries=None, keep_going=False)
    parser.set_defaults(stdout=None, stderr=None)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND [ARG...]")


def _run(args: argparse.Namespace) -> int:
    argv = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not argv:
        raise shared.usage_error("run", "no command is given")
    if args.pty and not os.isatty(1):
        raise shared.usage_error("run", "--pty: the output is no terminal")
    told = Told("run")
    options = merged(args, _add, [], told)
    judge(options, told)
    judge_marks(options, told, once=options.pty)
    lay_out(options, told, counts=False)
    told.end()
    options.once, options.stream = options.pty, PTY if options.pty else PIPES
    body = submission(argv, **submit.job_options(options, "", "run"))
    with connect(args) as client:
        done = client.send_submission(body)
        for warning in done.warnings:
            note(f"warning: {warning}")
        code = _followed(client, done.job, is_tty=options.pty)
        if options.stage_out:
            client.wait(done.job)  # for what it brings back
        return code


def _followed(client: Client, job: str, *, is_tty: bool) -> int:
    """Follow a job to its end, which comes when this does."""
    terminal = Terminal(client, job, is_tty=is_tty)
    try:
        with terminal.taking_signals():
            end = terminal.follow()
    except SignalledError as error:
        terminal.cancel(f"its client was ended by {error}")
        return 128 + error.number
    except (BrokenPipeError, RefusedError):
        terminal.cancel("its client ended")
        raise
    return told_end(terminal, end, job)


def _attach(args: argparse.Namespace) -> int:
    with connect(args) as client:
        record = client.show(args.job).record
        if record.stream:
            raise CommandError(f"job {args.job}: its output is its client's alone (coalloc run)")
        terminal = Terminal(client, args.job, begin=0 if args.all else -LAST_BYTES)
        try:
            return told_end(terminal, terminal.follow(), args.job)
        except KeyboardInterrupt:
            note(f"no longer attached; job {args.job} goes on")
            raise


COMMANDS = {
    "run": Command(
        doc="run a command and follow it, also in a terminal",
        about=ABOUT,
        example="coalloc run -n 8 -t 10 -- ./model --check\n  coalloc run --pty -c 4 bash",
        add=_add,
        run=_run,
    ),
    "attach": Command(
        doc="follow a running job's output",
        about="Follow the output of a running job until it ends; its exit code is ours. What is "
        "shown is what\nits first process writes to its files, read on its node. An interrupt "
        "ends this command alone.",
        example="coalloc attach 17",
        add=partial(add_options, text=ATTACH),
        run=_attach,
    ),
}
