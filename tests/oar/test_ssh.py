"""An OAR cluster behind ssh, of an ordinary user, who has nothing but a login."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oar.test_site import OarSite
from tests.testbeds.oar import OarTestbed
from tests.testbeds.ssh import login_nodes, login_user, missing
from tests.testbeds.ssh_job import outlives_its_connection

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"ssh's testbed needs {missing()}")


def test_a_job_outlives_its_connection(oar: OarTestbed, root: Path) -> None:
    (root / "site").mkdir()
    with (
        login_user(root, "ada") as ada,
        login_nodes(root / "ssh", ada.pw_name, {"login": {}}) as nodes,
    ):
        given = {"address": "", "scripts": "", **nodes["login"].settings}
        with OarSite(root / "site", oar, given, account=ada) as site:
            outlives_its_connection(site, nodes["login"], ada, 6, killed="o")
            oar.wait(oar.is_idle, "no job is left")
