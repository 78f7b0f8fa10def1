"""A real daemon and real executors over Grid Engine cells, and clusters of other kinds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.live_site import Running
from tests.testbeds import slurm_launches as slurm
from tests.testbeds.gridengine import GridEngineTestbed
from tests.testbeds.gridengine_launches import settings_of
from tests.testbeds.slurm import SlurmTestbed as SlurmBed

SECTION = """\
[[clusters]]
name = "{name}"
adapter = "{adapter}"
link_gbps = 1.0
settings = {{ {settings} }}
"""


class MixedSite(Running):
    """One site of Grid Engine cells, one local cluster `alpha`, and Slurm clusters if given.

    Parameters
    ----------
    given : mapping
        Settings of every cell besides those a bed needs.
    """

    def __init__(
        self,
        root: Path,
        cells: GridEngineTestbed,
        others: SlurmBed | None = None,
        *,
        given: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.cells, self.others, self._given = cells, others, dict(given or {})
        sizes = {cell.name: 1 for cell in cells} | {"alpha": 2}
        sizes |= {cluster.name: cluster.shape.nodes for cluster in others or ()}
        # A scheduling run comes once a second, and a busy machine makes it later.
        start = "prepare_timeout_s = 30.0"
        super().__init__(root, clusters=sizes, start=start, **options)

    def free(self, name: str) -> int:
        """Slots of a cluster that the daemon takes to be free."""
        clusters = self.ask("nodes")["clusters"]
        nodes = next(each["nodes"] for each in clusters if each["cluster"] == name)
        return sum(node["free"] for node in nodes)

    def section(self, name: str, nodes: int, slots: int) -> str:
        """A cluster in the configuration."""
        if name == "alpha":
            return super().section(name, nodes, slots)
        if name in self.cells.cells:
            adapter = "gridengine"
            given = settings_of(self.cells[name], qualified=True, load="none", **self._given)
        else:
            assert self.others is not None
            adapter = "slurm"
            given = slurm.settings_of(self.others[name], load="none")
        settings = ", ".join(f"{key} = {json.dumps(value)}" for key, value in given.items())
        return SECTION.format(name=name, adapter=adapter, settings=settings)
