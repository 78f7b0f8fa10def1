"""Login nodes: an sshd of its own on loopback for each, an ordinary user, and ssh's configuration.

Needs root and Debian's openssh-server; its service need not run. A login node may be of a cluster
of `tests.testbeds.slurm` (`env` steers the commands there), far away (`trip_s`), and cut off for a
while (`LoginNode.cut`): all its traffic goes through a process that carries it late.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pwd import getpwuid, struct_passwd

SSHD = "/usr/sbin/sshd"
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
"""One that every user may run."""
CARRIER = """
import os, select, socket, sys, time, collections
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
late, ways = float(sys.argv[2]) / 2, {0: sock.fileno(), sock.fileno(): 1}
queue = collections.deque()
while True:
    wait = max(0.0, queue[0][0] - time.monotonic()) if queue else None
    for fd in select.select(list(ways), [], [], wait)[0]:
        chunk = os.read(fd, 65536)
        if not chunk:
            sys.exit()
        queue.append((time.monotonic() + late, ways[fd], chunk))
    while queue and queue[0][0] <= time.monotonic():
        _, fd, chunk = queue.popleft()
        while chunk:
            chunk = chunk[os.write(fd, chunk):]
"""


def missing() -> str:
    """What this machine lacks for login nodes; empty: nothing."""
    if os.geteuid() != 0:
        return "root"
    return "" if os.path.exists(SSHD) and shutil.which("ssh") else "openssh-server"


@dataclass
class LoginNode:
    """One login node; `name` is its alias in `config`."""

    name: str
    config: Path
    port: int
    log: Path
    carrier: Path
    sshd: subprocess.Popen[bytes]
    settings: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.settings = {"ssh": self.name, "ssh_config": str(self.config)}

    @property
    def accepted(self) -> int:
        """Connections that it has let in."""
        return self.log.read_text(errors="replace").count("User child is on pid")

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """Nothing goes through, either way, within the block."""
        pids = pids_with(str(self.carrier), str(self.port))
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def pids_with(*words: str, text: str = "") -> list[int]:
    """Processes among whose words are all of these, and in whose words is the text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            said = path.read_bytes().split(b"\0")
            if all(word.encode() in said for word in words) and text.encode() in b"".join(said):
                found.append(int(path.parent.name))
    return found


@contextlib.contextmanager
def login_nodes(
    folder: Path,
    user: str,
    steering: Mapping[str, Mapping[str, str]],
    *,
    options: tuple[str, ...] = (),
    trip_s: float = 0.0,
) -> Iterator[dict[str, LoginNode]]:
    """A login node for each name, with further `options` of sshd; its user is logged in by key.

    What is told to a login node's commands is `steering`. ssh's configuration is the user's
    own, and root may use it, too.
    """
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    key, config, carrier = folder / "key", folder / "config", folder / "carrier.py"
    carrier.write_text(CARRIER)
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    (folder / "authorized").write_bytes((folder / "key.pub").read_bytes())
    nodes = {}
    with contextlib.ExitStack() as stack:
        for name, env in steering.items():
            nodes[name] = _started(stack, folder, name, env, options)
            with open(config, "a") as file:
                file.write(
                    f"Host {name}\n  HostName 127.0.0.1\n  HostKeyAlias {name}\n  User {user}\n"
                    f"  IdentityFile {key}\n  IdentitiesOnly yes\n"
                    f"  UserKnownHostsFile {folder}/known\n"
                    f"  ProxyCommand {PYTHON} -S {carrier} {nodes[name].port} {trip_s}\n"
                )
            host_key = (folder / f"{name}.key.pub").read_text()
            with open(folder / "known", "a") as file:
                file.write(f"{name} {host_key}")
        for path in (key, config, folder / "known", carrier, folder / "authorized"):
            shutil.chown(path, user)
        yield nodes


def config_of(another: struct_passwd, node: LoginNode, folder: Path) -> Path:
    """Write ssh's configuration of another user of the same login nodes, with the same key."""
    folder.mkdir()
    key, config, owner = folder / "key", folder / "config", getpwuid(node.config.stat().st_uid)
    key.write_bytes((node.config.parent / "key").read_bytes())
    text = node.config.read_text().replace(f"User {owner.pw_name}\n", f"User {another.pw_name}\n")
    config.write_text(text.replace(str(node.config.parent / "key"), str(key)))
    key.chmod(0o600)
    for path in (folder, key, config):
        os.chown(path, another.pw_uid, another.pw_gid)
    return config


def _started(
    stack: contextlib.ExitStack,
    folder: Path,
    name: str,
    env: Mapping[str, str],
    options: tuple[str, ...],
) -> LoginNode:
    host_key, log = folder / f"{name}.key", folder / f"{name}.log"
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(host_key))
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    own = [*options, "ListenAddress 127.0.0.1", f"Port {port}", f"HostKey {host_key}"]
    own += [
        "PidFile none",
        "StrictModes no",
        "UsePAM no",
        f"AuthorizedKeysFile {folder}/authorized",
    ]
    own += ["AllowTcpForwarding no", "LogLevel VERBOSE"]
    own += [f"SetEnv {' '.join(f'{key}={value}' for key, value in env.items())}"] if env else []
    text = "\n".join(own)
    (folder / f"{name}.conf").write_text(f"{text}\n")
    words = [SSHD, "-D", "-f", str(folder / f"{name}.conf"), "-E", str(log)]
    sshd = subprocess.Popen(words, start_new_session=True)
    stack.callback(sshd.wait)
    stack.callback(sshd.terminate)
    end = time.monotonic() + 10.0
    while not (log.exists() and "Server listening" in log.read_text()):
        if sshd.poll() is not None or time.monotonic() > end:
            raise OSError(f"sshd did not start: {log.read_text() if log.exists() else text}")
        time.sleep(0.02)
    return LoginNode(name, folder / "config", port, log, folder / "carrier.py", sshd)


@contextlib.contextmanager
def login_user(folder: Path, name: str, shell: str = "/bin/sh") -> Iterator[struct_passwd]:
    """A new ordinary user with a home in `folder`, who may log in; removed after the block."""
    full, home = f"co{os.getpid()}{name}", folder / name
    _run(
        *("useradd", "--system", "--user-group", "--create-home", "--password", "*"),
        *("--home-dir", str(home), "--shell", shell, full),
    )
    try:
        yield getpwuid(pwd.getpwnam(full).pw_uid)
    finally:
        subprocess.run(["pkill", "-KILL", "-u", full], check=False)
        _run("userdel", "--force", "--remove", full)


def _run(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{words[0]}: {done.stderr.strip()}")


def masters(user: struct_passwd) -> list[int]:
    """Pids of the user's connections."""
    return _of(user, pids_with("-M", "-N", "-f"))


def pids_of(user: struct_passwd, text: str) -> list[int]:
    """Pids of the user's processes in whose words this is."""
    return _of(user, pids_with(text=text))


def processes_of(user: struct_passwd) -> list[int]:
    """Pids of all of the user's processes."""
    return _of(user, [int(path.name) for path in Path("/proc").glob("[0-9]*")])


def _of(user: struct_passwd, pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found += [pid] if os.stat(f"/proc/{pid}").st_uid == user.pw_uid else []
    return found
