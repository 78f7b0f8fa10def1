"""Real Slurm clusters on this machine: up in seconds, down without a trace.

Each cluster has a slurmctld, and a slurmd for each of its virtual nodes; one munged serves all.
Everything listens on loopback and lives in one temporary folder. Works as root and as one
ordinary user. What a slurmd leaves behind (``slurmstepd`` and the jobs' processes survive it by
design) becomes this process's child, and is ended with the rest.

By hand::

    python -m tests.testbeds.slurm --clusters 3 --nodes 16
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pwd import struct_passwd

from coalloc.adapters.runner.command import BatchError
from coalloc.adapters.slurm.commands import Slurm
from tests.testbeds.processes import (
    SBIN,
    UP_LIMIT_S,
    BedError,
    absent,
    bed_folder,
    by_hand,
    free_ports,
    kill,
    marked,
    reap_dead,
    up,
    wait_gone,
    wait_port,
    wait_until,
)
from tests.testbeds.slurm_accounting import Accounting
from tests.testbeds.slurm_accounting import missing as without_accounting

PROGRAMS = ("slurmctld", "slurmd", "munged", "squeue", "sinfo", "scontrol", "salloc", "srun")
PACKAGES = (
    "slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins slurm-wlm-jwt-plugin slurmrestd"
)
NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none"
MARK = "COALLOC_BED"

CONF = """\
ClusterName={name}
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={munge}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
{accounting}
PriorityType=priority/basic
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldTimeout=120
SlurmdTimeout=120
MaxJobCount=50000
MaxArraySize=20001
{extra}
NodeName=DEFAULT CPUs={cpus} RealMemory=16000 State=UNKNOWN
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
{partitions}
"""


def missing() -> str:
    """What has to be installed before clusters can be made; empty: nothing."""
    return absent(PROGRAMS, PACKAGES)


@dataclass(frozen=True, kw_only=True)
class ClusterShape:
    """What a cluster is to be.

    Attributes
    ----------
    prefix : str
        Of its nodes' names; empty: the cluster's name.
    conf : str
        Further lines of ``slurm.conf``; a later line wins over an earlier one where Slurm
        lets it.
    partitions : str
        Further ``PartitionName`` lines.
    groups : tuple of (int, str)
        How many of the nodes have what besides or instead of the usual, first to last, such as
        ``(2, "Weight=10 Feature=epyc RealMemory=32000")``; the rest has nothing of its own.
    gres : str
        ``gres.conf``; ``conf`` then names the ``GresTypes``.
    """

    name: str
    nodes: int
    cpus: int = 8
    prefix: str = ""
    conf: str = ""
    partitions: str = ""
    groups: tuple[tuple[int, str], ...] = ()
    gres: str = ""

    def node_lines(self, port: int) -> str:
        """The ``NodeName`` lines, the first node at this port."""
        prefix, lines, first = self.prefix or self.name, [], 1
        left = self.nodes - sum(count for count, _ in self.groups)
        for count, options in (*self.groups, *([(left, "")] if left else [])):
            last, begin = first + count - 1, port + first - 1
            ports = f"{begin}-{port + last - 1}" if count > 1 else f"{begin}"
            here = f"NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports}"
            lines.append(f"NodeName={prefix}[{first}-{last}] {here} {options}")
            first = last + 1
        return "\n".join(lines)


@dataclass(kw_only=True)
class Cluster:
    """One running cluster."""

    shape: ClusterShape
    folder: Path
    port: int
    controller: subprocess.Popen[bytes] | None = None
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name."""
        return self.shape.name

    @property
    def conf(self) -> Path:
        """Its ``slurm.conf``, the value of ``SLURM_CONF``."""
        return self.folder / "slurm.conf"

    @property
    def slurm(self) -> Slurm:
        """Its commands."""
        return Slurm(conf=str(self.conf))

    @property
    def node_names(self) -> list[str]:
        """Its nodes in order."""
        prefix = self.shape.prefix or self.shape.name
        return [f"{prefix}{number}" for number in range(1, self.shape.nodes + 1)]

    def run(self, name: str, *arguments: str, account: struct_passwd | None = None) -> str:
        """Run one of Slurm's commands on this cluster, as somebody else where one is named."""
        return self.slurm.run(name, *arguments, account=account)

    def start_controller(self, *, wait: bool = True) -> None:
        """Start slurmctld, on the state that its predecessor left."""
        self.controller = _daemon(
            [f"{SBIN}/slurmctld", "-D", "-f", str(self.conf)], self.folder / "slurmctld.out"
        )
        if wait:
            wait_port(self.port, self.controller, f"slurmctld of {self.name}")

    def start_node(self, name: str) -> None:
        """Start a node's slurmd."""
        self.nodes[name] = _daemon(
            [f"{SBIN}/slurmd", "-D", "-f", str(self.conf), "-N", name],
            self.folder / f"slurmd.{name}.out",
            self._mark(name),
        )

    def kill_controller(self, number: int = signal.SIGKILL) -> None:
        """End slurmctld."""
        assert self.controller is not None
        self.controller.send_signal(number)
        self.controller.wait(UP_LIMIT_S)
        self.controller = None

    def kill_node(self, name: str, *, steps: bool = True) -> None:
        """End a node's slurmd at once; with its steps, as a loss of power would."""
        process = self.nodes.pop(name)
        left = [pid for pid in marked(self._mark(name)) if pid != process.pid] if steps else []
        process.kill()
        kill(left)
        process.wait()
        wait_gone(left)

    def _mark(self, node: str) -> str:
        return f"{self.folder}/log/slurmd.{node}.log"

    def is_idle(self) -> bool:
        """Whether it answers, and every node is idle."""
        try:
            lines = self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T").splitlines()
        except BatchError:
            return False
        return sum(line.endswith(" idle") for line in lines) == self.shape.nodes


