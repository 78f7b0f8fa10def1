"""A user's connections: a configuration that is written here, and the processes that serve it.

In single-user mode it is the user's own, which his daemon reads too; else one of his executors.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from coalloc.adapters.runner import durable
from coalloc.adapters.ssh.master import SshMaster
from coalloc.adapters.ssh.shell import Shell
from coalloc.cli.command import CommandError
from coalloc.model.settings import ClusterConfig, Config
from coalloc.runtime.config.file import load, user_config
from coalloc.runtime.user import user_name

MARK = "# Written by coalloc connect.\n"


class Connection(Struct, frozen=True, kw_only=True):
    """One cluster, and the login by which it is reached."""

    file: Path
    site: ClusterConfig
    """As it stands in the file."""

    @property
    def name(self) -> str:
        """As its user calls it."""
        return self.site.name.removesuffix(f"@{self.site.owner}")

    @property
    def login(self) -> tuple[str, str]:
        """Target and configuration, as ssh takes them."""
        return self.site.settings["ssh"], self.site.settings.get("ssh_config", "")

    @property
    def master(self) -> SshMaster:
        """Its one connection."""
        return SshMaster(*self.login)

    @property
    def shell(self) -> Shell:
        """Its channel."""
        return Shell.of(*self.login)

    @property
    def folder(self) -> Path:
        """State folder of its executor."""
        return Path(load(self.file).daemon.state_dir) / "executors" / self.site.name

    def pid(self) -> int:
        """Its executor; 0: none runs."""
        with suppress(OSError, ValueError), open(self.folder / "lock") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read())
        return 0

    def stop(self) -> None:
        """End its executor and its connection; what runs goes on."""
        if pid := self.pid():
            os.kill(pid, signal.SIGTERM)
        while self.pid():
            time.sleep(0.05)
        self.shell.end()
        self.master.close()


def file_of(config: Config, path: Path | None) -> Path:
    """The configuration in which a user's connections stand."""
    own = user_config()
    if own is None:
        raise CommandError(f"user {user_name()} has no home for a configuration")
    is_shared = config.daemon.mode == "multi-user"
    return own.with_name("connections.toml") if is_shared else path or own


def connections(file: Path) -> Iterator[Connection]:
    """Those that stand in a configuration."""
    for site in load(file).clusters if file.exists() else ():
        if site.settings.get("ssh"):
            yield Connection(file=file, site=site)


def keep(config: Config, file: Path, name: str, site: ClusterConfig | None) -> None:
    """Write a connection into the configuration, or take it out."""
    written = file.exists() and file.read_text().startswith(MARK)
    if file.exists() and not written:
        if site is None or site in load(file).clusters:
            return
        raise CommandError(
            f"{file} was written by hand: add [[clusters]] with name = {site.name!r}, adapter = "
            f"'slurm', settings = {{ssh = {site.settings['ssh']!r}, qualified = true}}"
        )
    others = [each.site for each in connections(file) if each.name != name]
    text = f'{MARK}[daemon]\nmode = "{config.daemon.mode}"\n'
    if config.daemon.mode == "multi-user":
        text += f'executor_endpoint = "{config.daemon.executor_endpoint}"\n'
    for each in (*others, *([site] if site else [])):
        text += f'\n[[clusters]]\nname = "{each.name}"\nowner = "{each.owner}"\n'
        text += f'adapter = "{each.adapter}"\n[clusters.settings]\n'
        text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in each.settings.items())
    durable.make_folder(file.parent)
    durable.write(file, text.encode())


def started(what: str, module: str, file: Path, *words: str) -> str:
    """Start a process that outlives this one and its terminal; returns how.

    Under the user's systemd where that goes on after his last session, else in the background.
    """
    state = Path(load(file).daemon.state_dir)
    durable.make_folder(state)
    log = state / f"{what}.log"
    command = [sys.executable, "-m", f"coalloc.{module}", "--config", str(file), *words]
    lingers = os.path.exists(f"/var/lib/systemd/linger/{user_name()}")
    if lingers and shutil.which("systemd-run"):
        unit = ["--user", "--quiet", "--collect", f"--unit=coalloc-{what}"]
        unit += (f"--property=StandardError=append:{log}", "--property=KillMode=process")
        if subprocess.run(["systemd-run", *unit, *command], check=False).returncode == 0:
            return f"started under systemd --user, log {log}"
    with open(log, "ab") as out:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, process_group=0)
    return f"started in the background, log {log}"


def reload(config: Config) -> bool:
    """Have the user's own daemon read its configuration again; false: it does not run."""
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(config.daemon.endpoint.removeprefix("ipc://"))
        except OSError:
            return False
        peer = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    os.kill(peer[0], signal.SIGHUP)
    return True
