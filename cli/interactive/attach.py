"""``coalloc attach``: the output of a running job, as it is written."""

from __future__ import annotations

import argparse
from functools import partial

from coalloc.cli.command import Command, CommandError, connect, note
from coalloc.cli.interactive.terminal import Terminal, told_end
from coalloc.option_text import add_options

LAST_BYTES = 4096


OPTIONS = """
job     id of a running job
--all   from the beginning, not from the last 4 KiB on
"""


def _run(args: argparse.Namespace) -> int:
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
    "attach": Command(
        doc="follow a running job's output",
        about="Follow the output of a running job until it ends; its exit code is ours. What is "
        "shown is what\nits first process writes to its files, read on its node. An interrupt "
        "ends this command alone.",
        example="coalloc attach 17",
        add=partial(add_options, text=OPTIONS),
        run=_run,
    )
}
