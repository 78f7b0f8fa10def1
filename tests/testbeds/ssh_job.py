"""A job over clusters behind one login, whose connection and one of whose executors are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from pwd import struct_passwd

from tests.support.live_site import Running
from tests.testbeds.ssh import LoginNode, masters


def outlives_its_connection(
    site: Running, login: LoginNode, ada: struct_passwd, procs: int, killed: str
) -> None:
    """Assert that each process runs once, under the user's name, and no file is left there.

    The nodes reach the login node only: what they say goes by a channel of the connection.
    """
    go, out = site.work / "go", site.work / "out"
    text = f'echo "$(id -un) $COALLOC_RANK" >> {out}; until test -e {go}; do sleep 0.1; done'
    job = site.submit(["sh", "-c", text], procs)
    site.until(lambda: site.job(job)["state"] == "running")
    (master,) = masters(ada)  # of all executors that use the login
    os.kill(master, signal.SIGKILL)
    site.kill(killed)
    site.start_executor(killed)
    site.until(lambda: bool(set(masters(ada)) - {master}))
    go.touch()
    ended = site.wait(job)
    assert ended["state"] == "completed", ended
    assert sorted(out.read_text().splitlines()) == [f"{ada.pw_name} {n}" for n in range(procs)]
    assert login.accepted <= 3, "one connection, and one for each kill"
    site.until(lambda: not (Path(ada.pw_dir) / ".coalloc").exists())
