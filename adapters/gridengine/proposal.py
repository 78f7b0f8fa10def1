"""The Grid Engine cell that answers on this machine, as a proposal for a configuration."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from coalloc.adapters.base import Proposal, plain_name
from coalloc.adapters.gridengine.commands import GridEngine
from coalloc.adapters.runner.command import BatchError

USUAL_QUEUE = "all.q"
USUAL_CELL = "default"
STEERING = {"SGE_ROOT": "root", "SGE_CELL": "cell"}
"""Variables of the environment, and the settings that take their place in a service."""


def proposals(environ: Mapping[str, str] = os.environ) -> Iterator[Proposal]:
    """Ask the cell of the environment."""
    if shutil.which("qconf", path=environ.get("PATH")) is None:
        return
    commands = GridEngine()
    try:
        queues = commands.run("qconf", "-sql").split()
    except BatchError:
        return
    if queues:
        yield proposed(queues, _environment(commands), environ)


def _environment(commands: GridEngine) -> str:
    """A parallel environment that keeps a job's slots on one host; empty: there is none."""
    try:
        names = commands.run("qconf", "-spl").split()
        texts = {name: commands.run("qconf", "-sp", name) for name in names}
    except BatchError:
        return ""
    return next((name for name, text in texts.items() if keeps_together(text)), "")


def keeps_together(text: str) -> bool:
    """Test if ``qconf -sp`` describes an environment with all slots on one host."""
    pairs = (line.split(None, 1) for line in text.splitlines())
    return ["allocation_rule", "$pe_slots"] in ([word.strip() for word in pair] for pair in pairs)


def proposed(queues: list[str], environment: str, environ: Mapping[str, str]) -> Proposal:
    """Propose the usual queue, else the first, with one process for each of its slots."""
    queue = USUAL_QUEUE if USUAL_QUEUE in queues else queues[0]
    settings: dict[str, Any] = {
        key: environ[variable] for variable, key in STEERING.items() if environ.get(variable)
    }
    settings["queue"] = queue
    settings["slots"] = "queue" if environment else "node"
    if environment:
        settings["pe"] = environment
    others = ", ".join(name for name in queues if name != queue)
    cell = plain_name(environ.get("SGE_CELL", USUAL_CELL))
    return Proposal(
        name="gridengine" if cell in {"", USUAL_CELL} else cell,
        adapter="gridengine",
        settings=settings,
        found=(
            f"Grid Engine, queue {queue}.",
            *((f"Other queues: {others}.",) if others else ()),
            f"The parallel environment {environment} keeps slots on one host."
            if environment
            else "No parallel environment has allocation_rule $pe_slots: a host takes one process.",
        ),
    )
