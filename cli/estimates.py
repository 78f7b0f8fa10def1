"""``coalloc estimates``: how well expected starts and planned run times held on this site."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from coalloc.cli.command import DONE, Command, answer_json, connect
from coalloc.cli.output import show_table
from coalloc.runtime.texts import length

if TYPE_CHECKING:
    from coalloc.core.base.accuracy import StartAccuracy

HEADERS = ("EXPECTED", "AHEAD", "STARTS", "HELD", "WIDTH", "ERROR", "5-95 %")
KINDS = {"first": "at first", "later": "while waiting"}


def _estimates(args: argparse.Namespace) -> int:
    with connect(args) as client:
        answer = client.accuracy()
    if args.json:
        answer_json(answer)
        return DONE
    if not answer.starts:
        print("no job that waited has started since expected starts are remembered")
    else:
        show_table(HEADERS, map(_cells, answer.starts), right=frozenset(HEADERS[2:]))
        print(f"\nHELD is the share of starts in their interval; wanted are {answer.wanted:.0%}.")
    runs = answer.run_times
    if runs is not None:
        print(
            f"run times: {runs.runs} runs took {runs.median:.2g} of what was planned in the middle,"
            f" {runs.low:.2g} to {runs.high:.2g} in nine of ten; median error {runs.error:.0%}"
        )
    return DONE


def _cells(row: StartAccuracy) -> tuple[str, ...]:
    return (
        KINDS.get(row.kind, row.kind),
        row.lead,
        str(row.starts),
        "-" if row.held is None else f"{row.held:.1%}",
        "-" if row.width_s is None else length(row.width_s),
        length(row.error_s),
        length(row.error_width_s),
    )


COMMANDS: Mapping[str, Command] = {
    "estimates": Command(
        doc="how well expected starts and planned run times held",
        about="How well expected starts and planned run times held on this site. For the first "
        "expected start\nof each job, and for those it was given while it waited, by how far "
        "ahead they were: how many\nstarts were in their interval, how wide it was, how far the "
        "single instant was off, and from the\n5th to the 95th percentile of that.",
        example="coalloc estimates\n  coalloc estimates --json",
        run=_estimates,
        query=True,
    )
}
