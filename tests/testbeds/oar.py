"""A real OAR cluster on this machine: up in seconds, down without a trace.

Debian's OAR with a PostgreSQL, an sshd and an Almighty of its own, all in one temporary folder. Its
commands are Debian's setuid wrappers, in which the path of the configuration is another of the same
length: a link in /run.

By hand::

    python -m tests.testbeds.oar
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coalloc.adapters.oar.commands import Oar
from coalloc.adapters.runner.command import BatchError
from tests.testbeds.processes import (
    UP_LIMIT_S,
    BedError,
    bed_folder,
    by_hand,
    free_ports,
    kill,
    marked,
    up,
    wait_gone,
    wait_port,
    wait_until,
)

LIB = Path("/usr/lib/oar")
WRAPPERS = ("oarsub", "oarstat", "oardel", "oarnodes", "oarnodesetting", "Almighty")
CONFIGURATION = "/etc/oar/oar.conf"
PACKAGES = "oar-server oar-node oar-user oar-server-pgsql oar-user-pgsql libjson-perl postgresql"
SQL = ("pg_structure", "default_data", "pg_default_admission_rules")

# Without cpusets, without a check of nodes by ping, and without the usual five seconds between
# two scheduling runs.
SETTINGS = """\
DB_TYPE="Pg"
DB_HOSTNAME="{root}/db"
DB_PORT="5432"
DB_BASE_NAME="oar"
DB_BASE_LOGIN="oar"
DB_BASE_PASSWD=""
DB_BASE_LOGIN_RO="oar"
DB_BASE_PASSWD_RO=""
SERVER_HOSTNAME="localhost"
SERVER_PORT="{port}"
OARSUB_DEFAULT_RESOURCES="/resource_id=1"
OARSUB_NODES_RESOURCES="network_address"
LOG_LEVEL="2"
LOG_CATEGORIES="all"
LOG_FILE="{root}/run/oar.log"
OAR_RUNTIME_DIRECTORY="{root}/run"
DETACH_JOB_FROM_SERVER="1"
OPENSSH_CMD="/usr/bin/ssh -F {root}/ssh_config"
PINGCHECKER_GENERIC_COMMAND="/bin/true"
SCHEDULER_MIN_TIME_BETWEEN_2_CALLS="1"
SCHEDULER_JOB_SECURITY_TIME="1"
SCHEDULER_RESOURCE_ORDER="network_address ASC, resource_id ASC"
SCHEDULER_PRIORITY_HIERARCHY_ORDER="network_address/resource_id"
"""
SSH = """\
Host *
  HostName 127.0.0.1
  Port {port}
  User oar
  IdentityFile {root}/key
  IdentitiesOnly yes
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
"""
SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {root}/host
AuthorizedKeysFile {root}/authorized
PermitUserEnvironment yes
StrictModes no
PidFile none
UsePAM no
AllowUsers oar
MaxStartups 100
"""
POSTGRES = """\
listen_addresses = ''
unix_socket_directories = '{root}/db'
fsync = off
"""


