"""Reads this machine: how much of each node is not taken by work that is not ours.

Effective power is the node's relative speed times the share of its CPUs that other people's
work leaves free, measured between two readings (`adapters.machine_load`).

Ours are all processes below one whose name begins with ``coalloc`` (executor, fork server, part
runners, daemon, also those of the other clusters on this machine) and which belongs to root or
to our own user.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from coalloc.adapters.base import AdapterError
from coalloc.adapters.batch.node_load import Load, effective_power
from coalloc.adapters.local.settings import LocalNode, LocalSettings
from coalloc.adapters.machine_load import MachineSample, foreign_loads, sample
from coalloc.adapters.runner.status import uid_of
from coalloc.model.platform import NodeState
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.sites.site_rules import PartitionRules, SiteRules

LEAST_INTERVAL_S = 0.2
"""Two readings closer than this are one: the kernel counts in ticks of 10 ms."""

FIRST_SPAN_S = 0.25
"""Between the two samples of the first reading, seconds."""

SHARED = [name for name in NodeReading.__struct_fields__ if name in LocalNode.__struct_fields__]
OURS = b"coalloc"


class LocalReader:
    """Reads one cluster on this machine; `kept` gives the nodes that take no new work, and why."""

    def __init__(
        self, settings: LocalSettings, kept: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        self._settings, self._kept = settings, kept
        self._pinned = {frozenset(node.pinned) for node in settings.nodes if node.pinned}
        self._last: MachineSample | None = None
        self._loads: dict[frozenset[int] | None, float] = {}

    def read(self) -> ClusterReading:
        """Return the nodes as they are now; the first reading takes as long as its span."""
        if self._last is None:
            # The next plan is made with this reading, and a load is a difference of two samples.
            self._last = self._sample()
            time.sleep(FIRST_SPAN_S)
        if time.monotonic() - self._last.at >= LEAST_INTERVAL_S:
            taken = self._sample()
            self._loads = foreign_loads(self._last, taken, self._pinned)
            self._last = taken
        nodes, kept = [], self._kept()
        for node in self._settings.nodes:
            load = self._loads.get(frozenset(node.pinned) if node.pinned else None, 0.0)
            shared = {name: getattr(node, name) for name in SHARED}
            shared["power"] = effective_power(node.power, Load(share=load))
            nodes.append(
                NodeReading(
                    **shared,
                    load=load,
                    state=NodeState.DRAINING if node.name in kept else NodeState.UP,
                    reason=kept.get(node.name, ""),
                    address=self._settings.address,
                )
            )
        names = {name for node in self._settings.nodes for name in node.partitions}
        rules = SiteRules(
            honoured=("account", "partition") if names else ("account",),
            partitions=tuple(PartitionRules(name=name) for name in sorted(names)),
            bounds_memory=False,
        )
        return ClusterReading(rules=rules, cluster=self._settings.cluster, nodes=tuple(nodes))

    def _sample(self) -> MachineSample:
        found = sample(_is_ours, has_pinned=bool(self._pinned), limit_s=self._settings.read_limit_s)
        highest = max((cpu for cpus in self._pinned for cpu in cpus), default=0)
        if highest >= len(found.busy):
            raise AdapterError(f"there is no CPU {highest}: this machine has {len(found.busy)}")
        return found


def _is_ours(pid: int, name: bytes) -> bool:
    """Test if a process and all below it are ours. Raises OSError where it has just ended."""
    return pid == os.getpid() or (name.startswith(OURS) and uid_of(pid) in {0, os.getuid()})
