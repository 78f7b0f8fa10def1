"""``coalloc calibrate``: measure the relative speed of the nodes of Slurm clusters."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from coalloc.adapters.runner.command import BatchError
from coalloc.adapters.slurm.calibration import measure, relative, write_calibration
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.parsers.records import ParseError
from coalloc.adapters.slurm.parsers.text import parse_node_list
from coalloc.adapters.slurm.reading import chosen_nodes, states_of
from coalloc.adapters.slurm.settings import SlurmSettings, read_settings
from coalloc.cli.command import BAD_USAGE, FAILED, Command, CommandError, configuration
from coalloc.cli.output import show_table
from coalloc.model.errors import InputError
from coalloc.model.formats.nodeset import expand
from coalloc.model.platform import NodeState
from coalloc.model.settings import Config
from coalloc.option_text import add_options
from coalloc.runtime import texts

AT_ONCE = 8
"""Nodes of a cluster that are measured at the same time."""
SPARE_S = 15.0
"""For starting and ending a job, seconds."""


OPTIONS = """
CLUSTER+ @clusters   a Slurm cluster
--config FILE        the daemon's configuration
--nodes SET          only these nodes
--seconds =2         how long each node is measured
--wait SECONDS =60   for a node that is busy; then it is left out
"""


def _calibrate(args: argparse.Namespace) -> int:
    if not 0.05 <= args.seconds <= 600.0:
        raise CommandError(
            f"calibrate: --seconds: {args.seconds:g} is outside 0.05..600", BAD_USAGE
        )
    config = configuration(args)
    try:
        wanted = None if args.nodes is None else frozenset(expand(args.nodes, "--nodes"))
    except InputError as error:
        raise CommandError(f"calibrate: {error}", BAD_USAGE) from error
    rates: dict[str, dict[str, float]] = {}
    failures: list[str] = []
    for name in args.clusters:
        settings = _settings(config, name)
        rates[name], failed = _measured(settings, wanted, args.seconds, args.wait)
        failures += [f"{name}: {why}" for why in failed]
    fastest = max((rate for found in rates.values() for rate in found.values()), default=0.0)
    lines = []
    for name, found in rates.items():
        powers = relative(found, fastest)
        if powers:
            folder = Path(config.daemon.state_dir) / "executors" / name
            write_calibration(folder / "calibration.json", powers, time.time())
        lines += [(name, node, f"{found[node]:.0f}", f"{powers[node]:.3f}") for node in found]
    show_table(("CLUSTER", "NODE", "RATE", "POWER"), lines, right=frozenset({"RATE", "POWER"}))
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise CommandError(f"calibrate: {failures[0]}{more}", FAILED)
    return 0


def _settings(config: Config, name: str) -> SlurmSettings:
    for cluster in config.clusters:
        if cluster.name == name and cluster.adapter == "slurm":
            try:
                return read_settings(dict(cluster.settings), name, f"clusters.{name}.settings")
            except InputError as error:
                raise CommandError(f"calibrate: {error}", BAD_USAGE) from error
    raise CommandError(f"calibrate: there is no Slurm cluster {name!r}", BAD_USAGE)


def _measured(
    settings: SlurmSettings, wanted: frozenset[str] | None, seconds: float, wait_s: float
) -> tuple[dict[str, float], list[str]]:
    """Rates by node, and why others have none."""
    slurm = Slurm(conf=settings.conf, bin_dir=settings.bin, timeout_s=wait_s + seconds + SPARE_S)
    try:
        entries = parse_node_list(slurm.run("scontrol", "-a", "-o", "show", "node"))
    except (BatchError, ParseError) as error:
        return {}, [str(error)]
    chosen = chosen_nodes(settings, entries)
    states, _ = states_of(chosen)
    names = [e.name for e in chosen if states[e.name] is NodeState.UP]
    if wanted is not None:
        names = [name for name in names if name in wanted]
    if not names:
        return {}, ["no node that is up was named"]
    options = [f"--immediate={max(1, round(wait_s))}"]
    options += [f"--partition={settings.partition}"] if settings.partition else []
    options += [f"--account={settings.account}"] if settings.account else []
    options += [f"--reservation={settings.reservation}"] if settings.reservation else []

    def rate_of(node: str) -> float | str:
        try:
            return measure(slurm, node, seconds=seconds, options=options)
        except (BatchError, ValueError) as error:
            return f"{node}: {error}"

    with ThreadPoolExecutor(max_workers=AT_ONCE) as threads:
        answers = dict(zip(names, threads.map(rate_of, names), strict=True))
    rates = {node: answer for node, answer in answers.items() if isinstance(answer, float)}
    return rates, [answer for answer in answers.values() if isinstance(answer, str)]


COMMANDS: Mapping[str, Command] = {
    "calibrate": Command(
        doc="measure the relative speed of the nodes of Slurm clusters",
        about="A small program runs as a Slurm job of one process on each node. Its rate over that "
        "of the fastest\nof all the clusters that are named together is the node's relative speed, "
        "which the clusters'\nexecutors use from their next reading on. Run it where the executors "
        "run, as their user.",
        example="coalloc calibrate alpha beta",
        add=partial(
            add_options, text=OPTIONS, config=Path, seconds=texts.number, wait=texts.number
        ),
        run=_calibrate,
        asks=False,
    )
}