def postgres_bin() -> Path:
    """Folder of PostgreSQL's newest programs; one that is not there where there are none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return found[-1] if found else Path("/usr/lib/postgresql")


def missing() -> str:
    """What has to be installed before a cluster can be made; empty: nothing."""
    needed = [LIB / "Almighty", LIB / "oarsub", LIB / "oardodo" / "oardodo", LIB / "oarnodes"]
    needed += [postgres_bin() / "postgres", Path("/usr/sbin/sshd")]
    absent = [path.name for path in needed if not path.exists()]
    if absent:
        return f"{', '.join(absent)} not found; as root: apt-get install {PACKAGES}"
    return "" if os.geteuid() == 0 else "it starts jobs as their users, and this is not root"


class OarTestbed:
    """A cluster with these nodes, which have so many resources; made by `bed`."""

    def __init__(self, root: Path, nodes: Mapping[str, int]) -> None:
        self.root, self.nodes, self.name = root, nodes, "o"
        first = free_ports(2, set())
        self.ports = first, first + 1
        self.link = Path(f"/run/oar{random.randrange(10000):04}.conf")
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def commands(self) -> Oar:
        """Its commands."""
        return Oar(bin_dir=str(self.root / "bin"), timeout_s=60.0)

    def run(self, name: str, *words: str, account: pwd.struct_passwd | None = None) -> str:
        """Run one of OAR's commands on this cluster."""
        return self.commands.run(name, *words, account=account)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Jobs that are not over, by their numbers."""
        return self.commands.rows("oarstat", "-f")

    def submit(
        self,
        where: str,
        *options: str,
        command: str = "sleep 600",
        account: pwd.struct_passwd | None = None,
    ) -> str:
        """Submit a local job; returns its number."""
        words = ("-l", where, "-d", "/", "-O", "/dev/null", "-E", "/dev/null", *options, command)
        said = self.run("oarsub", *words, account=account)
        return said.partition("OAR_JOB_ID=")[2].split()[0]

    def is_idle(self) -> bool:
        """Whether there is no job, and every node takes some."""
        try:
            rows = self.commands.rows("oarnodes").values()
            return not self.jobs() and all(row["state"] == "Alive" for row in rows)
        except BatchError:
            return False

    def delete_all(self) -> None:
        """Delete every job."""
        if jobs := self.jobs():
            with contextlib.suppress(BatchError):  # some are deleted already
                self.run("oardel", *jobs)

    def start(self) -> None:
        """Bring everything up, and wait until it answers."""
        self._written()
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        # OAR has bash read ~/.bashrc before every job, of which root's may do anything.
        line = (
            'if [ -e "$1" ]; then mount --bind /dev/null "$1" || exit 1; fi\n'
            'exec /usr/sbin/sshd -D -f "$0"'
        )
        words = str(self.root / "sshd_config"), f"{pwd.getpwuid(0).pw_dir}/.bashrc"
        self._start("sshd", "unshare", "--mount", "sh", "-c", line, *words)
        self._start_almighty()
        wait_port(self.ports[1], self._daemons["sshd"], "sshd")

    def start_service(self) -> None:
        """Start the database and Almighty."""
        self._start_database()
        self._start_almighty()

    def stop_service(self) -> None:
        """End Almighty and the database."""
        for name in ("Almighty", "postgres"):
            ended = self._daemons.pop(name)
            below = marked(f"OAR_BED={name}:{self.root}")
            kill([ended.pid, *below])
            ended.wait()
            wait_gone(below)

    def wait(self, holds: Callable[[], bool], what: str, limit_s: float = UP_LIMIT_S) -> None:
        """See `wait_until`."""
        wait_until(holds, what, self.logs, limit_s)

    def logs(self) -> str:
        """The last lines of OAR's log."""
        log = self.root / "run" / "oar.log"
        return log.read_text(errors="replace")[-3000:] if log.exists() else ""

    def stop(self) -> None:
        """End every daemon, and every process that any of them left."""
        while left := [*(p.pid for p in self._daemons.values()), *marked(str(self.root))]:
            kill(left)
            for process in self._daemons.values():
                process.wait()
            self._daemons.clear()
            wait_gone(left)
            for pid in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        self.link.unlink(missing_ok=True)

    def _written(self) -> None:
        """Write the folder of a cluster that has never run, and its database."""
        for folder in ("run", "db"):
            (self.root / folder).mkdir()
            shutil.chown(self.root / folder, "oar", "oar")
        for name, form, port in (
            ("oar.conf", SETTINGS, self.ports[0]),
            ("ssh_config", SSH, self.ports[1]),
            ("sshd_config", SSHD, self.ports[1]),
        ):
            (self.root / name).write_text(form.format(root=self.root, port=port))
        (self.root / "scripts").mkdir()
        (self.root / "scripts").chmod(0o1777)
        self.link.symlink_to(self.root / "oar.conf")
        for name in ("host", "key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.root / name))
        shutil.chown(self.root / "key", "oar", "oar")
        marks = f'environment="OAR_KEY=1",environment="OAR_BED=node:{self.root}"'
        key = (self.root / "key.pub").read_text()
        (self.root / "authorized").write_text(f"{marks} {key}")
        (self.root / "bin").mkdir()
        for name in WRAPPERS:
            self._wrap(name)
        self._as_oar("initdb", "-A", "trust", "-U", "oar", "--no-sync", "-E", "UTF8", "--locale=C")
        with open(self.root / "db" / "postgresql.conf", "a") as file:
            file.write(POSTGRES.format(root=self.root))
        self._start_database()
        self._as_oar("createdb", "-h", str(self.root / "db"), "oar")
        files = [word for name in SQL for word in ("-f", f"{LIB}/database/{name}.sql")]
        rows = ", ".join(f"('{host}')" for host, n in self.nodes.items() for _ in range(n))
        # Rule 2 keeps root from submitting.
        more = "update admission_rules set enabled = 'NO' where id = 2"
        nodes = f"insert into resources (network_address) values {rows}"
        self._as_oar("psql", "-q", "-h", str(self.root / "db"), *files, "-c", more, "-c", nodes)

    def _wrap(self, name: str) -> None:
        """Copy a setuid wrapper of Debian's, for this cluster's configuration."""
        found = shutil.which(name, path="/usr/bin:/usr/sbin")
        assert found is not None
        content, path = Path(found).read_bytes(), self.root / "bin" / name
        assert content.count(CONFIGURATION.encode()) == 1
        assert len(str(self.link)) == len(CONFIGURATION)
        path.write_bytes(content.replace(CONFIGURATION.encode(), str(self.link).encode()))
        shutil.chown(path, "root", "oar")
        path.chmod(0o6755)

    def _as_oar(self, name: str, *words: str) -> None:
        env = _environment(self.root)
        _run(str(postgres_bin() / name), *words, env=env, user="oar", group="oar")

    def _start_almighty(self) -> None:
        self._start("Almighty", str(self.root / "bin" / "Almighty"))
        wait_port(self.ports[0], self._daemons["Almighty"], "Almighty")

    def _start_database(self) -> None:
        self._start("postgres", str(postgres_bin() / "postgres"), user="oar", group="oar")
        socket = self.root / "db" / ".s.PGSQL.5432"
        self.wait(socket.exists, "the database listens")
        self.wait(self._answers, "the database answers")

    def _answers(self) -> bool:
        words = ("-q", "-h", str(self.root / "db"))
        ready = [str(postgres_bin() / "pg_isready"), *words]
        return subprocess.run(ready, check=False, capture_output=True).returncode == 0

    def _start(self, name: str, *argv: str, **identity: Any) -> None:
        with open(self.root / f"{name}.out", "ab") as output:
            self._daemons[name] = subprocess.Popen(
                argv,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**_environment(self.root), "OAR_BED": f"{name}:{self.root}"},
                **identity,
            )


def _environment(root: Path) -> dict[str, str]:
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "LC_ALL": "C", "HOME": "/root", "PGDATA": str(root / "db")}


def _run(*words: str, **identity: Any) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd="/", **identity)
    if done.returncode:
        raise BedError(f"{words[0]}: {done.stderr.strip()}")


@contextlib.contextmanager
def bed(nodes: Mapping[str, int] | None = None, *, keep: bool = False) -> Iterator[OarTestbed]:
    """Run a cluster of these nodes and their resources; default two nodes of two.

    Raises
    ------
    BedError
    """
    if absent := missing():
        raise BedError(absent)
    with (
        bed_folder("oar", keep=keep) as root,
        up(OarTestbed(root, nodes or {"o1": 2, "o2": 2})) as running,
    ):
        yield running


def main() -> int:
    """Run a cluster until interrupted."""
    return by_hand(
        argparse.ArgumentParser(description="A real OAR cluster on this machine."),
        lambda args: bed(keep=args.keep),
        lambda running: [f"PATH={running.root / 'bin'}:$PATH"],
    )


if __name__ == "__main__":
    sys.exit(main())