class SlurmTestbed:
    """Clusters that run; made by `bed`."""

    def __init__(
        self, root: Path, shapes: Sequence[ClusterShape], *, accounting: bool = False
    ) -> None:
        self.root = root
        self.munge = root / "munge" / "socket"
        self.munged: subprocess.Popen[bytes] | None = None
        self.clusters: dict[str, Cluster] = {}
        taken: set[int] = set()
        self.accounting: Accounting | None = None
        if accounting:
            first = free_ports(2, taken)
            self.accounting = Accounting(root / "accounting", (first, first + 1), self.munge)
        for shape in shapes:
            first = free_ports(shape.nodes + 1, taken)
            self.clusters[shape.name] = self._written(shape, first)

    def __getitem__(self, name: str) -> Cluster:
        return self.clusters[name]

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self.clusters.values())

    def start(self) -> None:
        """Bring everything up, and wait until every node is idle."""
        self._start_munge()
        if self.accounting is not None:
            conf = next(iter(self)).conf
            self.accounting.start(conf, list(self.clusters))
        for cluster in self:
            cluster.start_controller(wait=False)
        for cluster in self:
            wait_port(cluster.port, cluster.controller, f"slurmctld of {cluster.name}")
            for node in cluster.node_names:
                cluster.start_node(node)
        for cluster in self:
            self.wait(cluster.is_idle, f"every node of {cluster.name} is idle")

    def wait(self, holds: Callable[[], bool], what: str, limit_s: float = UP_LIMIT_S) -> None:
        """See `wait_until`."""
        wait_until(holds, what, self.logs, limit_s)

    def logs(self) -> str:
        """The last lines of every controller's log."""
        return "".join(
            f"--- {cluster.name}\n{path.read_text(errors='replace')[-1500:]}"
            for cluster in self
            for path in [cluster.folder / "log" / "slurmctld.log"]
            if path.exists()
        )

    def stop(self) -> None:
        """End every daemon, and every process that any of them left."""
        daemons = [process for cluster in self for process in cluster.nodes.values()]
        daemons += [cluster.controller for cluster in self if cluster.controller is not None]
        daemons += [] if self.accounting is None else self.accounting.daemons
        daemons += [] if self.munged is None else [self.munged]
        own = {process.pid for process in daemons}
        # The state is thrown away: nothing is gained by letting a controller write it.
        left = [pid for pid in marked(f"{self.root}/") if pid not in own]
        kill([*own, *left])
        for process in daemons:
            process.wait()
        while left:
            self._reap(left)
            left = marked(f"{self.root}/")
            kill(left)
        reap_dead(own, "slurm")

    def _reap(self, pids: Sequence[int]) -> None:
        """Collect the orphans that have come to us, and wait for those that will."""
        wait_gone(pids)
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _start_munge(self) -> None:
        folder = self.munge.parent
        folder.mkdir(mode=0o755)
        key = folder / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        options = {
            "key-file": key,
            "socket": self.munge,
            "pid-file": folder / "pid",
            "log-file": folder / "log",
            "seed-file": folder / "seed",
        }
        self.munged = _daemon(
            [f"{SBIN}/munged", "-F", "-f", *(f"--{k}={v}" for k, v in options.items())],
            folder / "out",
        )
        self.wait(self._munge_answers, f"munged listens\n{_tail(folder / 'out')}")

    def _munge_answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(str(self.munge))
            except OSError:
                return False
        return True

    def _written(self, shape: ClusterShape, port: int) -> Cluster:
        """A cluster's folder."""
        folder = self.root / shape.name
        for name in ("state", "spool", "log"):
            (folder / name).mkdir(parents=True)
        cluster = Cluster(shape=shape, folder=folder, port=port)
        if shape.gres:
            (folder / "gres.conf").write_text(shape.gres)
        accounting = self.accounting
        cluster.conf.write_text(
            CONF.format(
                name=shape.name,
                port=port,
                user=pwd.getpwuid(os.getuid()).pw_name,
                munge=self.munge,
                folder=folder,
                accounting=NO_ACCOUNTING if accounting is None else accounting.cluster_conf,
                nodes=shape.node_lines(port + 1),
                cpus=shape.cpus,
                extra=shape.conf,
                partitions=shape.partitions,
            )
        )
        return cluster


