"""The `trace` adapter: a cluster of a platform file, as a batch system would show it.

It serves rehearsals: a daemon that plans for machines which are not there. It only reads, so
nothing is ever launched; what would run is the business of ``coalloc simulate``. The file is read
again whenever it changes, so that editing a node's power or state plays an incident.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coalloc.adapters.base import Adapter, AdapterError
from coalloc.adapters.formats.platforms import read_platform
from coalloc.model.errors import InputError
from coalloc.model.fields import Field, Table, read_fields
from coalloc.model.reading import ClusterReading, NodeReading

SETTINGS: Table = {
    "platform": Field(kind="text", needed=True, doc="Platform file: TOML, JSON or SimGrid XML."),
    "cluster": Field(kind="text", doc="Its cluster to show; default: the one of the same name."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """Choice of what a trace shows.

    Attributes
    ----------
    name : str
        The cluster's name in the service.
    platform : Path
    cluster : str
        Its name in the platform file.
    """

    name: str
    platform: Path
    cluster: str


def read_settings(value: Any, cluster: str, where: str) -> TraceSettings:
    """Read the settings of one cluster.

    Raises
    ------
    InputError
    """
    fields = read_fields(value, SETTINGS, where)
    return TraceSettings(
        name=cluster,
        platform=Path(fields["platform"]),
        cluster=fields.get("cluster") or cluster,
    )


def open_trace(settings: TraceSettings) -> Adapter:
    """Return an adapter that reads, and has no launcher.

    Raises
    ------
    AdapterError
        The file cannot be read, or has no such cluster.
    """
    reader = TraceReader(settings)
    reader.read()
    return Adapter(reader=reader)


class TraceReader:
    """Shows one cluster of a platform file.

    Parameters
    ----------
    settings : TraceSettings
    """

    def __init__(self, settings: TraceSettings) -> None:
        self._settings = settings
        self._version: tuple[int, int] | None = None
        self._reading: ClusterReading | None = None

    def read(self) -> ClusterReading:
        """Return the cluster as the file has it now.

        Raises
        ------
        AdapterError
            The file cannot be read, or has no such cluster: it is unknown then, not empty.
        """
        try:
            status = self._settings.platform.stat()
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
            platform = read_platform(settings.platform)
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
