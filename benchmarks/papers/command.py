"""Experiments of the papers as ``coalloc reproduce`` lists and carries them out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.papers import learned
from benchmarks.papers.registry import MODULES, PAPERS, carry_out, find, load, template
from benchmarks.papers.study import Run
from coalloc.simulation.progress import Report

ALL = "all"
BENCHES = {learned.NAME: (learned.run, learned.DOC, 2)}
"""More of what `coalloc reproduce` carries out by itself, and so many words of it at most."""


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
    return "\n".join(lines)


def carry_out_all(names: Sequence[str], args: argparse.Namespace, report: Report) -> int:
    """Carry out these experiments into a folder: 0 done, 1 a picture could not be drawn."""
    study, missing = Run(quick=args.quick, seed=args.seed, report=report), ""
    for name in names:
        story, elapsed, fault = carry_out(name, template(name), load(name), study, args.output)
        missing = missing or fault
        reduced = " (reduced)" if args.quick else ""
        print(f"{name:<{_width()}} {elapsed:7.1f} s  {story.headline}{reduced}", flush=True)
    if missing:
        print(f"coalloc: error: {missing}", file=sys.stderr)
    return 1 if missing else 0


def _width() -> int:
    return max(map(len, MODULES))
