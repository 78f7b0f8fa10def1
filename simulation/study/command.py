"""``coalloc study``, and ``coalloc reproduce online``, which is the study of `ONLINE`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from coalloc.model.errors import InputError
from coalloc.model.values import replace
from coalloc.option_text import add_options
from coalloc.simulation.progress import Report, progress_bar
from coalloc.simulation.study.declared import (
    BOTH,
    CHOOSE,
    REPORT,
    StudyFile,
    choose_scenarios,
    read_study,
)
from coalloc.simulation.study.report import headline, write_report
from coalloc.simulation.study.rows import cells_of, gather

NAME = "online"
DOC = "how long users wait under each policy, on pieces of real logs"
ONLINE = Path(__file__).parent / "data" / f"{NAME}.toml"
FOLDER = Path("study")
QUICK = {"pieces": 2, "jobs": 100, "seeds": 1}
QUICK_LOGS = 2
FILE_OPTIONS = f"""
FILE                   the study: policies, logs, scenarios (docs/REPRODUCTION.md)
--quick                a smoke test: one draw, 100 jobs of two pieces of the first two logs
-o --output DIR ={FOLDER}   for rows, report and picture, made if need be (default: {FOLDER})
--seed N               first seed of the draws
--quiet                no progress
"""
OPTIONS = """
--policies P[,P...]    with options as auto:window=50:patience=10
--base P[,P...]        policy that the others are compared with (default: that of the file, or the
                       first one); of several the better one, on each piece, figure by figure
--logs LOG[,LOG...]    of those of the file (default: all)
--scenarios S[,S...]   of those of the file (default: all of no group); or the name of a group of
                       them; in online coallocation: when jobs on several clusters pay; moldable:
                       what widths gain; workflows: how long they and others wait
--pieces N             of each log, evenly spread (default: all)
--half HALF            pieces to choose by, or those to report on: choose, report or both
--jobs N               the first N of each piece
--seeds N              so many draws
--work N               work limit of each call of a search
--data DIR             folder of the logs (default: that of the file; of online ../shared/data/swf)
--processes N          replays at a time (default: as many as there are cores)
--dask ADDRESS         replay on the workers of this Dask cluster, which have coalloc, and the logs
                       under the same paths
--afresh               replay what the output folder has already, too
"""
COUNTS = ("pieces", "jobs", "seeds", "work", "processes")
LISTS = ("policies", "base", "logs", "scenarios")


def add_options_of_study(parser: Any) -> None:
    """Add the options of every study."""
    halves = (CHOOSE, REPORT, BOTH)
    readers = {**dict.fromkeys(COUNTS, count), **dict.fromkeys(LISTS, listed)}
    add_options(parser, OPTIONS, **readers, half=halves, data=Path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_options(parser, FILE_OPTIONS, file=Path, output=Path, seed=int)
    add_options_of_study(parser)


def count(text: str) -> int:
    """A number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def listed(text: str) -> tuple[str, ...]:
    """Names between commas, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def run(args: argparse.Namespace) -> int:
    """Carry out ``coalloc study``; see `carry_out`."""
    with progress_bar(quiet=args.quiet) as report:
        return carry_out(args, args.file, args.data or args.file.parent, report)


def run_online(args: argparse.Namespace, report: Report) -> int:
    """Carry out ``coalloc reproduce online``; see `carry_out`."""
    data = args.data or Path(os.environ.get("COALLOC_SHARED") or "../shared", "data", "swf")
    if not data.is_dir():
        what = "is absent; --data or COALLOC_SHARED names the folder of the logs"
        raise InputError(str(data), what)
    return carry_out(args, ONLINE, data, report)


def carry_out(args: argparse.Namespace, file: Path, data: Path, report: Report) -> int:
    """Carry out a study, as the options change it; 0 done, 1 something failed.

    Raises `InputError`.
    """
    study, name = changed(read_study(file), args), file.stem
    cells = cells_of(study, data)
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / f"{name}.rows.jsonl"
    processes = args.processes or len(os.sched_getaffinity(0))
    if not args.quiet:
        where = f"by {args.dask}" if args.dask else f"{processes} at a time"
        print(f"{name}: {len(cells)} replays, {where}; rows: {path}", file=sys.stderr, flush=True)
    rows = gather(
        cells,
        path,
        processes=processes,
        dask=args.dask or "",
        afresh=args.afresh,
        on_progress=report,
    )
    missing = write_report(study, rows, args.output, name)
    print(f"{name}: {headline(study, rows)}\nreport: {args.output / name}.md")
    if missing:
        print(f"coalloc: error: {missing}", file=sys.stderr)
    return 1 if missing or any("failed" in row for row in rows) else 0


def changed(study: StudyFile, args: argparse.Namespace) -> StudyFile:
    """A study as the options of the command change it. Raises `InputError`."""
    kept: dict[str, Any] = {**QUICK} if args.quick else {}
    names = ("policies", "base", "pieces", "half", "jobs", "seed", "seeds", "work")
    kept |= {name: value for name in names if (value := getattr(args, name)) is not None}
    logs = args.logs or list(study.logs)[: QUICK_LOGS if args.quick else None]
    for name in logs:
        if name not in study.logs:
            there = ", ".join(study.logs)
            raise InputError("--logs", f"there is no log {name!r}; there are {there}")
    made = replace(
        study,
        logs={name: study.logs[name] for name in logs},
        scenarios=choose_scenarios(study.scenarios, args.scenarios or ()),
        **kept,
    )
    if set(made.bases) <= set(made.policies):
        return made
    if args.base:
        raise InputError("--base", f"{', '.join(made.base)}: not all are among the policies")
    return replace(made, base=())
