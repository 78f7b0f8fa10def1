"""A launcher of a real OAR cluster, its state folder, and the folder its jobs run in."""

from __future__ import annotations

import atexit
import contextlib
import functools
import pwd
from pathlib import Path
from typing import Any

from coalloc.adapters.oar.launcher import OarLauncher, open_oar
from coalloc.adapters.oar.settings import OarSettings, read_settings
from coalloc.model.sites.parts import PartSpec
from tests.support.launch_bed import LaunchTestbed
from tests.testbeds.accounts import accounts
from tests.testbeds.oar import OarTestbed, bed
from tests.testbeds.ssh import PYTHON


@functools.cache
def shared_oar() -> OarTestbed:
    """A cluster that lives as long as this process."""
    stack = contextlib.ExitStack()
    running = stack.enter_context(bed())
    atexit.register(stack.close)
    return running


@functools.cache
def another_user() -> pwd.struct_passwd:
    """An account as long as this process: OAR runs jobs by their user's shell, nobody has none."""
    stack = contextlib.ExitStack()
    (account,) = stack.enter_context(accounts("oar"))
    atexit.register(stack.close)
    return account


def settings_of(oar: OarTestbed, **given: Any) -> dict[str, Any]:
    """Settings of the adapter for a cluster of the bed."""
    return {
        "bin": str(oar.root / "bin"),
        "scripts": str(oar.root / "scripts"),
        "address": "127.0.0.1",
        "command_limit_s": 60.0,
        "python": PYTHON,
        **given,
    }


def opened(site: OarSettings, state: Path) -> OarLauncher:
    """The launcher of an adapter that is opened."""
    launcher = open_oar(site, state).launcher
    assert isinstance(launcher, OarLauncher)
    return launcher


class OarLaunches(LaunchTestbed):
    """What the tests of the local launcher have, on an OAR cluster."""

    all_nodes = (("o1", 2), ("o2", 2))
    another_node = (("o2", 1),)
    short_lease_s = 45.0

    def __init__(self, root: Path, oar: OarTestbed, **given: Any) -> None:
        self.state, self.cwd = root / "state", root / "work"
        self.cwd.mkdir(exist_ok=True)
        self.cwd.chmod(0o777)
        self.oar = oar
        self.site: OarSettings = read_settings(settings_of(oar, **given), oar.name)
        self.launcher = opened(self.site, self.state)

    def spec(self, *argv: str, job: str = "1", **fields: Any) -> PartSpec:
        # OAR takes seconds to start a job, and a busy machine makes it later.
        given = {"cluster": self.oar.name, "nodes": (("o1", 1),), "time_limit": 60.0}
        given |= {"lease_s": 300.0}
        return super().spec(*argv, job=job, **(given | fields))

    def restart(self) -> None:
        """Let the executor's launcher die, and its successor adopt the parts."""
        self.launcher.close()
        self.launcher = opened(self.site, self.state)

    def jobs(self) -> list[str]:
        """Names of the cluster's jobs that are not over."""
        return [job["name"] for job in self.oar.jobs().values()]

    def is_idle(self) -> bool:
        """Whether nothing is claimed, and no script is left."""
        return self.oar.is_idle() and not list((self.oar.root / "scripts").iterdir())

    @property
    def another_user(self) -> pwd.struct_passwd:
        return another_user()

    def owners(self) -> list[str]:
        """Users of the cluster's jobs."""
        return [job["owner"] for job in self.oar.jobs().values()]

    def cancel_there(self) -> None:
        """Delete every job, as an administrator does."""
        self.oar.delete_all()

    def stop_service(self) -> None:
        """End Almighty and the database."""
        self.oar.stop_service()

    def start_service(self) -> None:
        """Start them again."""
        self.oar.start_service()
