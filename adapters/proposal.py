"""Clusters that this machine has, as a proposal for a configuration that does not exist yet.

Every batch system whose commands answer here is proposed; where there is none, the machine itself.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from coalloc.adapters.base import Proposal, plain_name
from coalloc.model.values import replace


def proposals() -> tuple[Proposal, ...]:
    """The clusters of the batch systems that answer on this machine, else the machine."""
    from coalloc.adapters.gridengine import proposal as gridengine
    from coalloc.adapters.slurm import proposal as slurm

    return distinct([*slurm.proposals(), *gridengine.proposals()] or [this_machine()])


def this_machine() -> Proposal:
    """A cluster of one node, with the processors of this machine."""
    cpus = len(os.sched_getaffinity(0))
    return Proposal(
        name=plain_name(socket.gethostname().partition(".")[0]) or "local",
        adapter="local",
        settings={"nodes": 1, "slots": cpus},
        found=(f"No batch system answers here. This machine has {cpus} processors.",),
    )


def distinct(found: list[Proposal]) -> tuple[Proposal, ...]:
    """The proposals under names that differ: of equal ones, the later get a number."""
    names: set[str] = set()
    out = []
    for proposal in found:
        name, number = proposal.name, 1
        while name in names:
            number += 1
            name = f"{proposal.name}-{number}"
        names.add(name)
        out.append(replace(proposal, name=name))
    return tuple(out)


def link_gbps(route: str, devices: Path = Path("/sys/class/net")) -> tuple[str, float] | None:
    """Interface of the default route in ``/proc/net/route``, and its Gbit/s; None: not known."""
    for line in route.splitlines()[1:]:
        columns = line.split()
        if len(columns) < 2 or columns[1] != "00000000":
            continue
        try:
            mbps = int((devices / columns[0] / "speed").read_text())
        except (OSError, ValueError):
            continue
        if mbps > 0:
            return columns[0], mbps / 1000.0
    return None
