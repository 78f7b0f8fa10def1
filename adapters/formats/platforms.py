"""Platforms to simulate: clusters from TOML, JSON, ``.machines`` lists and SimGrid's XML.

Notes
-----
TOML and JSON files hold the cluster objects of the snapshot format, and beside them::

    name = "..."              # for reports
    description = "..."
    [partitions]              # SWF partition number -> cluster, for replays that keep clusters
    1 = "alpha"

Also read: a snapshot (its clusters), the two published tables that name clusters with ``cpus`` and
maybe ``nodes``, ``processor`` and ``swf_partition``, and the ``.machines`` lists beside ``.xswf``
logs (id, name, nodes, processors per node, speed, KiB). Their rules:

- processors are spread over the nodes as evenly as whole numbers allow; without a number of
  nodes each processor is a node;
- power is the clock speed, where the table has it, by the fastest clock of the table. Clock speed
  is an assumption: it says nothing of what one cycle does;
- links are 1 Gbit/s, since the tables do not have them.

Of SimGrid's XML each ``<cluster>`` is read: ``radical`` gives the nodes, ``core`` the slots,
``speed`` by the fastest the power, ``bw`` and ``lat`` the inside of the cluster, ``bb_bw`` and
``bb_lat`` its link (without: ``bw`` and ``lat``, one node's cable). Single hosts and routes are
left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli

from coalloc.adapters.formats.files import read_bytes
from coalloc.adapters.formats.safe_xml import PLACE, read_xml
from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import array, mapping, shown
from coalloc.model.formats.nodeset import LARGEST_SET
from coalloc.model.formats.snapshot_json import read_clusters
from coalloc.model.platform import Cluster

LARGEST_FILE = 50_000_000
TABLE_LINK_GBPS = 1.0
OWN_KEYS = {"name", "description", "clusters", "partitions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Clusters to simulate."""

    name: str
    clusters: tuple[Cluster, ...]
    partitions: Mapping[int, str] = field(default_factory=dict)
    """Cluster of each SWF partition; may be empty."""

    @property
    def slots(self) -> int:
        return sum(cluster.slots for cluster in self.clusters)


def read_platform(path: str | Path) -> Platform:
    """Read a platform file; its form is told by its content, and errors name the file."""
    path = Path(path)
    return parse_platform(read_bytes(path, LARGEST_FILE + 1), path.name, str(path))


