"""The `trace` adapter: a cluster of a platform file, as a batch system would show it.

It serves rehearsals: a daemon that plans for machines which are not there. It only reads, so
nothing is ever launched; what would run is the business of ``coalloc simulate``. The file is read
again whenever it changes, so that editing a node's power or state plays an incident.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from coalloc.adapters.base import Adapter, AdapterError
from coalloc.adapters.formats.platforms import read_platform
from coalloc.model.errors import InputError
from coalloc.model.formats.structs import read_struct
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.values import replace


class TraceSettings(Struct, frozen=True, kw_only=True):
    """Choice of what a trace shows; `name` is the cluster's name in the service."""

    name: str
    platform: Annotated[str, Meta(min_length=1)]
    """Platform file: TOML, JSON or SimGrid XML."""
    cluster: str = ""
    """Its cluster to show; default: the one of the same name."""


def read_settings(value: Any, cluster: str, where: str) -> TraceSettings:
    """Read the settings of one cluster. Raises `InputError`."""
    settings = read_struct(value, TraceSettings, where, {"name": cluster})
    return replace(settings, cluster=settings.cluster or cluster)


def open_trace(settings: TraceSettings, _: Path) -> Adapter:
    """Return an adapter that reads, and has no launcher; the file must have its cluster."""
    reader = TraceReader(settings)
    reader.read()
    return Adapter(reader=reader)


class TraceReader:
    """Shows one cluster of a platform file."""

    def __init__(self, settings: TraceSettings) -> None:
        self._settings = settings
        self._version: tuple[int, int] | None = None
        self._reading: ClusterReading | None = None

    def read(self) -> ClusterReading:
        """Return the cluster as the file has it now; one that it lacks is unknown, not empty."""
        try:
            status = Path(self._settings.platform).stat()
        except OSError as error:
            raise AdapterError(f"{self._settings.platform}: {error.strerror}") from error
        version = (status.st_mtime_ns, status.st_size)
        if self._reading is None or version != self._version:
            self._reading = self._load()
            self._version = version
        return self._reading

    def _load(self) -> ClusterReading:
        settings = self._settings
        try:
            platform = read_platform(Path(settings.platform))
        except InputError as error:
            raise AdapterError(str(error)) from error
        for cluster in platform.clusters:
            if cluster.name == settings.cluster:
                nodes = tuple(map(NodeReading.of, cluster.nodes))
                return ClusterReading(cluster=settings.name, nodes=nodes)
        names = ", ".join(cluster.name for cluster in platform.clusters)
        raise AdapterError(
            f"{settings.platform}: there is no cluster {settings.cluster!r}; there are {names}"
        )
