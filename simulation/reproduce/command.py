"""``coalloc reproduce``: carry out experiments of the papers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from coalloc.model.errors import InputError
from coalloc.option_text import add_options
from coalloc.simulation.progress import progress_bar
from coalloc.simulation.report.experiments import experiments_page
from coalloc.simulation.report.page import check_report
from coalloc.simulation.reproduce import psplib
from coalloc.simulation.reproduce.registry import MODULES, PAPERS, carry_out, find, load, template
from coalloc.simulation.reproduce.study import Run
from coalloc.simulation.study import command as online

DONE, FAILED = 0, 1
FOLDER = Path("reproduction")
ALL = "all"
BENCHES = {
    online.NAME: (online.run_online, online.DOC, 1),
    psplib.NAME: (psplib.run, psplib.DOC, 2),
}
"""What is carried out by itself, and so many words of it at most."""


OPTIONS = f"""
NAME* @name                an experiment, or all; or psplib FOLDER
--list                     list the experiments
--quick                    reduced versions: a smoke test of some minutes for all, no reproduction
-o --output DIR ={FOLDER}   for the files, made if need be (default: {FOLDER})
--report FILE              write all of it as one HTML page, with the pictures inside
--seed N =0                other instances than the documented ones
--quiet                    no progress
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_options(parser, OPTIONS, output=Path, report=Path, seed=int)
    online.add_options_of_study(
        parser.add_argument_group("options of online, the bench for waiting on real logs")
    )


def run(args: argparse.Namespace) -> int:
    """Carry out the command: 0 done, 1 something could not be drawn. Raises `InputError`."""
    if args.list:
        print(listing())
        return DONE
    if not args.name:
        raise InputError("reproduce", "names no experiment (see coalloc reproduce --list)")
    check_report(args.report)
    for bench, (carry_out_bench, _, most) in BENCHES.items():
        if bench not in args.name:
            continue
        if args.name[0] != bench or len(args.name) > most:
            raise InputError("reproduce", f"{bench} is carried out by itself")
        with progress_bar(quiet=args.quiet) as report:
            code = carry_out_bench(args, report)
        _write_report(args, [bench])
        return code
    names = chosen(args.name)
    args.output.mkdir(parents=True, exist_ok=True)
    missing = ""
    with progress_bar(quiet=args.quiet) as report:
        study = Run(quick=args.quick, seed=args.seed, report=report)
        for name in names:
            story, elapsed, fault = carry_out(name, template(name), load(name), study, args.output)
            missing = missing or fault
            reduced = " (reduced)" if args.quick else ""
            print(
                f"{name:<{_width()}} {elapsed:7.1f} s  {story.headline}{reduced}",
                flush=True,
            )
    _write_report(args, names)
    if missing:
        print(f"coalloc: error: {missing}", file=sys.stderr)
    return FAILED if missing else DONE


def _write_report(args: argparse.Namespace, names: Sequence[str]) -> None:
    """Write the page of these experiments, where one is asked for."""
    if args.report:
        pages = [args.output / f"{name}.md" for name in names]
        args.report.write_text(experiments_page(pages), encoding="utf-8")


def chosen(names: Sequence[str]) -> list[str]:
    """The experiments of these names, each once. Raises `InputError`."""
    return list(
        dict.fromkeys(one for name in names for one in (MODULES if name == ALL else (find(name),)))
    )


def listing() -> str:
    """All experiments, one line each, under their papers."""
    lines = ["Times are of a processor, about; experiments of one study share theirs."]
    paper = ""
    for name in MODULES:
        about = template(name)
        if about.paper != paper:
            paper = about.paper
            lines.append(PAPERS[paper])
        lines.append(f"  {name:<{_width()}} {about.place:<8} {about.takes:>6}  {about.title}")
    benches = (f"  {name:<{_width()}} {'':<15}  {doc}" for name, (_, doc, _) in BENCHES.items())
    lines += ["Benches", *benches]
    return "\n".join(lines)


def _width() -> int:
    return max(map(len, MODULES))
