"""``coalloc simulate`` and ``reproduce``: mounted from where they live."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from coalloc.cli.command import Command


def _add_simulate(parser: argparse.ArgumentParser) -> None:
    from coalloc.simulation.command import add_arguments

    add_arguments(parser)


def _simulate(args: argparse.Namespace) -> int:
    from coalloc.simulation.command import run

    return run(args)


def _add_reproduce(parser: argparse.ArgumentParser) -> None:
    from coalloc.simulation.reproduce.command import add_arguments

    add_arguments(parser)


def _reproduce(args: argparse.Namespace) -> int:
    from coalloc.simulation.reproduce.command import run

    return run(args)


COMMANDS: Mapping[str, Command] = {
    "simulate": Command(
        doc="replay a job log under one or several policies",
        example="coalloc simulate --workload log.swf.gz --platform site.toml --policy fcfs,easy",
        add=_add_simulate,
        run=_simulate,
        asks=False,
    ),
    "reproduce": Command(
        doc="a paper's figures again: data, picture, text",
        about="Carry out experiments of the papers behind the policies. Each writes NAME.csv,\n"
        "NAME.png, NAME.pdf and NAME.md: what the paper claims, what was measured, why they\n"
        "differ.",
        example="coalloc reproduce --list\n  coalloc reproduce oas-fig4 -o figures\n"
        "  coalloc reproduce all --quick",
        add=_add_reproduce,
        run=_reproduce,
        asks=False,
    ),
}
