"""Settings that every batch system has, and the types of those that each adds."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct, field

from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown
from coalloc.model.formats.nodeset import expand, expand_counts
from coalloc.model.formats.structs import read_struct
from coalloc.model.values import replace

Folder = Annotated[str, Meta(pattern="^(/|$)", extra={"kind": "an absolute path"})]
Power = Annotated[float, Meta(gt=0, le=1)]
Port = Annotated[int, Meta(ge=1, le=65535)]
CommandLimit = Annotated[float, Meta(gt=0, le=86_400)]
"""Of one command, seconds."""
Wait = Annotated[float, Meta(ge=1, le=1e9)]
"""Seconds."""


class BatchSettings(Struct, frozen=True, kw_only=True, dict=True):
    """One cluster of a batch system."""

    cluster: str
    bin: Folder = ""
    """Folder of the batch system's commands; default those on PATH."""
    nodes: str = ""
    """Only these nodes, a node set; default: all."""
    qualified: bool = False
    """Publish cluster/node, where another cluster has nodes of the same names."""
    power: Power = 1.0
    """Speed of a node of which nothing else is said, relative to the fastest."""
    power_by_node: dict[str, Power] = field(default_factory=dict)
    """Speed by node set."""
    # Once read, by the batch system's names of nodes.
    ssh: Annotated[str, Meta(pattern=r"^(?!-)\S*$", extra={"kind": "a login"})] = ""
    """Login node by which all commands run, as ssh takes it: ``ada@login.alpha.example``, or an
    alias. Jobs run as that user; nothing is installed there."""
    ssh_config: Folder = ""
    """ssh's configuration file; default the user's own."""
    copy_mb_s: Annotated[float, Meta(ge=0, le=1e6)] = 50.0
    """Bandwidth of a copy for ``--stage-in`` and ``--stage-out``, at most, MB/s; 0: no limit."""
    address: str = ""
    """Where the nodes reach the executor's machine; default its full name, and with ``ssh`` by way
    of the login node."""
    ports: tuple[Port, ...] = ()
    """First and last port on which the executor's machine listens to the nodes, one for each part
    and one for the gate; default any that is free."""
    route: Literal["auto", "head", "login", "files"] = "auto"
    """Whom nodes call with ``ssh``: the executor's machine, the login node, or nobody, where their
    parts are told and read by files in a home that all share. Default: with `address` the first,
    else the second; ``coalloc connect`` finds it out."""
    whole_jobs: bool = False
    """Only jobs that run here as a whole, as where the nodes' clocks differ from this machine's, so
    that parts cannot be told when to start together."""
    python: str = "python3"
    """Python 3.6 or later on the nodes, by name or path."""
    command_limit_s: CommandLimit = 10.0
    """Time limit of one command, s."""

    @property
    def is_relayed(self) -> bool:
        """Nodes reach the executor's machine by the login node."""
        is_found = self.route == "login" or (self.route == "auto" and not self.address)
        return bool(self.ssh and is_found)

    @property
    def is_by_files(self) -> bool:
        """Nodes reach nobody, and are told and read by files."""
        return self.route == "files"

    @cached_property
    def only(self) -> frozenset[str] | None:
        """Names of the nodes that are ours to use; None: all."""
        return frozenset(expand(self.nodes, "nodes")) if self.nodes else None

    def published(self, node: str) -> str:
        """The name under which the service knows a node of the batch system's."""
        return f"{self.cluster}/{node}" if self.qualified else node

    def plain(self, name: str) -> str:
        """The batch system's name of a node that the service knows by this name."""
        return name.removeprefix(f"{self.cluster}/") if self.qualified else name


Settings = TypeVar("Settings", bound=BatchSettings)


def read_batch(value: Any, form: type[Settings], cluster: str, where: str) -> Settings:
    """Read settings of this form, as `read_struct` does, with sets of nodes expanded."""
    settings = read_struct(value, form, where, {"cluster": cluster})
    prefix = f"{where}." if where else ""
    ports = settings.ports
    if ports and (len(ports) != 2 or ports[0] > ports[1]):
        raise InputError(f"{prefix}ports", f"{shown(list(ports))} is not a first and a last port")
    for is_wrong, why in (
        (settings.route != "auto" and not settings.ssh, "is for clusters with ssh"),
        (
            settings.route in {"login", "files"} and settings.address,
            "goes without an address",
        ),
        (settings.route == "head" and not settings.address, "needs the address of this machine"),
    ):
        if is_wrong:
            raise InputError(f"{prefix}route", f"{shown(settings.route)} {why}")
    if settings.nodes:
        expand(settings.nodes, f"{prefix}nodes")
    by_node = expand_counts(settings.power_by_node, f"{prefix}power_by_node")
    return replace(settings, power_by_node=by_node)
