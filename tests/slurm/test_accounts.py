"""Clusters whose accounts do not know a user: his jobs go elsewhere, or are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.testbeds.accounts import accounts
from tests.testbeds.slurm import alike, bed
from tests.testbeds.slurm_accounting import missing
from tests.testbeds.slurm_site import SlurmSite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can make accounts"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


def test_job_goes_where_its_user_has_an_association(root: Path) -> None:
    with accounts("ann") as (ann,), bed(*alike(2, 2), accounting=True) as running:
        cluster = running["b"]
        for words in (
            ("account", "phys", "cluster=b"),
            ("user", ann.pw_name, "account=phys", "cluster=b"),
        ):
            cluster.run("sacctmgr", "-i", "add", *words)
        with SlurmSite(root, running, account=ann) as site:
            job = site.submit(["true"], 2)
            ended = site.wait(job)
            assert (ended["state"], ended["clusters"]) == ("completed", ["b"]), ended
            assert not ended["barred"]  # it was never tried on the other one
            other = site.submission(["true"], 2, job={"clusters": ["a"]})
            answer = site.ask("submit", **other)
            assert answer["message"] == f"a: {ann.pw_name} has no account there"
