"""``coalloc reproduce``: the experiments of the papers, which lie in a checkout, and benches."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import coalloc
from coalloc.model.errors import InputError
from coalloc.option_text import add_options
from coalloc.simulation.progress import progress_bar
from coalloc.simulation.report.experiments import experiments_page
from coalloc.simulation.report.page import check_report
from coalloc.simulation.reproduce import psplib
from coalloc.simulation.study import command as online

DONE = 0
FOLDER = Path("reproduction")
CHECKOUT = Path(coalloc.__file__).parents[2]
"""Where this is one, `PAPERS` lies in it."""
PAPERS = "benchmarks.papers.command"
BENCHES = {
    online.NAME: (online.run_online, online.DOC, 1),
    psplib.NAME: (psplib.run, psplib.DOC, 2),
}
"""What is carried out by itself, and so many words of it at most."""


OPTIONS = f"""
NAME* @name                an experiment, or all; or psplib FOLDER, or learned FOLDER
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
        benches = "\n".join(f"  {name:<12} {doc}" for name, (_, doc, _) in all_benches().items())
        print(f"{papers().listing()}\nBenches\n{benches}")
        return DONE
    if not args.name:
        raise InputError("reproduce", "names no experiment (see coalloc reproduce --list)")
    check_report(args.report)
    for bench, (carry_out, _, most) in all_benches().items():
        if bench not in args.name:
            continue
        if args.name[0] != bench or len(args.name) > most:
            raise InputError("reproduce", f"{bench} is carried out by itself")
        with progress_bar(quiet=args.quiet) as report:
            code: int = carry_out(args, report)
        _write_report(args, [bench])
        return code
    names = papers().chosen(args.name)
    args.output.mkdir(parents=True, exist_ok=True)
    with progress_bar(quiet=args.quiet) as report:
        code = papers().carry_out_all(names, args, report)
    _write_report(args, names)
    return code


def all_benches() -> Mapping[str, tuple[Any, str, int]]:
    """The benches, with those of a checkout."""
    return {**BENCHES, **(papers().BENCHES if is_checkout() else {})}


def is_checkout() -> bool:
    """Whether the papers' experiments are here."""
    return Path(CHECKOUT, *PAPERS.split(".")).with_suffix(".py").is_file()


def papers() -> Any:
    """The module of the papers' experiments. Raises `InputError` where there is no checkout."""
    if not is_checkout():
        what = "the papers' experiments come with a checkout of coalloc; elsewhere there are {}"
        raise InputError("reproduce", what.format(" and ".join(BENCHES)))
    if str(CHECKOUT) not in sys.path:
        sys.path.append(str(CHECKOUT))
    return import_module(PAPERS)


def _write_report(args: argparse.Namespace, names: Sequence[str]) -> None:
    """Write the page of these experiments, where one is asked for."""
    if args.report:
        pages = [args.output / f"{name}.md" for name in names]
        args.report.write_text(experiments_page(pages), encoding="utf-8")
