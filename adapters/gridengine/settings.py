"""Settings of a Grid Engine cell, for reader and launcher.

::

    root = "/var/lib/gridengine"      # SGE_ROOT of every command
    queue = "all.q"                   # its hosts are the nodes; parts are submitted to it
    slots = "queue"                   # or "node": a host takes one process and is claimed whole
    pe = "smp"                        # parallel environment for more than one slot of a host
    power_by_node = { "n[1-4]" = 0.5 }

``docs/adapters.md`` explains them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from coalloc.adapters.batch.settings import (
    SHARED,
    BatchSettings,
    check_word,
    common_fields,
    read_batch,
)
from coalloc.model.errors import InputError
from coalloc.model.fields import Field, Table

Slots = Literal["queue", "node"]
LoadUse = Literal["gridengine", "none"]

SETTINGS: Table = {
    "root": Field(
        kind="text",
        default="",
        doc="SGE_ROOT of every command; default that of the executor's environment.",
    ),
    "cell": Field(kind="text", default="", doc="SGE_CELL; default the environment's."),
    "qmaster_port": Field(
        kind="integer",
        low=1,
        high=65535,
        doc="SGE_QMASTER_PORT; default the environment's, else /etc/services.",
    ),
    "execd_port": Field(
        kind="integer",
        low=1,
        high=65535,
        doc="SGE_EXECD_PORT; default the environment's, else /etc/services.",
    ),
    "bin": Field(
        kind="text", default="", doc="Folder of Grid Engine's commands; default those on PATH."
    ),
    "queue": Field(
        kind="text",
        default="all.q",
        doc="The cluster queue whose hosts are the nodes; parts are submitted to it.",
    ),
    "nodes": SHARED["nodes"],
    "slots": Field(
        kind="text",
        choices=("queue", "node"),
        default="queue",
        doc="A host takes a process for each slot of the queue there, or one, and is claimed with "
        "all its slots.",
    ),
    "pe": Field(
        kind="text",
        default="smp",
        doc="Parallel environment with allocation_rule $pe_slots, for parts with more than one "
        "slot of a host.",
    ),
    "qualified": SHARED["qualified"],
    "power": SHARED["power"],
    "power_by_node": SHARED["power_by_node"],
    "load": Field(
        kind="text",
        choices=("gridengine", "none"),
        default="gridengine",
        doc="Whether load that is not ours is read from what execd reports.",
    ),
    "command_limit_s": Field(
        kind="number", low=0, above=True, default=10.0, doc="Time limit of one command, s."
    ),
    "queue_wait_s": Field(
        kind="number",
        low=1,
        default=30.0,
        doc="A part that Grid Engine has not started after this long is refused, s; more than its "
        "schedule_interval.",
    ),
    "address": SHARED["address"],
    "ports": SHARED["ports"],
    "python": SHARED["python"],
    "project": Field(kind="text", default="", doc="-P of what is submitted."),
    "account": Field(kind="text", default="", doc="-A of what is submitted."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GridEngineSettings(BatchSettings):
    """One Grid Engine cell.

    Attributes
    ----------
    root, cell : str
        Empty: the environment's.
    qmaster_port, execd_port : int
        0: the environment's.
    command_limit_s, queue_wait_s : float
        Seconds.
    """

    root: str = ""
    cell: str = ""
    qmaster_port: int = 0
    execd_port: int = 0
    queue: str = "all.q"
    slots: Slots = "queue"
    pe: str = "smp"
    load: LoadUse = "gridengine"
    command_limit_s: float = 10.0
    queue_wait_s: float = 30.0
    project: str = ""


def read_settings(value: Any, cluster: str, where: str = "") -> GridEngineSettings:
    """Read the settings of the adapter ``gridengine``.

    Parameters
    ----------
    value : mapping
        As it stands in the configuration.
    cluster : str
    where : str
        Path of `value` in the configuration, for errors.

    Raises
    ------
    InputError
    """
    fields, prefix = read_batch(value, SETTINGS, where, ("root", "bin"))
    for key in ("queue", "pe"):
        if key in fields and not fields[key]:
            raise InputError(f"{prefix}{key}", "is empty")
    for key in ("queue", "pe", "cell", "project", "account"):
        check_word(fields.get(key, ""), f"{prefix}{key}", "Grid Engine", pattern="@*?[]!&()")
    return GridEngineSettings(cluster=cluster, **common_fields(fields, prefix))
