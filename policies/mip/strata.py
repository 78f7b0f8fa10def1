"""Nodes of one cluster that the same jobs may use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from coalloc.policies.allocation.scene import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """Classes of one cluster that the same jobs may use, the strongest first."""

    cluster: int
    classes: tuple[int, ...]
    shares_memory: bool


def strata_of(scene: Scene, jobs: Sequence[int]) -> list[Stratum]:
    """Sort the classes that some of the jobs may use into strata."""
    found: dict[Any, list[int]] = {}
    needs_memory = any(scene.candidates[j].memory_mb > 0 for j in jobs)
    for c, one in enumerate(scene.classes):
        users = tuple(j for j in jobs if c in scene.candidates[j].room)
        mixed = needs_memory and one.slots > 1 and one.memory_mb < inf
        if users:
            key = (one.cluster, users, one.closes_at, c if mixed else -1)
            found.setdefault(key, []).append(c)
    return [
        Stratum(
            cluster=key[0],
            classes=tuple(sorted(classes, key=lambda c: -scene.classes[c].power)),
            shares_memory=key[3] >= 0,
        )
        for key, classes in found.items()
    ]
