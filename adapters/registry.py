"""Every adapter by its name in the configuration; each is loaded when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from coalloc.adapters.base import Adapter
from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown


class Check(Protocol):
    """Reads an adapter's settings without touching the batch system."""

    def __call__(self, value: Any, cluster: str, where: str) -> Any:
        """Return the settings read; raise InputError at `where` if they are malformed."""


class AdapterKind(Struct, frozen=True, kw_only=True):
    """One kind of batch system."""

    check: Check
    make: Callable[[Any, Path], Adapter]
    """Of the settings read, and the folder for state."""
    doc: str

    def open(self, value: Any, cluster: str, where: str, state_dir: Path) -> Adapter:
        """Make the adapter of one cluster; `AdapterError` where it cannot be used."""
        return self.make(self.check(value, cluster, where), state_dir)


def adapter_kind(name: str, where: str = "adapter") -> AdapterKind:
    """The adapter of this name. Raises `InputError`."""
    kind = ADAPTERS.get(name)
    if kind is None:
        raise InputError(where, f"{shown(name)} is not one of {', '.join(ADAPTERS)}")
    return kind


def _check_gridengine(value: Any, cluster: str, where: str) -> object:
    from coalloc.adapters.gridengine.settings import read_settings

    return read_settings(value, cluster, where)


def _open_gridengine(settings: Any, state_dir: Path) -> Adapter:
    from coalloc.adapters.gridengine.adapter import open_gridengine

    return open_gridengine(settings, state_dir)


def _check_local(value: Any, cluster: str, where: str) -> object:
    from coalloc.adapters.local.settings import read_settings

    return read_settings(value, cluster, where)


def _open_local(settings: Any, state_dir: Path) -> Adapter:
    from coalloc.adapters.local.adapter import open_local

    return open_local(settings, state_dir)


def _check_slurm(value: Any, cluster: str, where: str) -> object:
    from coalloc.adapters.slurm.settings import read_settings

    return read_settings(value, cluster, where)


def _open_slurm(settings: Any, state_dir: Path) -> Adapter:
    from coalloc.adapters.slurm.adapter import open_slurm

    return open_slurm(settings, state_dir)


def _check_trace(value: Any, cluster: str, where: str) -> object:
    from coalloc.adapters.trace import read_settings

    return read_settings(value, cluster, where)


def _open_trace(settings: Any, _: Path) -> Adapter:
    from coalloc.adapters.trace import open_trace

    return open_trace(settings)


ADAPTERS: Mapping[str, AdapterKind] = {
    "local": AdapterKind(
        check=_check_local,
        make=_open_local,
        doc="this machine's CPUs as one cluster, or one of several",
    ),
    "gridengine": AdapterKind(
        check=_check_gridengine,
        make=_open_gridengine,
        doc="a Grid Engine cell, by its commands",
    ),
    "slurm": AdapterKind(
        check=_check_slurm,
        make=_open_slurm,
        doc="a Slurm cluster, by its commands",
    ),
    "trace": AdapterKind(
        check=_check_trace,
        make=_open_trace,
        doc="a cluster of a platform file, for rehearsals; it only reads",
    ),
}
