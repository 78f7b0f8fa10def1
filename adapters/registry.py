"""Every adapter by its name in the configuration; each is loaded when it is first used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from msgspec import Struct

from coalloc.adapters.base import Adapter
from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown
from coalloc.model.values import replace


class AdapterKind(Struct, frozen=True):
    """One kind of batch system; its functions are named as `pkgutil.resolve_name` takes them."""

    reads: str
    """Reads settings: of the value, the cluster's name and where they stand."""
    opens: str
    """Makes the adapter of the settings read, and of the folder for state."""
    doc: str

    def check(self, value: Any, cluster: str, where: str) -> Any:
        """Read settings without touching the batch system. Raises `InputError` at `where`."""
        return resolve_name(f"coalloc.adapters.{self.reads}")(value, cluster, where)

    def open(self, value: Any, cluster: str, where: str, state_dir: Path) -> Adapter:
        """Make the adapter of one cluster; `AdapterError` where it cannot be used."""
        settings = self.check(value, cluster, where)
        adapter: Adapter = resolve_name(f"coalloc.adapters.{self.opens}")(settings, state_dir)
        if hasattr(settings, "copy_mb_s"):
            files = settings.ssh, settings.ssh_config, settings.copy_mb_s
            adapter = replace(adapter, files=files)
        return adapter


def adapter_kind(name: str, where: str = "adapter") -> AdapterKind:
    """The adapter of this name. Raises `InputError`."""
    kind = ADAPTERS.get(name)
    if kind is None:
        raise InputError(where, f"{shown(name)} is not one of {', '.join(ADAPTERS)}")
    return kind


ADAPTERS: Mapping[str, AdapterKind] = {
    "local": AdapterKind(
        "local.settings:read_settings",
        "local.adapter:open_local",
        "this machine's CPUs as one cluster, or one of several",
    ),
    "gridengine": AdapterKind(
        "gridengine.settings:read_settings",
        "gridengine.adapter:open_gridengine",
        "a Grid Engine cell, by its commands",
    ),
    "oar": AdapterKind(
        "oar.settings:read_settings",
        "oar.launcher:open_oar",
        "an OAR cluster, by its commands",
    ),
    "slurm": AdapterKind(
        "slurm.settings:read_settings",
        "slurm.adapter:open_slurm",
        "a Slurm cluster, by its commands",
    ),
    "trace": AdapterKind(
        "trace:read_settings",
        "trace:open_trace",
        "a cluster of a platform file, for rehearsals; it only reads",
    ),
}
