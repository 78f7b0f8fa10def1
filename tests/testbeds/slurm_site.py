"""A real daemon and real executors over real Slurm clusters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.live_site import Running
from tests.testbeds.slurm import SlurmTestbed
from tests.testbeds.slurm_launches import settings_of

SECTION = """\
[[clusters]]
name = "{name}"
adapter = "slurm"
link_gbps = 1.0
settings = {{ {settings} }}
"""


class SlurmSite(Running):
    """The processes of one site whose clusters are a bed's.

    Parameters
    ----------
    given : mapping
        Settings of every cluster besides those a bed needs.
    each : mapping of str to mapping
        Settings of single clusters.
    powers : mapping of str to float
        Of clusters; 1 is that of the others.
    interval_s : float
        Between two readings, seconds.
    """

    def __init__(
        self,
        root: Path,
        bed: SlurmTestbed,
        *,
        given: Any = None,
        each: Mapping[str, Mapping[str, Any]] | None = None,
        powers: Mapping[str, float] | None = None,
        interval_s: float = 0.5,
        **options: Any,
    ) -> None:
        self.bed = bed
        self.policy = str(options.get("policy", "plain"))
        self._given, self._powers = dict(given or {}), dict(powers or {})
        self._each = dict(each or {})
        sizes = {cluster.name: cluster.shape.nodes for cluster in bed}
        super().__init__(root, clusters=sizes, **options)
        text = self.config.read_text()
        self.config.write_text(text.replace("interval_s = 0.5", f"interval_s = {interval_s}"))

    def section(self, name: str, nodes: int, slots: int) -> str:
        """A Slurm cluster in the configuration."""
        # JSON's texts, numbers and flags are TOML's too.
        own = {"load": "none", "power": self._powers.get(name, 1.0), **self._given}
        given = settings_of(self.bed[name], **own, **self._each.get(name, {}))
        settings = ", ".join(f"{key} = {json.dumps(value)}" for key, value in given.items())
        return SECTION.format(name=name, settings=settings)
