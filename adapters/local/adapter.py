"""The machine itself as one cluster, or one of several: the embedded default.

Nodes are shares of the machine's CPUs (see `local.settings`). The load on them is measured
(see `local.reader`), parts are launched by runners of their own (see `local.launcher`).
"""

from __future__ import annotations

import os
from pathlib import Path

from coalloc.adapters.base import Adapter
from coalloc.adapters.local.launcher import LocalLauncher
from coalloc.adapters.local.reader import LocalReader
from coalloc.adapters.local.settings import LocalSettings
from coalloc.model.errors import InputError


def open_local(settings: LocalSettings, state_dir: Path) -> Adapter:
    """Open both faces; the launcher keeps its parts in `state_dir`. Raises `AdapterError`.

    `InputError`: a node is pinned to a CPU that this process may not use.
    """
    usable = os.sched_getaffinity(0)
    for node in settings.nodes:
        missing = sorted(set(node.pinned or ()) - usable)
        if missing:
            raise InputError(f"{settings.cluster}.nodes", f"{node.name}: no CPU {missing[0]} here")
    launcher = LocalLauncher(settings, state_dir)
    reader = LocalReader(settings, launcher.kept)
    return Adapter(reader=reader, launcher=launcher, streams=launcher.streams)
