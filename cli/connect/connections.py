"""A user's connections: a configuration of his executors, and the processes that serve it.

In single-user mode it is that of his daemon, too.
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

from coalloc.adapters.runner import durable
from coalloc.adapters.ssh.master import OPEN, SshMaster
from coalloc.cli.command import CommandError
from coalloc.cli.doctor.findings import Finding, ok, problem
from coalloc.model.settings import ClusterConfig, Config
from coalloc.runtime.config.file import connections_file, load
from coalloc.runtime.texts import instant
from coalloc.runtime.user import user_name


def file_of(config: Config, path: Path | None) -> Path:
    """The file of a user's connections, where `config` and its `path` do not stand against it."""
    file = connections_file()
    if file is None:
        raise CommandError(f"user {user_name()} has no home for a configuration")
    if config.daemon.mode == "single-user" and path not in (None, file):
        raise CommandError(f"{path} is of a daemon of your own: add the cluster there (ssh = …)")
    return file


def connections(file: Path) -> list[ClusterConfig]:
    """Those that stand in a file."""
    sites = load(file).clusters if file.exists() else ()
    return [site for site in sites if site.settings.get("ssh")]


def login(site: ClusterConfig) -> tuple[str, str]:
    """Target and configuration of a connection, as ssh takes them."""
    return site.settings["ssh"], site.settings.get("ssh_config", "")


def short(site: ClusterConfig) -> str:
    """A connection as its user calls it."""
    return site.name.removesuffix(f"@{site.owner}")


def folder_of(site: ClusterConfig) -> Path:
    """State folder of a connection's executor."""
    return Path(load(connections_file()).daemon.state_dir) / "executors" / site.name


def keep(config: Config, file: Path, name: str, *new: ClusterConfig) -> None:
    """Write a connection into the file, or take it out."""
    text = f'# Written by coalloc connect.\n[daemon]\nmode = "{config.daemon.mode}"\n'
    if config.daemon.mode == "multi-user":
        text += f'executor_endpoint = "{config.daemon.executor_endpoint}"\n'
    else:
        text += "\n[readings]\nmax_age_s = 120.0  # one a minute is enough while nothing waits\n"
    others = [each for each in connections(file) if each.name != name]
    for site in (*others, *new):
        text += f'\n[[clusters]]\nname = "{site.name}"\nowner = "{site.owner}"\n'
        text += 'adapter = "slurm"\n[clusters.settings]\n'
        text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in site.settings.items())
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
    if os.path.exists(f"/var/lib/systemd/linger/{user_name()}") and shutil.which("systemd-run"):
        unit = ["--user", "--quiet", "--collect", f"--unit=coalloc-{what}"]
        unit += [f"--property=StandardError=append:{log}", "--property=KillMode=process"]
        if subprocess.run(["systemd-run", *unit, *command], check=False).returncode == 0:
            return f"started under systemd --user, log {log}"
    with open(log, "ab") as out:
        streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
        subprocess.Popen(command, start_new_session=True, **streams)  # type: ignore[call-overload]
    return f"started in the background, log {log}"


def pid_of(folder: Path) -> int:
    """The executor with this state folder; 0: none runs."""
    with suppress(OSError, ValueError), open(folder / "lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(file.read())
    return 0


def stop(folder: Path) -> None:
    """End the executor with this state folder in good order."""
    if pid := pid_of(folder):
        os.kill(pid, signal.SIGTERM)
    while pid_of(folder):
        time.sleep(0.05)


def reload(config: Config) -> bool:
    """Have the user's own daemon read its configuration again; false: it does not run."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(config.daemon.endpoint.removeprefix("ipc://"))
        peer = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        os.kill(peer[0], signal.SIGHUP)
        return True
    return False


def connection_findings() -> Iterator[Finding]:
    """The state of each of the user's connections, and what to type where it is not in order."""
    file = connections_file()
    for site in [] if file is None else connections(file):
        about, state = f"connection {short(site)}", SshMaster(*login(site)).state()
        pid = pid_of(folder_of(site))
        if state.state == OPEN and pid:
            yield ok(about, f"open since {instant(state.since)}, its executor is pid {pid}")
            continue
        why = f"{state.state}: {state.why}" if state.state != OPEN else "its executor does not run"
        yield problem(about, why.removesuffix(": "), f"coalloc connect {short(site)}")
