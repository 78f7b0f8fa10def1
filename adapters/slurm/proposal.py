"""The Slurm clusters that answer on this machine, as proposals for a configuration."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from coalloc.adapters.base import Proposal, plain_name
from coalloc.adapters.runner.command import BatchError
from coalloc.adapters.slurm.commands import Slurm

USUAL_CONF = "/etc/slurm/slurm.conf"
SINFO = ("-h", "-a", "-o", "%P|%a|%D|%c")
BY_CPU = ("select/cons_tres", "select/cons_res")
"""Plugins that give a job single processors of a node."""


class Partition(Struct, frozen=True, kw_only=True):
    """A partition as sinfo sees it."""

    name: str
    is_default: bool = False
    is_up: bool = True
    nodes: int = 0
    cpus: int = 1
    """Of its largest node."""


def proposals(
    environ: Mapping[str, str] = os.environ, folder: Path = Path("/etc")
) -> Iterator[Proposal]:
    """Ask the cluster of the environment, and those with a ``slurm*/slurm.conf`` in /etc."""
    if shutil.which("sinfo", path=environ.get("PATH")) is None:
        return
    confs = [environ.get("SLURM_CONF", "")]
    confs += [str(path) for path in sorted(folder.glob("slurm*/slurm.conf"))]
    for conf in dict.fromkeys("" if conf == USUAL_CONF else conf for conf in confs):
        commands = Slurm(conf=conf)
        try:
            config = read_config(commands.run("scontrol", "show", "config"))
            partitions = read_partitions(commands.run("sinfo", *SINFO))
        except BatchError:
            continue
        if partitions:
            yield proposed(conf, config, partitions)


def read_config(text: str) -> dict[str, str]:
    """The keys of ``scontrol show config``."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def read_partitions(text: str) -> tuple[Partition, ...]:
    """The partitions that sinfo lists, each once; lines of any other form are left out."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        columns = line.split("|")
        cpus = columns[-1].strip().rstrip("+")
        if len(columns) != 4 or not columns[2].strip().isdigit() or not cpus.isdigit():
            continue
        name = columns[0].rstrip("*")
        before = found.get(name, Partition(name=name))
        found[name] = Partition(
            name=name,
            is_default=columns[0].endswith("*"),
            is_up=columns[1] == "up",
            nodes=before.nodes + int(columns[2]),
            cpus=max(before.cpus, int(cpus)),
        )
    return tuple(found.values())


def proposed(conf: str, config: Mapping[str, str], partitions: tuple[Partition, ...]) -> Proposal:
    """Propose the default partition, else the largest that is up, with slots as Slurm has them."""
    chosen = max(partitions, key=lambda p: (p.is_up, p.is_default, p.nodes))
    by_cpu = config.get("SelectType") in BY_CPU and chosen.cpus > 1
    settings: dict[str, Any] = {"conf": conf} if conf else {}
    settings["partitions"] = [chosen.name]
    settings["slots"] = "cpus" if by_cpu else "node"
    version = config.get("SLURM_VERSION", "")
    others = ", ".join(f"{p.name} ({p.nodes} nodes)" for p in partitions if p != chosen)
    return Proposal(
        name=plain_name(config.get("ClusterName", "")) or "slurm",
        adapter="slurm",
        settings=settings,
        found=(
            f"Slurm {version}, partition {chosen.name}: {chosen.nodes} nodes of up to "
            f"{chosen.cpus} processors.".replace("  ", " "),
            *((f"Other partitions: {others}.",) if others else ()),
            'slots = "node" gives a process a whole node, "cpus" one processor.',
        ),
    )