def parse_platform(raw: bytes, file_name: str, where: str = "") -> Platform:
    """Read a platform from the bytes of a file; `where` is the prefix of errors.

    The ending of the file's name tells TOML from ``.machines``; the rest names the platform.
    """
    if len(raw) > LARGEST_FILE:
        raise InputError(where, f"is larger than {LARGEST_FILE} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(where, f"is not UTF-8 at byte {error.start}") from error
    name, _, ending = file_name.rpartition(".")
    name = name or file_name
    try:
        start = text.lstrip()[:1]
        if start == "<":
            platform = _from_simgrid(raw, name)
        elif start == "{":
            platform = _from_json(text, name)
        elif ending == "machines":
            platform = _from_machines(text, name)
        else:
            platform = _from_toml(text, name)
        _check(platform)
    except InputError as error:
        raise InputError(f"{where}: {error.where}".strip(": "), error.what) from error
    return platform


def _check(platform: Platform) -> None:
    if not platform.slots:
        raise InputError("clusters", "there is no node")
    names = {cluster.name for cluster in platform.clusters}
    for number, name in platform.partitions.items():
        if name not in names:
            raise InputError(f"partitions.{number}", f"there is no cluster {shown(name)}")


def _from_toml(text: str, name: str) -> Platform:
    try:
        top = tomli.loads(text)
    except (tomli.TOMLDecodeError, RecursionError) as error:
        raise InputError("", f"is no platform: {error}") from error
    return _own(top, name)


def _from_json(text: str, name: str) -> Platform:
    try:
        top = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("", f"is no platform: {error}") from error
    if "format" in top:
        return _own({"clusters": top.get("clusters")}, name)
    clusters = array(top.get("clusters"), "clusters")
    if clusters and isinstance(clusters[0], dict) and "cpus" in clusters[0]:
        return _published(clusters, name)
    return _own(top, name)


def _own(top: dict[str, Any], name: str) -> Platform:
    for key in top:
        if key not in OWN_KEYS:
            raise InputError(key, "unknown key")
    if top.get("clusters") is None:
        raise InputError("clusters", "is missing")
    partitions = {}
    for key, value in mapping(top.get("partitions", {}), "partitions").items():
        if not (key.isascii() and key.isdecimal() and len(key) < 10):
            raise InputError(f"partitions.{key}", "is not the number of a partition")
        if not isinstance(value, str):
            raise InputError(f"partitions.{key}", f"{shown(value)} is not a text")
        partitions[int(key)] = value
    return Platform(
        name=str(top.get("name", name)),
        clusters=read_clusters(top["clusters"], "clusters"),
        partitions=partitions,
    )


def spread(cpus: int, nodes: int) -> list[tuple[int, int]]:
    """Spread processors over nodes evenly: (nodes, slots of each), the smaller nodes first."""
    slots, larger = divmod(cpus, nodes)
    return [(n, s) for n, s in ((nodes - larger, slots), (larger, slots + 1)) if n and s]


def _published(clusters: Any, name: str) -> Platform:
    rows = [_row(item, f"clusters[{i}]") for i, item in enumerate(clusters)]
    fastest = max((clock for *_, clock, _ in rows if clock), default=0.0)
    out, partitions = [], {}
    for label, cpus, nodes, clock, partition in rows:
        power = round(clock / fastest, 4) if clock else 1.0
        out.append(_cluster(label, spread(cpus, nodes), power))
        if partition is not None:
            partitions[partition] = label
    return Platform(name=name, clusters=read_clusters(out, "clusters"), partitions=partitions)


def _row(item: Any, where: str) -> tuple[str, int, int, float, int | None]:
    """Name, processors, nodes, GHz (0: not known) and partition of one row of a table."""
    row = mapping(item, where)
    cpus = _count(row.get("cpus"), f"{where}.cpus")
    nodes = _count(row.get("nodes", cpus), f"{where}.nodes")
    if nodes > cpus:
        raise InputError(f"{where}.nodes", f"{nodes} nodes have only {cpus} processors")
    partition = row.get("swf_partition")
    if partition is not None:
        partition = _count(partition, f"{where}.swf_partition")
    label = row.get("name") or (f"c{partition:02d}" if partition is not None else "")
    if not isinstance(label, str) or not re.fullmatch(r"[A-Za-z0-9_.-]+", label):
        raise InputError(f"{where}.name", f"{shown(label)} is not the name of a cluster")
    clock = re.search(r"([0-9]+(?:\.[0-9]+)?) ?GHz", str(row.get("processor", "")))
    return label, cpus, nodes, float(clock[1]) if clock else 0.0, partition


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(where, f"{shown(value)} is not a whole number")
    if not 1 <= value <= LARGEST_SET:
        raise InputError(where, f"{value} is outside 1..{LARGEST_SET}")
    return value


def _cluster(label: str, groups: list[tuple[int, int]], power: float) -> dict[str, Any]:
    """Return a cluster object whose nodes are numbered through its groups."""
    nodes, first = [], 1
    for count, slots in groups:
        last = first + count - 1
        numbers = str(first) if count == 1 else f"[{first}-{last}]"
        nodes.append({"name": f"{label}n{numbers}", "power": power, "slots": slots})
        first = last + 1
    return {"name": label, "link_gbps": TABLE_LINK_GBPS, "nodes": nodes}


def _from_machines(text: str, name: str) -> Platform:
    out, speeds = [], []
    for number, line in enumerate(text.splitlines(), 1):
        tokens = line.split()
        if not tokens or tokens[0].startswith((";", "#")):
            continue
        where = f"line {number}"
        if len(tokens) < 4:
            raise InputError(where, f"has {len(tokens)} fields, not id name nodes processors speed")
        label = tokens[1]
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", label):
            raise InputError(where, f"{shown(label)} is not the name of a cluster")
        try:
            nodes, slots = (int(token) for token in tokens[2:4])
            speeds.append(float(tokens[4]) if len(tokens) > 4 else 1.0)
        except ValueError as error:
            raise InputError(where, f"has a field that is not a number: {error}") from error
        out.append((label, _count(nodes, where), _count(slots, where)))
    if any(not 0 < speed < float("inf") for speed in speeds):
        raise InputError("", "a speed is not above 0")
    clusters = [
        _cluster(label, [(nodes, slots)], speed / max(speeds))
        for (label, nodes, slots), speed in zip(out, speeds, strict=True)
    ]
    return Platform(name=name, clusters=read_clusters(clusters, "clusters"))


_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "m": 60.0}


