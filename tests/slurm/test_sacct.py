"""Slurm's own accounts of what was started through us: the rows of ``sacct``."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.account_audit import audit
from tests.support.live_site import ENDED
from tests.testbeds.accounts import accounts
from tests.testbeds.background import BackgroundUser
from tests.testbeds.processes import BedError
from tests.testbeds.slurm import Cluster, alike, bed
from tests.testbeds.slurm_accounting import missing
from tests.testbeds.slurm_site import SlurmSite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can make accounts"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

WIDTHS = (1, 2, 1, 3, 1, 2, 1, 4, 1, 5)
"""Of one cluster's four nodes; five need both clusters."""
ACCOUNTED = {0: "COMPLETED", 3: "FAILED"}
Row = tuple[str, str, str]


def rows(cluster: Cluster, user: str) -> list[Row]:
    """Name, first word of the state and exit code of each of a user's jobs, as sacct has them."""
    words = ("-n", "-P", "-X", "-S", "now-1hour", "-u", user, "-o", "JobName,State,ExitCode")
    found = []
    for line in cluster.run("sacct", "-M", cluster.name, *words).splitlines():
        name, state, code = line.split("|")
        found.append((name, state.split()[0], code))
    return found


@pytest.mark.parametrize(("start", "jobs"), [("salloc", 40), ("sbatch", 20)])
def test_every_job_is_accounted_as_it_ended(root: Path, start: str, jobs: int) -> None:
    """Under its own name; claims that came to nothing are cancelled ones, never failed ones."""
    with accounts("ann", "bob") as (ann, bob), bed(*alike(2, 4), accounting=True) as running:
        for words in (
            ("account", "phys"),
            *(("user", u.pw_name, "account=phys") for u in (ann, bob)),
        ):
            running["a"].run("sacctmgr", "-i", "add", *words)
        with SlurmSite(root, running, account=ann, given={"start": start}) as site:
            with BackgroundUser(running, bob, waiting=0 if start == "salloc" else 1):
                made = {}
                for number in range(jobs):
                    code = 3 if number % 10 == 6 else 0
                    name, width = f"job {number}", WIDTHS[number % len(WIDTHS)]
                    job = site.submit(["sh", "-c", f"sleep 0.1; exit {code}"], width, name=name)
                    made[job] = (name, code)
                stopped = site.submit(["sleep", "600"], 2, name="stopped")
                site.until(lambda: site.job(stopped)["state"] == "running", 240.0)
                assert site.ask("cancel", job=stopped)["type"] == "done"
                site.until(
                    lambda: all(site.job(job)["state"] in ENDED for job in [*made, stopped]), 240.0
                )
            ended = {job: site.job(job) for job in [*made, stopped]}

            seen: list[Any] = []

            def agree() -> bool:
                found = [audit(site.endpoint, cluster) for cluster in running]
                assert all(count > jobs // 4 for count, _ in found)
                seen[:] = [difference for _, differences in found for difference in differences]
                return not seen

            try:
                running.wait(agree, "accounts that agree")
            except BedError:
                pytest.fail(f"accounts differ: {seen}")
        wanted: Counter[Row] = Counter()
        for job, (name, code) in made.items():
            wanted.update({(name, ACCOUNTED[code], f"{code}:0"): len(ended[job]["parts"])})
        wanted[("stopped", "CANCELLED", "0:0")] = len(ended[stopped]["parts"])

        def told() -> Counter[Row]:
            return Counter(row for cluster in running for row in rows(cluster, ann.pw_name))

        def differs() -> Counter[Row]:
            """Rows that are missing, and rows of no end of ours; withdrawn claims are cancelled."""
            more = Counter(
                {row: n for row, n in (told() - wanted).items() if row[1] != "CANCELLED"}
            )
            return (wanted - told()) + more

        running.wait(lambda: sum((wanted - told()).values()) == 0, f"accounts of {wanted}")
        assert not differs(), differs()
        withdrawn = sum((told() - wanted).values())
        print(f"{start}: {jobs} jobs, {sum(wanted.values())} parts, {withdrawn} claims withdrawn")
