"""Grid Engine cells behind ssh, of an ordinary user, who has nothing but a login."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testbeds.gridengine import GridEngineTestbed
from tests.testbeds.mixed_site import MixedSite
from tests.testbeds.ssh import login_nodes, login_user, missing
from tests.testbeds.ssh_job import outlives_its_connection

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"ssh's testbed needs {missing()}")


def test_a_job_over_two_cells_outlives_its_connection(cells: GridEngineTestbed, root: Path) -> None:
    (root / "site").mkdir()
    with (
        login_user(root, "ada") as ada,
        login_nodes(root / "ssh", ada.pw_name, {"login": {}}) as nodes,
    ):
        given = {"address": "", **nodes["login"].settings}
        with MixedSite(root / "site", cells, given=given, account=ada) as site:
            outlives_its_connection(site, nodes["login"], ada, 9, killed="q")
            cells.wait(lambda: all(cell.is_idle() for cell in cells), "no job is left")