def _from_simgrid(raw: bytes, name: str) -> Platform:
    rows = [item.attrib for item in read_xml(raw).iter("cluster")]
    if not rows:
        raise InputError("", "there is no <cluster>")
    speeds = [_flops(row.get("speed", "1f"), row[PLACE]) for row in rows]
    if min(speeds) <= 0:
        raise InputError("", "a speed is not above 0")
    clusters = [
        _simgrid_cluster(row, row[PLACE], speed / max(speeds))
        for row, speed in zip(rows, speeds, strict=True)
    ]
    return Platform(name=name, clusters=read_clusters(clusters, "clusters"))


def _simgrid_cluster(row: Mapping[str, str], where: str, power: float) -> dict[str, Any]:
    if "id" not in row:
        raise InputError(where, "a <cluster> has no id")
    core = row.get("core", "1")
    if not core.isdecimal():
        raise InputError(where, f"core {shown(core)} is not a whole number")
    nodes = [
        {
            "name": f"{row.get('prefix', '')}{number}{row.get('suffix', '')}",
            "power": power,
            "slots": int(core),
        }
        for number in _radical(row.get("radical", ""), where)
    ]
    out: dict[str, Any] = {"name": row["id"], "nodes": nodes}
    for link, inside, key in (("bb_bw", "bw", "gbps"), ("bb_lat", "lat", "latency_s")):
        for attribute, side in ((link, "link"), (inside, "intra")):
            text = row.get(attribute, row.get(inside))
            if text is None:
                continue
            if key == "gbps":
                out[f"{side}_gbps"] = _bits(text, where) / 1e9
            else:
                out[f"{side}_latency_s"] = _seconds(text, where)
    return out


def _radical(text: str, where: str) -> list[int]:
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", part)
        if not match:
            raise InputError(where, f"radical {shown(text)} is not a list of numbers")
        low, high = int(match[1]), int(match[2] or match[1])
        if high - low + len(numbers) >= LARGEST_SET:
            raise InputError(where, f"radical {shown(text)} names more than {LARGEST_SET} nodes")
        numbers += range(low, high + 1)
    return numbers


def _split(text: str, where: str) -> tuple[float, str]:
    match = re.fullmatch(r"\s*([0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]{1,3})?)\s*([A-Za-z]*)\s*", text)
    if not match:
        raise InputError(where, f"{shown(text)} is not a quantity")
    return float(match[1]), match[2]


def _quantity(text: str, unit: str, where: str) -> float:
    value, suffix = _split(text.split(",")[0], where)
    prefix = suffix.removesuffix(unit)
    factor = (_PREFIXES | _BINARY).get(prefix)
    if factor is None:
        raise InputError(where, f"{shown(text)} is not in {unit}")
    return value * factor


def _flops(text: str, where: str) -> float:
    unit = "flops" if text.rstrip().endswith("flops") else "f"
    return _quantity(text, unit, where)


def _bits(text: str, where: str) -> float:
    """Return bits per second; a bare number is bytes per second."""
    if text.rstrip().endswith("bps"):
        return _quantity(text, "bps", where)
    return 8.0 * _quantity(text, "Bps", where)


def _seconds(text: str, where: str) -> float:
    value, suffix = _split(text, where)
    if suffix not in _SECONDS:
        raise InputError(where, f"{shown(text)} is not a time")
    return value * _SECONDS[suffix]
