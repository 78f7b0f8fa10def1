"""From a rule's resources to the fields of a coalloc job.

A rule's command runs once, in the first of the job's processes; the others end at once. Its
threads are CPUs of one node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from math import ceil
from typing import Any, TypeVar

T = TypeVar("T")

RATE = re.compile(r"([0-9]*\.?[0-9]+) *([kKMGT]?)(bps|bit/s)")
GBPS = {"": 1e-9, "k": 1e-6, "K": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3}
OURS = "coalloc_"


class ResourceError(ValueError):
    """A resource cannot be understood; the message names it."""


def job_fields(threads: int, resources: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a job for `coalloc.Client.submit`.

    Parameters
    ----------
    threads : int
    resources : mapping
        Snakemake's: ``runtime`` (minutes), ``mem_mb``, ``mem_mb_per_cpu`` (MiB), ``gpu`` and
        ``gpu_model``, and ours, which begin with ``coalloc_``.

    Raises
    ------
    ResourceError
    """
    unknown = sorted(k for k in resources if k.startswith(OURS) and k not in READ)
    if unknown:
        raise ResourceError(f"{unknown[0]}: there is no such resource; {', '.join(READ)}")
    fields: dict[str, Any] = {}
    for name, (key, read) in READ.items():
        value = resources.get(name)
        if value not in (None, ""):
            fields[key] = _read(name, value, read)
    procs = fields.setdefault("procs", 1)
    if procs > 1 and "proc_gbps" not in fields:
        fields["one_cluster"] = True
    if resources.get("runtime"):
        fields["time_limit"] = 60.0 * _read("runtime", resources["runtime"], _positive)
    memory = _memory(procs, threads, resources)
    if memory:
        fields["memory_mb_per_proc"] = memory
    shape: dict[str, Any] = {"cpus_per_proc": threads} if threads > 1 else {}
    if resources.get("gpu"):
        model = resources.get("gpu_model")
        name = f"gpu:{model}" if model else "gpu"
        shape["per_node"] = {name: _read("gpu", resources["gpu"], _count)}
    return fields | ({"shape": shape} if shape else {})


def _memory(procs: int, threads: int, resources: Mapping[str, Any]) -> int:
    """MiB of each process."""
    if resources.get("mem_mb_per_cpu"):
        each = _read("mem_mb_per_cpu", resources["mem_mb_per_cpu"], _positive)
        return ceil(each * threads)
    total = resources.get("mem_mb")
    return ceil(_read("mem_mb", total, _positive) / procs) if total else 0


def _read(name: str, value: Any, read: Callable[[Any], T]) -> T:
    try:
        return read(value)
    except (TypeError, ValueError) as error:
        raise ResourceError(f"{name}: {value!r} {error}") from error


def _positive(value: Any) -> float:
    number = _number(value)
    if not 0.0 < number < float("inf"):
        raise ValueError("is not above 0")
    return number


def _number(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError("is not a number") from None


def _count(value: Any) -> int:
    if str(value).isdecimal() and int(value) > 0:
        return int(value)
    raise ValueError("is not a whole number of at least 1")


def _rate(value: Any) -> float:
    """Gbit/s."""
    found = RATE.fullmatch(str(value).strip())
    if found is None:
        raise ValueError("is not a rate such as 75Mbps")
    return float(found[1]) * GBPS[found[2]]


def _listed(separator: str, value: Any) -> list[str]:
    names = [name.strip() for name in str(value).split(separator)]
    if not all(names):
        raise ValueError(f"is not a list of names with {separator!r} in between")
    return names


READ: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "coalloc_procs": ("procs", _count),
    "coalloc_base_time": ("base_time", _positive),
    "coalloc_bandwidth": ("proc_gbps", _rate),
    "coalloc_sigma": ("sigma", _number),
    "coalloc_clusters": ("clusters", partial(_listed, ",")),
    "coalloc_constraint": ("features", partial(_listed, "&")),
    "coalloc_weight": ("weight", _positive),
}
"""Our resources, the fields they set, and how they are read."""
