"""``coalloc simulate``, ``shadow``, ``study`` and ``reproduce``, loaded when they are called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from coalloc.cli.command import Command

SIMULATE, REPRODUCE = "coalloc.simulation.command", "coalloc.simulation.reproduce.command"
SHADOW, STUDY = "coalloc.simulation.shadow.command", "coalloc.simulation.study.command"
SIMULATED = """\
coalloc simulate --workload KTH-SP2-1996-2.1-cln.swf.gz \\
      --platform etc/platforms/kth-sp2.toml --policy fcfs,easy -o out

Estimates plan, real run times end jobs; a job is killed at its estimate. Logs carry neither sigma
nor bandwidth: they are 1 and 0 (no communication known) unless --sigma and --bandwidth say
otherwise, as a number, uniform:LOW,HIGH or choice:A,B,..., drawn with --seed.
With -o, each policy leaves POLICY.jobs.csv (Batsim's columns, for evalys), POLICY.summary.json
and POLICY.gantt.svg there."""

COMMANDS: Mapping[str, Command] = {
    "simulate": Command(
        doc="replay a job log under one or several policies",
        about="Replay a job log on a platform, under one or several policies.",
        example=SIMULATED,
        add=lambda parser: import_module(SIMULATE).add_arguments(parser),
        run=lambda args: import_module(SIMULATE).run(args),
        asks=False,
    ),
    "shadow": Command(
        doc="what a site would have gained, from its own accounts",
        example="coalloc shadow alpha beta --report shadow.html",
        add=lambda parser: import_module(SHADOW).add_arguments(parser),
        run=lambda args: import_module(SHADOW).run(args),
        asks=False,
        query=True,
    ),
    "study": Command(
        doc="compare policies over logs, scenarios and seeds that one file names",
        about="Replay every policy on pieces of job logs in every scenario that a file names, and\n"
        "compare them piece by piece. An interrupted study goes on where it was.",
        example="coalloc study examples/study.toml -o study\n"
        "  coalloc study logs.toml --processes 16\n"
        "  coalloc study logs.toml --dask tcp://head:8786",
        add=lambda parser: import_module(STUDY).add_arguments(parser),
        run=lambda args: import_module(STUDY).run(args),
        asks=False,
    ),
    "reproduce": Command(
        doc="a paper's figures again: data, picture, text",
        about="Carry out experiments of the papers behind the policies. Each writes NAME.csv,\n"
        "NAME.png, NAME.pdf and NAME.md: what the paper claims, what was measured, why they\n"
        "differ.",
        example="coalloc reproduce --list\n  coalloc reproduce oas-fig4 -o figures\n"
        "  coalloc reproduce all --quick",
        add=lambda parser: import_module(REPRODUCE).add_arguments(parser),
        run=lambda args: import_module(REPRODUCE).run(args),
        asks=False,
    ),
}