@contextlib.contextmanager
def bed(
    *shapes: ClusterShape, accounting: bool = False, keep: bool = False
) -> Iterator[SlurmTestbed]:
    """Run these clusters for a while.

    Parameters
    ----------
    accounting : bool
        Whether slurmdbd keeps their accounts, and associations and limits are enforced; root's
        alone are there at first.
    keep : bool
        Whether the folder with the logs stays.

    Raises
    ------
    BedError
    """
    absent = missing() or (without_accounting() if accounting else "")
    if absent:
        raise BedError(absent)
    with (
        bed_folder("slurm", keep=keep) as root,
        up(SlurmTestbed(root, shapes, accounting=accounting)) as running,
    ):
        yield running


def alike(clusters: int, nodes: int, *, cpus: int = 8, conf: str = "") -> list[ClusterShape]:
    """So many equal clusters, named a, b, c."""
    return [
        ClusterShape(name=chr(ord("a") + number), nodes=nodes, cpus=cpus, conf=conf)
        for number in range(clusters)
    ]


def _daemon(command: Sequence[str], output: Path, mark: str = "") -> subprocess.Popen[bytes]:
    """Start a daemon that is known by the mark in its environment."""
    with open(output, "ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            env=Slurm().environment() | {MARK: mark or str(output.parent)},
        )


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-500:] if path.exists() else ""


def main() -> int:
    """Run clusters until interrupted."""
    parser = argparse.ArgumentParser(description="Real Slurm clusters on this machine.")
    parser.add_argument("--clusters", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=16, help="of each cluster")
    parser.add_argument("--cpus", type=int, default=8, help="of each node")
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd and MariaDB")
    return by_hand(
        parser,
        lambda args: bed(
            *alike(args.clusters, args.nodes, cpus=args.cpus),
            accounting=args.accounting,
            keep=args.keep,
        ),
        lambda running: (f"SLURM_CONF={cluster.conf}" for cluster in running),
    )


if __name__ == "__main__":
    sys.exit(main())
