"""``coallocd --init`` on a machine with Slurm: what it writes starts, and passes the doctor."""

from __future__ import annotations

import os
from pathlib import Path

from tests.integration.test_doctor_live import Initialised
from tests.testbeds.slurm import SlurmTestbed


def test_a_slurm_cluster_is_found_and_runs_a_job(clusters: SlurmTestbed, root: Path) -> None:
    there = clusters["a"]
    site = Initialised(root, {**os.environ, "SLURM_CONF": str(there.conf)}, "single-user")
    assert site.names == ["a"]
    text = site.config.read_text()
    assert f'conf = "{there.conf}"' in text
    assert 'partitions = ["main"]' in text
    with site:
        site.until(site.is_healthy)
        assert site.wait(site.submit(["true"], 2))["state"] == "completed"
