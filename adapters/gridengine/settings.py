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

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from coalloc.adapters.batch.settings import (
    BatchSettings,
    Folder,
    Wait,
    read_batch,
)
from coalloc.model.errors import InputError

_START = "(?!-)"
_LETTER = "[^\\s,|=\"'@*?\\[\\]!&()]"
_NAME = {"kind": "a name in Grid Engine"}
OwnPort = Annotated[int, Meta(ge=0, le=65535)]
Name = Annotated[str, Meta(pattern=f"^{_START}{_LETTER}*$", extra=_NAME)]
"""Neither an option, nor several arguments, nor a pattern."""
Needed = Annotated[str, Meta(pattern=f"^{_START}{_LETTER}+$", extra=_NAME)]


class GridEngineSettings(BatchSettings, frozen=True, kw_only=True, dict=True):
    """One Grid Engine cell."""

    root: Folder = ""
    """SGE_ROOT of every command; default that of the executor's environment."""
    cell: Name = ""
    """SGE_CELL; default the environment's."""
    qmaster_port: OwnPort = 0
    """SGE_QMASTER_PORT; 0: the environment's, else of /etc/services."""
    execd_port: OwnPort = 0
    """SGE_EXECD_PORT; 0: the environment's, else of /etc/services."""
    queue: Needed = "all.q"
    """The cluster queue whose hosts are the nodes; parts are submitted to it."""
    slots: Literal["queue", "node"] = "queue"
    """A host takes a process for each slot of the queue there, or one, and is claimed with all its
    slots."""
    pe: Needed = "smp"
    """Parallel environment with allocation_rule $pe_slots, for parts with more than one slot of a
    host."""
    pe_slots: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Its allocation_rule, where that is a number: a part has so many slots of a host, or one."""
    complexes: dict[str, Needed] = field(default_factory=dict)
    """Complexes that jobs ask for, by what they stand for: { memory = "h_vmem", gpu = "gpu" },
    consumable for each slot, and `exclusive`, one with relop EXCL."""
    load: Literal["gridengine", "none"] = "gridengine"
    """Whether load that is not ours is read from what execd reports."""
    start: Literal["at_once", "queue"] = "at_once"
    """Parts are claimed at once or not at all, or, where other jobs go first, as ordinary jobs that
    wait in Grid Engine's queue."""
    queue_wait_s: Wait = 30.0
    """A part claimed at once that Grid Engine has not started after this long is refused, s; more
    than its schedule_interval."""
    project: Name = ""
    """-P of what is submitted."""
    account: Name = ""
    """-A of what is submitted."""


def read_settings(value: Any, cluster: str, where: str = "") -> GridEngineSettings:
    """Read the settings of the adapter ``gridengine``; see `read_batch`. Raises `InputError`."""
    settings = read_batch(value, GridEngineSettings, cluster, where)
    if settings.is_by_files:
        raise InputError(f"{where}.route" if where else "route", "'files' is for Slurm only")
    return settings
