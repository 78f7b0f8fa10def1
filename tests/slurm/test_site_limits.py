"""Limits of the moment: jobs over one wait for it, as plain ones do, and are never held."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from pwd import struct_passwd
from typing import Any

import pytest

from tests.testbeds.accounts import accounts
from tests.testbeds.slurm import ClusterShape, SlurmTestbed, bed
from tests.testbeds.slurm_accounting import missing
from tests.testbeds.slurm_site import SlurmSite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can make accounts"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

ADDED = (
    ("account", "chem", "bio", "cluster=a"),
    ("qos", "tiny", "MaxJobsPerUser=2"),
    ("qos", "narrow", "GrpTRES=node=2"),
)
LIMITED: dict[str, dict[str, Any]] = {
    "a QOS' jobs of a user": {"qos": "tiny"},
    "a QOS' nodes of all": {"qos": "narrow"},
    "an association's jobs": {"account": "bio"},
    "licences": {"licenses": "matlab"},
}


@pytest.fixture(scope="module")
def limited() -> Iterator[tuple[SlurmTestbed, struct_passwd]]:
    """A quiet cluster with room for all that limits of two let ann run."""
    shape = ClusterShape(name="a", nodes=8, conf="Licenses=matlab:2")
    with accounts("ann") as (ann,), bed(shape, accounting=True) as made:
        for words in (
            *ADDED,
            ("user", ann.pw_name, "account=chem", "cluster=a", "qos=normal,tiny,narrow"),
            ("user", ann.pw_name, "account=bio", "cluster=a", "MaxJobs=2"),
        ):
            made["a"].run("sacctmgr", "-i", "add", *words)
        yield made, ann


@pytest.mark.parametrize("start", ["auto", "sbatch", "salloc"])
def test_four_jobs_run_two_by_two(
    limited: tuple[SlurmTestbed, struct_passwd], root: Path, start: str
) -> None:
    made, ann = limited
    with SlurmSite(root, made, account=ann, given={"start": start}) as site:
        jobs = {
            limit: [site.submit(["sleep", "6"], 1, batch=batch) for _ in range(4)]
            for limit, batch in LIMITED.items()
        }
        for limit, each in jobs.items():
            ended = [site.wait(job) for job in each]
            assert all(job["state"] == "completed" for job in ended), (limit, ended)
            spans = [(job["started"], job["ended"]) for job in ended]
            most = max(sum(s <= at < e for s, e in spans) for at, _ in spans)
            assert most == 2, (limit, spans)
        assert not site.lines("job_held")
