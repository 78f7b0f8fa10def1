"""A real daemon and real executors over real Slurm clusters.

With ``COALLOC_SLURM_BY_SSH`` in the environment, those of a user's site have nothing but a login
on each cluster, which its nodes reach: ``make test-slurm-ssh``.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_site import Running
from tests.testbeds.slurm import SlurmTestbed
from tests.testbeds.slurm_launches import settings_of
from tests.testbeds.ssh import login_nodes

BY_SSH = "COALLOC_SLURM_BY_SSH" in os.environ

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
        self._logins = contextlib.ExitStack()
        if BY_SSH and (account := options.get("account")) is not None:
            if self._given.get("start") == "salloc" or "max_share" in self._given:
                pytest.skip("coallocd refuses it for clusters behind ssh, and says so")
            root.mkdir(exist_ok=True)
            steering = {cluster.name: {"SLURM_CONF": str(cluster.conf)} for cluster in bed}
            nodes = login_nodes(root / "ssh", account.pw_name, steering)
            for name, node in self._logins.enter_context(nodes).items():
                own = {"conf": "", "address": "", **node.settings}
                self._each[name] = {**own, **self._each.get(name, {})}
        sizes = {cluster.name: cluster.shape.nodes for cluster in bed}
        super().__init__(root, clusters=sizes, **options)
        text = self.config.read_text()
        self.config.write_text(text.replace("interval_s = 0.5", f"interval_s = {interval_s}"))

    def stop(self) -> None:
        super().stop()
        self._logins.close()

    def section(self, name: str, nodes: int, slots: int) -> str:
        """A Slurm cluster in the configuration."""
        # JSON's texts, numbers and flags are TOML's too.
        own = {"load": "none", "power": self._powers.get(name, 1.0), **self._given}
        given = settings_of(self.bed[name], **own, **self._each.get(name, {}))
        settings = ", ".join(f"{key} = {json.dumps(value)}" for key, value in given.items())
        return SECTION.format(name=name, settings=settings)
