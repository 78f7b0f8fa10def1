"""What the settings of every batch system have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coalloc.model.errors import InputError
from coalloc.model.fields import Field, Table, mapping, read_fields, shown
from coalloc.model.nodeset import expand

SHARED: Table = {
    "nodes": Field(kind="text", default="", doc="Only these nodes, a node set; default: all."),
    "qualified": Field(
        kind="flag",
        default=False,
        doc="Publish cluster/node, where another cluster has nodes of the same names.",
    ),
    "power": Field(
        kind="number",
        low=0,
        above=True,
        high=1,
        default=1.0,
        doc="Speed of a node of which nothing else is said, relative to the fastest.",
    ),
    "power_by_node": Field(
        kind="loads", low=0, above=True, high=1, default={}, doc="Speed by node set."
    ),
    "address": Field(
        kind="text",
        default="",
        doc="Where the nodes reach the executor's machine; default its full name.",
    ),
    "ports": Field(
        kind="integers",
        low=1,
        high=65535,
        default=[],
        doc="First and last port on which the executor's machine listens to the nodes, one for "
        "each part; default any that is free.",
    ),
    "python": Field(
        kind="text", default="python3", doc="Python 3.9 or later on the nodes, by name or path."
    ),
}
"""Settings that mean the same in every batch system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """One cluster of a batch system.

    Attributes
    ----------
    cluster : str
        Its name in the service.
    bin : str
        Folder of the system's commands; empty: those on PATH.
    nodes : frozenset of str or None
        Only these, by the system's names; None: all.
    qualified : bool
        The service knows the node n1 of the cluster alpha as alpha/n1.
    power : float
        (0, 1]; `power_by_node` comes before it.
    address, ports, python
        Where the nodes reach the executor's machine, (0, 0) being any port; their Python.
    """

    cluster: str
    bin: str = ""
    nodes: frozenset[str] | None = None
    qualified: bool = False
    power: float = 1.0
    power_by_node: Mapping[str, float] = field(default_factory=dict)
    address: str = ""
    ports: tuple[int, int] = (0, 0)
    python: str = "python3"
    account: str = ""

    def published(self, node: str) -> str:
        """The name under which the service knows a node of the batch system's."""
        return f"{self.cluster}/{node}" if self.qualified else node

    def plain(self, name: str) -> str:
        """The batch system's name of a node that the service knows by this name."""
        return name.removeprefix(f"{self.cluster}/") if self.qualified else name


def read_batch(
    value: Any, table: Table, where: str, folders: Iterable[str]
) -> tuple[dict[str, Any], str]:
    """Read a mapping of settings, and look at what no table of fields can say.

    Parameters
    ----------
    folders : iterable of str
        Keys that hold absolute paths.

    Returns
    -------
    fields : dict
        What was given.
    prefix : str
        What stands before a key in errors.

    Raises
    ------
    InputError
    """
    fields = read_fields(mapping(value, where), table, where)
    prefix = f"{where}." if where else ""
    for key in folders:
        if fields.get(key) and not fields[key].startswith("/"):
            raise InputError(f"{prefix}{key}", f"{shown(fields[key])} is not an absolute path")
    ports = fields.get("ports", ())
    if ports and (len(ports) != 2 or ports[0] > ports[1]):
        raise InputError(f"{prefix}ports", f"{shown(list(ports))} is not a first and a last port")
    return fields, prefix


def common_fields(fields: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The fields with node sets expanded, as `BatchSettings` has them.

    Raises
    ------
    InputError
        A node set cannot be read, or two sets of ``power_by_node`` share a node.
    """
    by_node: dict[str, float] = {}
    for text, power in fields.get("power_by_node", {}).items():
        for name in expand(text, f"{prefix}power_by_node.{text}"):
            if name in by_node:
                raise InputError(f"{prefix}power_by_node.{text}", f"{name} is named twice")
            by_node[name] = power
    only = fields.get("nodes", "")
    return {
        **fields,
        "ports": tuple(fields.get("ports", ())) or (0, 0),
        "power_by_node": by_node,
        "nodes": frozenset(expand(only, f"{prefix}nodes")) if only else None,
    }


def check_word(text: str, where: str, system: str, pattern: str = "") -> None:
    """Refuse what a command would read as several arguments, as an option, or as a pattern.

    Parameters
    ----------
    system : str
        Name of the batch system, for errors.
    pattern : str
        Characters that stand for others there.

    Raises
    ------
    InputError
    """
    if text.startswith("-") or any(c in text for c in " \t\n,|=\"'" + pattern):
        raise InputError(where, f"{shown(text)} is not a name in {system}")
