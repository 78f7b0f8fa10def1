"""Jobs over an OAR cluster and this machine, from the submit to the last exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.runner.command import CommandRefusedError
from tests.support.live_site import Running
from tests.testbeds.mixed_site import SECTION
from tests.testbeds.oar import OarTestbed
from tests.testbeds.oar_launches import another_user, settings_of


class OarSite(Running):
    """One OAR cluster `o` of four slots, and a local one `alpha` of two."""

    def __init__(self, root: Path, oar: OarTestbed, given: Any = None, **options: Any) -> None:
        self.oar, self._given = oar, dict(given or {})
        # OAR takes seconds to start a job, and a busy machine makes it later.
        start = "prepare_timeout_s = 90.0\nlease_s = 180.0"
        super().__init__(root, clusters={"o": 2, "alpha": 2}, start=start, **options)

    def section(self, name: str, nodes: int, slots: int) -> str:
        """A cluster in the configuration."""
        if name == "alpha":
            return super().section(name, nodes, slots)
        pairs = settings_of(self.oar, **self._given).items()
        given = ", ".join(f"{key} = {json.dumps(value)}" for key, value in pairs)
        return SECTION.format(name=name, adapter="oar", settings=given)


@pytest.fixture
def site(oar: OarTestbed, root: Path) -> Iterator[OarSite]:
    with OarSite(root, oar) as running:
        yield running
    oar.delete_all()
    oar.wait(oar.is_idle, "all is idle again")


def test_job_wider_than_any_cluster(site: OarSite) -> None:
    job = site.submit(["sh", "-c", 'echo "$COALLOC_RANK $COALLOC_SIZE $COALLOC_CLUSTER"'], 6)
    ended = site.wait(job)
    assert ended["state"] == "completed", ended
    assert ended["skew_ms"] is not None
    rows = [line.split() for line in (site.work / f"coalloc-{job}.out").read_text().splitlines()]
    assert sorted(int(row[0]) for row in rows) == list(range(6))
    assert sorted(row[2] for row in rows) == ["alpha"] * 2 + ["o"] * 4
    print(f"skew {ended['skew_ms']} ms")


def test_killed_daemon_and_executor_find_the_job_again(site: OarSite) -> None:
    go = site.work / "go"
    job = site.submit(["sh", "-c", f"echo up; while ! test -e {go}; do sleep 0.1; done"], 6)
    site.until(lambda: site.job(job)["state"] == "running")
    site.kill("o")
    site.kill("coallocd")
    site.start_daemon()
    site.start_executor("o")
    site.until(lambda: site.job(job)["state"] == "running")
    go.touch()
    assert site.wait(job)["state"] == "completed"
    assert (site.work / f"coalloc-{job}.out").read_text() == "up\n" * 6


def test_only_its_user_and_root_delete_a_job(site: OarSite) -> None:
    job = site.submit(["sleep", "600"], 6)
    site.until(lambda: site.job(job)["state"] == "running")
    with pytest.raises(CommandRefusedError, match="not the right user"):
        site.oar.run("oardel", *site.oar.jobs(), account=another_user())
    assert site.job(job)["state"] == "running"
    site.oar.delete_all()
    ended = site.wait(job)
    assert ended["state"] == "cancelled", ended
    assert ("lost", "cancelled_there") in {(p["state"], p["reason"]) for p in ended["parts"]}
