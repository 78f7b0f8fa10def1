"""Every adapter by its name in the configuration; each is loaded when it is first used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from coalloc.adapters.base import Adapter
from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown


class Check(Protocol):
    """Reads an adapter's settings without touching the batch system."""

    def __call__(self, value: Any, cluster: str, where: str) -> object:
        """Return the settings read; raise InputError at `where` if they are malformed."""


class Open(Protocol):
    """Makes an adapter for one cluster."""

    def __call__(self, value: Any, cluster: str, where: str, state_dir: Path) -> Adapter:
        """Return the adapter.

        Raises
        ------
        InputError
            The settings are malformed.
        AdapterError
            The batch system cannot be used.
        """


class AdapterKind(Struct, frozen=True, kw_only=True):
    """One kind of batch system."""

    check: Check
    open: Open
    doc: str


def adapter_kind(name: str, where: str = "adapter") -> AdapterKind:
    """The adapter of this name. Raises `InputError`."""
    kind = ADAPTERS.get(name)
    if kind is None:
        raise InputError(where, f"{shown(name)} is not one of {', '.join(ADAPTERS)}")
    return kind


def _check_gridengine(value: Any, cluster: str, where: str) -> object:
    from coalloc.adapters.gridengine.settings import read_settings

    return read_settings(value, cluster, where)


def _open_gridengine(value: Any, cluster: str, where: str, state_dir: Path) -> Adapter:
    from coalloc.adapters.gridengine.adapter import open_gridengine
    from coalloc.adapters.gridengine.settings import read_settings

    return open_gridengine(read_settings(value, cluster, where), state_dir)


def _check_local(value: Any, cluster: str, where: str) -> object:
    from coalloc.adapters.local.settings import read_settings

    return read_settings(value, cluster, where)


def _open_local(value: Any, cluster: str, where: str, state_dir: Path) -> Adapter:
    from coalloc.adapters.local.adapter import open_local
    from coalloc.adapters.local.settings import read_settings

    return open_local(read_settings(value, cluster, where), state_dir)


def _check_slurm(value: Any, cluster: str, where: str) -> object:
    from coalloc.adapters.slurm.settings import read_settings

    return read_settings(value, cluster, where)


def _open_slurm(value: Any, cluster: str, where: str, state_dir: Path) -> Adapter:
    from coalloc.adapters.slurm.adapter import open_slurm
    from coalloc.adapters.slurm.settings import read_settings

    return open_slurm(read_settings(value, cluster, where), state_dir)


def _check_trace(value: Any, cluster: str, where: str) -> object:
    from coalloc.adapters.trace import read_settings

    return read_settings(value, cluster, where)


def _open_trace(value: Any, cluster: str, where: str, state_dir: Path) -> Adapter:
    from coalloc.adapters.trace import open_trace, read_settings

    return open_trace(read_settings(value, cluster, where))


ADAPTERS: Mapping[str, AdapterKind] = {
    "local": AdapterKind(
        check=_check_local,
        open=_open_local,
        doc="this machine's CPUs as one cluster, or one of several",
    ),
    "gridengine": AdapterKind(
        check=_check_gridengine,
        open=_open_gridengine,
        doc="a Grid Engine cell, by its commands",
    ),
    "slurm": AdapterKind(
        check=_check_slurm,
        open=_open_slurm,
        doc="a Slurm cluster, by its commands",
    ),
    "trace": AdapterKind(
        check=_check_trace,
        open=_open_trace,
        doc="a cluster of a platform file, for rehearsals; it only reads",
    ),
}
