"""``coalloc update``: change jobs that wait, and the time limit of those that run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from coalloc.cli import arguments as parse
from coalloc.cli.command import Command, connect, each
from coalloc.cli.submit.options import add, add_batch, given_options, usage_error
from coalloc.client.submission import JobOptions
from coalloc.option_text import add_options
from coalloc.runtime import texts

ABOUT = """\
Change jobs that wait, with the checks of a submit; nothing is changed of a job that is refused.
Of one that runs only --time can be: its user may shorten it, an operator extend it, in Slurm too
where the executor may; `coalloc show` tells when Slurm has refused.

Of an array, the members that still wait are changed, all of them or none. What an option does not
name stays as it is; an empty text ('') takes a dependency, clusters or features away, none a
throttle or a deadline."""


WAITING = """
--weight --priority W   importance
-d --dependency KIND:JOB,... @needs   instead of its dependencies
-M --clusters NAMES     clusters that may run it
-C --constraint FEATURES   features every node must have
--begin TIME @earliest  no start before: now+1hour, 16:00
--deadline TIME @finish_by   start it only if it can end by then, and end it once it cannot:
                        now+2hours, 16:00
--throttle N            of an array: so many of its members run at once, at the most; none: all
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parse.add_jobs(parser)
    add(parser, "time_limit", "its new time limit; infinite: none")
    add(parser, "procs", "processes")
    add(parser, "base_time")
    add(parser, "memory_mb_per_proc")
    add_options(
        parser,
        WAITING,
        weight=texts.number,
        needs=_or_none(parse.needs),
        clusters=_or_none(parse.names),
        constraint=_or_none(parse.constraint),
        earliest=parse.begin,
        finish_by=_deadline,
        throttle=parse.throttle,
    )
    add_batch(parser)
    add(parser, "name", "unchanged")


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """The reader, which takes an empty text for nothing."""
    return lambda text: read(text) if text else ()


def _deadline(text: str) -> float:
    """The deadline, seconds since the epoch; 0 where there is to be none."""
    return 0.0 if text in {"", "none"} else parse.begin(text)


def _run(args: argparse.Namespace) -> int:
    given = given_options(args, JobOptions, "update")
    if not given:
        raise usage_error("update", "nothing is to be changed")
    with connect(args) as client:

        def change(job: str) -> None:
            print(f"Changed {', '.join(client.update(job, **given))}")

        return each(parse.named_jobs(args), change)


COMMANDS: Mapping[str, Command] = {
    "update": Command(
        doc="change jobs that wait, and the time limit of others",
        about=ABOUT,
        example="coalloc update 12 --time 2h --priority 5\n  coalloc update 12 -d ''\n"
        "  coalloc update 14 --throttle 5\n  coalloc update 14 --deadline tomorrow",
        add=_add,
        run=_run,
    )
}
