"""``coalloc reproduce online``: the bench for on-line quality."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from coalloc.model.errors import InputError
from coalloc.option_text import add_options
from coalloc.simulation.online.bench import ROWS, Bench, carry_out, read_contender
from coalloc.simulation.online.pieces import (
    BOTH,
    CHOOSE,
    DECLARED,
    EVERY,
    PIECE_JOBS,
    REPORT,
    Scenario,
    choose_logs,
    cut,
    find_data,
)
from coalloc.simulation.online.report import headline, write_report
from coalloc.simulation.progress import Report

NAME = "online"
DOC = "how long users wait under each policy, on pieces of real logs"
SCENARIOS = [name for name, one in EVERY.items() if not one.study]
STUDIES = dict.fromkeys(one.study for one in EVERY.values() if one.study)
"""Names that stand for all scenarios of a study, and what they are compared with."""
QUICK_LOGS, QUICK_PIECES, QUICK_JOBS = ("KTH-SP2", "METACENTRUM"), 2, 300


OPTIONS = f"""
--policies P[,P...]    with options as auto:window=50:patience=10
--logs LOG[,LOG...]    of those in the data folder (default: all)
--scenarios S[,S...]   of {", ".join(SCENARIOS)} (default: all); or coallocation: when jobs on
                       several clusters pay; or moldable: what widths gain; or workflows: how long
                       they and others wait
--pieces N             of each log, evenly spread (default: all)
--half ={BOTH}         pieces to choose by, or those to report on (default: both)
--jobs N               of each piece, at most {PIECE_JOBS} (the default)
--work N               work limit of each call of a search
--data DIR             folder of the logs (../shared/data/swf)
--afresh               replay what the output folder has already, too
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that only this experiment has."""
    group = parser.add_argument_group("options of online, the bench for waiting on real logs")
    halves, counts = (CHOOSE, REPORT, BOTH), dict.fromkeys(("pieces", "jobs", "work"), int)
    add_options(group, OPTIONS, **counts, half=halves, data=Path)


def run(args: argparse.Namespace, report: Report) -> int:
    """Carry out the command; returns 0. Raises `InputError`."""
    data = find_data(args.data)
    jobs, most = args.jobs or PIECE_JOBS, args.pieces
    names = _listed(args.logs)
    if args.quick:
        jobs, most = args.jobs or QUICK_JOBS, args.pieces or QUICK_PIECES
        names = names or list(QUICK_LOGS)
    policies = _listed(args.policies)
    bench = Bench(
        pieces=[piece for log in choose_logs(names) for piece in cut(log, data, args.half, most)],
        scenarios=_scenarios(_listed(args.scenarios)),
        contenders=[read_contender(text) for text in dict.fromkeys(policies or DECLARED.policies)],
        data=data,
        jobs=jobs,
        work=args.work,
    )
    if not bench.pieces:
        raise InputError("--half", f"no piece of these logs belongs to {args.half}")
    args.output.mkdir(parents=True, exist_ok=True)
    rows = carry_out(bench, args.output / f"{NAME}.{ROWS}", afresh=args.afresh, on_progress=report)
    missing = write_report(bench, rows, args.output)
    print(f"{NAME}: {len(rows)} replays, {headline(bench, rows)}")
    print(f"report: {args.output / NAME}.md")
    if missing:
        print(f"coalloc: error: {missing}", file=sys.stderr)
    return 1 if missing else 0


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in text.split(",")] if text else []


def _scenarios(names: list[str]) -> list[Scenario]:
    if len(names) == 1 and names[0] in STUDIES:
        mine = [one for one in EVERY.values() if one.study == names[0]]
        bases = {one.against for one in mine}
        return [one for one in EVERY.values() if one in mine or one.name in bases]
    for name in names:
        if name not in EVERY:
            known = ", ".join((*SCENARIOS, *STUDIES))
            raise InputError("--scenarios", f"there is no scenario {name!r}; there are {known}")
    return [EVERY[name] for name in names or SCENARIOS]
