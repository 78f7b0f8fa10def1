"""``coalloc update``: change jobs that wait, and the time limit of those that run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from coalloc.cli import arguments as parse
from coalloc.cli.command import Command, connect, each
from coalloc.cli.submit import options as shared
from coalloc.client.submission import JobOptions
from coalloc.model.formats.nodeset import fold_in_order

ABOUT = """\
Change jobs that wait, with the checks of a submit; nothing is changed of a job that is refused.
Of one that runs only --time can be: its user may shorten it, an operator extend it, in Slurm too
where the executor may; `coalloc show` tells when Slurm has refused.

Of an array, the members that still wait are changed, all of them or none. What an option does not
name stays as it is; an empty text ('') takes a dependency, clusters or features away, none a
throttle or a deadline."""


WAITING = f"""
{shared.TIME_LIMIT.format("its new time limit; infinite: none")}
{shared.PROCS.format("processes")}
{shared.BASE_TIME}
{shared.MEMORY}
--weight --priority W   importance
-d --dependency KIND:JOB,... @needs   instead of its dependencies
-M --clusters NAMES     clusters that may run it
-C --constraint FEATURES   features every node must have
--begin TIME @earliest  no start before: now+1hour, 16:00
--deadline TIME @finish_by   start it only if it can end by then, and end it once it cannot:
                        now+2hours, 16:00
--throttle N            of an array: so many of its members run at once, at the most; none: all
{shared.BATCH}
{shared.NAME.format("unchanged")}
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parse.add_jobs(parser)
    shared.add(
        parser,
        WAITING,
        needs=_or_none(parse.needs),
        clusters=_or_none(parse.names),
        constraint=_or_none(parse.constraint),
        finish_by=_deadline,
        throttle=parse.throttle,
    )


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """The reader, which takes an empty text for nothing."""
    return lambda text: read(text) if text else ()


def _deadline(text: str) -> float:
    """The deadline, seconds since the epoch; 0 where there is to be none."""
    return 0.0 if text in {"", "none"} else parse.begin(text)


def _run(args: argparse.Namespace) -> int:
    given = shared.given_options(args, JobOptions, "update")
    if not given:
        raise shared.usage_error("update", "nothing is to be changed")
    with connect(args) as client:

        def change(job: str) -> None:
            print(f"Changed {fold_in_order(client.update(job, **given))}")

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
