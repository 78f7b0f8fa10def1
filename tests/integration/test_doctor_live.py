"""What ``coallocd --init`` writes starts and passes ``coalloc doctor``, which sees it break."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kernels import CACHE
from tests.support.live_site import LIMIT_S, Running


class Initialised(Running):
    """A site with the configuration that ``coallocd --init`` has written.

    Parameters
    ----------
    environ : mapping
        Of the command that writes it.
    """

    def __init__(self, root: Path, environ: Mapping[str, str], mode: str) -> None:
        super().__init__(root / "given")
        words = ("--init", str(root), "--mode", mode)
        done = self.command("coalloc.daemon.main", *words, environ=environ)
        assert done.returncode == 0, done.stderr
        self.said = done.stdout
        self.root, self.config = root, root / "coallocd.toml"
        self.log = root / "coallocd.log"
        self.endpoint = f"ipc://{root}/run/coalloc.sock"
        text = self.config.read_text()
        assert f'cache_dir = "{root}/cache"' in text
        # compiled once for all tests
        self.config.write_text(text.replace(f"{root}/cache", str(CACHE)))
        lines = [line for line in self.said.splitlines() if "--cluster" in line]
        self.names = [line.split("--cluster ")[1].split()[0] for line in lines]

    def command(
        self, module: str, *words: str, environ: Mapping[str, str] = os.environ
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of ours."""
        return subprocess.run(
            [sys.executable, "-m", module, *words],
            capture_output=True,
            text=True,
            env=dict(environ),
            check=False,
        )

    def doctor(self) -> tuple[int, dict[str, dict[str, str]]]:
        """Exit code and findings of ``coalloc doctor``."""
        key = {**os.environ, "COALLOC_KEY": str(self.root / "key.json")}
        words = ("doctor", "--config", str(self.config), "--json")
        done = self.command("coalloc.cli.main", *words, environ=key)
        assert not done.stderr
        return done.returncode, {each["about"]: each for each in json.loads(done.stdout)}

    def is_healthy(self) -> bool:
        """Nothing is a problem, and all is read."""
        code, found = self.doctor()
        return code == 0 and all(found[f"cluster {name}"]["level"] == "ok" for name in self.names)


@pytest.mark.slow
def test_a_new_installation_passes_and_what_breaks_is_seen(root: Path) -> None:
    site = Initialised(root, {"PATH": "/nonexistent"}, "single-user")
    assert not (root / "state").exists()
    assert len(site.names) == 1
    cluster = site.names[0]
    assert site.doctor()[1]["daemon"]["level"] == "problem"
    site.start_executor(cluster)  # Whoever comes first makes the folder of the state.
    site.until((root / "state" / "executors" / cluster / "identity").exists)
    site.names = []
    site.start()
    site.names = [cluster]
    try:
        site.until(site.is_healthy)
        found = site.doctor()[1]
        assert found["state folder"]["level"] == "ok"
        assert found[f"version of the executor {cluster}"]["level"] == "ok"
        site.until(lambda: site.doctor()[1][f"clock of {cluster}"]["level"] == "ok")
        assert site.wait(site.submit(["true"]))["state"] == "completed"
        assert cluster in on_terminal(site, "xterm-256color", keys=b"q")
        assert cluster in on_terminal(site, "dumb", keys=b"")
        site.kill(cluster, signal.SIGTERM)
        (root / "state").chmod(0o755)
        site.until(lambda: site.doctor()[0] == 1)
        found = site.doctor()[1]
        assert "coalloc-executor --cluster" in found[f"cluster {cluster}"]["todo"]
        assert found["state folder"]["level"] == "warning"
    finally:
        site.stop()


def on_terminal(site: Initialised, term: str, keys: bytes) -> str:
    """What ``coalloc top`` writes to a terminal of 80 columns until it has ended well.

    Parameters
    ----------
    keys : bytes
        Typed as soon as something is shown.
    """
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "coalloc.cli.main", "top", "--config", str(site.config)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": term, "NO_COLOR": "1"},
        start_new_session=True,
    )
    os.close(theirs)
    written = b""
    # At the end of the last process that has it open, a terminal's other end gives an error.
    with suppress(OSError):
        while chunk := os.read(ours, 4096):
            written += chunk
            if keys and site.names[0].encode() in written:
                os.write(ours, keys)
                keys = b""
    os.close(ours)
    assert process.wait(LIMIT_S) == 0
    return written.decode(errors="replace")
