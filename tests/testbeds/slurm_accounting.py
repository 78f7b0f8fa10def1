"""Accounting for the clusters of a bed: MariaDB and slurmdbd, on loopback, in the bed's folder."""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
from collections.abc import Sequence
from pathlib import Path

from coalloc.adapters.slurm.commands import Slurm
from tests.testbeds.processes import SBIN, BedError, absent, wait_port

PROGRAMS = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacctmgr", "sacct")
PACKAGES = "slurmdbd slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core"
SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={munge}
DbdHost=localhost
DbdPort={port}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass={secret}
StorageLoc=slurm
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""
CLUSTER_CONF = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={port}
AccountingStoragePass={munge}
AccountingStorageEnforce=associations,limits,qos
"""


def missing() -> str:
    """What has to be installed before there can be accounting; empty: nothing."""
    return absent(PROGRAMS, PACKAGES)


class Accounting:
    """One slurmdbd with its database.

    Parameters
    ----------
    folder : Path
    ports : (int, int)
        Of slurmdbd and of MariaDB.
    munge : Path
        The socket of munged.
    """

    def __init__(self, folder: Path, ports: tuple[int, int], munge: Path) -> None:
        self._folder, self._ports, self._munge = folder, ports, munge
        self.daemons: list[subprocess.Popen[bytes]] = []

    @property
    def cluster_conf(self) -> str:
        """What a cluster's ``slurm.conf`` says of it."""
        return CLUSTER_CONF.format(port=self._ports[0], munge=self._munge)

    def start(self, conf: Path, clusters: Sequence[str]) -> None:
        """Bring it up, and make the clusters known to it.

        Parameters
        ----------
        conf : Path
            The ``slurm.conf`` of any of the clusters.

        Raises
        ------
        BedError
        """
        self._folder.mkdir(mode=0o755)
        self._start_database()
        user = pwd.getpwuid(os.getuid()).pw_name
        path = self._folder / "slurmdbd.conf"
        path.touch(mode=0o600)
        path.write_text(
            SLURMDBD_CONF.format(
                munge=self._munge,
                port=self._ports[0],
                database=self._ports[1],
                user=user,
                secret=self._secret,
                folder=self._folder,
            )
        )
        self._daemon(self._ports[0], "slurmdbd", "-D", env={"SLURM_CONF": str(path)})
        Slurm(conf=str(conf), timeout_s=30.0).run("sacctmgr", "-i", "add", "cluster", *clusters)

    def _start_database(self) -> None:
        self._secret = secrets.token_hex(16)
        data, begin = self._folder / "data", self._folder / "begin.sql"
        user = pwd.getpwuid(os.getuid()).pw_name
        # Each removes what it finds of another's in a temporary folder that they share.
        own = ["--no-defaults", f"--datadir={data}", f"--tmpdir={self._folder}", f"--user={user}"]
        own.append("--skip-name-resolve")
        words = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        done = subprocess.run(
            ["mariadb-install-db", *own, *words], check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise BedError(f"mariadb-install-db: {done.stdout[-500:]}{done.stderr[-500:]}")
        begin.touch(mode=0o600)
        begin.write_text(
            "CREATE DATABASE slurm;\n"
            f"GRANT ALL ON slurm.* TO slurm@127.0.0.1 IDENTIFIED BY '{self._secret}';\n"
        )
        self._daemon(
            self._ports[1],
            "mariadbd",
            *(*own, f"--init-file={begin}"),
            *(f"--port={self._ports[1]}", "--bind-address=127.0.0.1"),
            *(f"--socket={self._folder}/socket", f"--pid-file={self._folder}/pid"),
            "--innodb-flush-log-at-trx-commit=0",
        )

    def _daemon(self, port: int, name: str, *words: str, env: dict[str, str] | None = None) -> None:
        log = self._folder / f"{name}.out"
        with open(log, "ab") as output:
            process = subprocess.Popen(
                [f"{SBIN}/{name}", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=Slurm().environment() | (env or {}),
            )
        self.daemons.append(process)
        try:
            wait_port(port, process, name)
        except BedError as error:
            raise BedError(f"{error}\n{log.read_text(errors='replace')[-1500:]}") from error
