"""Jobs over Grid Engine cells behind ssh: of an ordinary user, who has nothing but a login."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.testbeds.gridengine import GridEngineTestbed
from tests.testbeds.mixed_site import MixedSite
from tests.testbeds.ssh import login_nodes, login_user, masters, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"ssh's testbed needs {missing()}")


def test_a_job_over_two_cells_outlives_its_connections(
    cells: GridEngineTestbed, root: Path
) -> None:
    """The nodes reach the login node only: what they say goes by a channel of the connection."""
    (root / "site").mkdir()
    with (
        login_user(root, "ada") as ada,
        login_nodes(root / "ssh", ada.pw_name, {"login": {}}) as nodes,
        MixedSite(
            root / "site", cells, given={"address": "", **nodes["login"].settings}, account=ada
        ) as site,
    ):
        go, out = site.work / "go", site.work / "out"
        text = f'echo "$(id -un) $COALLOC_RANK" >> {out}; until test -e {go}; do sleep 0.1; done'
        job = site.submit(["sh", "-c", text], 9)
        site.until(lambda: site.job(job)["state"] == "running")
        (master,) = masters(ada)  # of both executors
        os.kill(master, signal.SIGKILL)
        site.kill("q")
        site.start_executor("q")
        site.until(lambda: bool(set(masters(ada)) - {master}))
        go.touch()
        ended = site.wait(job)
        assert ended["state"] == "completed", ended
        assert sorted(out.read_text().splitlines()) == [f"{ada.pw_name} {n}" for n in range(9)]
        assert nodes["login"].accepted == 2
        cells.wait(lambda: all(cell.is_idle() for cell in cells), "no job is left")
        site.until(lambda: not (Path(ada.pw_dir) / ".coalloc").exists())
