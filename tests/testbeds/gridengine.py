"""Real Grid Engine cells on this machine: up in seconds, down without a trace.

Each cell has a qmaster and an execd of its own on loopback, and one host, ``localhost``: execd
does not share a host with another of the same cell. All of it lives in one temporary folder.

By hand::

    python -m tests.testbeds.gridengine --cells 2
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from coalloc.adapters.gridengine.commands import GridEngine
from coalloc.adapters.gridengine.parse_xml import CellStatus, parse_status
from coalloc.adapters.runner.command import BatchError
from coalloc.adapters.runner.status import descendants
from tests.testbeds.processes import (
    UP_LIMIT_S,
    BedError,
    bed_folder,
    by_hand,
    free_ports,
    kill,
    up,
    wait_gone,
    wait_port,
    wait_until,
)

BIN = Path("/usr/lib/gridengine")
SHARE = Path("/usr/share/gridengine")
PROGRAMS = ("sge_qmaster", "sge_execd", "qstat", "qsub", "qdel", "qconf", "spooldefaults.bin")
PACKAGES = "gridengine-master gridengine-exec gridengine-client"

BOOTSTRAP = """\
Version: 6.2
admin_user              none
default_domain          none
ignore_fqdn             false
spooling_method         classic
spooling_lib            libspoolc
spooling_params         {root}/default/common;{root}/spool/qmaster
binary_path             {root}/bin
qmaster_spool_dir       {root}/spool/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
"""
CONFIGURATION = {
    "min_uid": "0",
    "min_gid": "0",
    "load_report_time": "00:00:02",
    "execd_params": "INHERIT_ENV=false",
    "gid_range": "{gids}",
    "execd_spool_dir": "{root}/spool/execd",
}
SCHEDULE = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "job_load_adjustments": "NONE",
    "load_adjustment_decay_time": "0:0:0",
}
QUEUE = {
    "qname": "main",
    "hostlist": "localhost",
    "slots": "{slots}",
    "pe_list": "smp",
    "load_thresholds": "NONE",
    "shell_start_mode": "unix_behavior",
}
PE = """\
pe_name            smp
slots              99999
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    $pe_slots
control_slaves     FALSE
job_is_first_task  TRUE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
"""


def missing() -> str:
    """What has to be installed before cells can be made; empty: nothing."""
    absent = [name for name in PROGRAMS if not (BIN / name).exists()]
    if absent:
        return f"{', '.join(absent)} not found; as root: apt-get install {PACKAGES}"
    return "" if os.geteuid() == 0 else "its daemons start jobs as root only, and this is not root"


@dataclass(kw_only=True)
class Cell:
    """One running cell, with the queue ``main`` on the host ``localhost``."""

    name: str
    root: Path
    slots: int
    ports: tuple[int, int]
    gids: str
    qmaster: subprocess.Popen[bytes] | None = None
    execd: subprocess.Popen[bytes] | None = None

    @property
    def commands(self) -> GridEngine:
        """Its commands."""
        return GridEngine(
            root=str(self.root),
            cell="default",
            qmaster_port=self.ports[0],
            execd_port=self.ports[1],
            bin_dir=str(BIN),
            timeout_s=20.0,
            extra_env={"LD_LIBRARY_PATH": str(BIN), "SGE_ND": "1"},
        )

    def run(self, name: str, *arguments: str, text: str | None = None) -> str:
        """Run one of Grid Engine's commands on this cell."""
        return self.commands.run(name, *arguments, text=text)

    def status(self) -> CellStatus:
        """Its queue and its jobs."""
        return parse_status(self.run("qstat", "-f", "-xml", "-F", "num_proc", "-r", "-u", "*"))

    def submit(self, *options: str, script: str = "sleep 600\n") -> str:
        """Submit a local job; returns its number."""
        words = ("-terse", "-S", "/bin/sh", "-o", "/dev/null", "-j", "y", "-r", "n", *options)
        return self.run("qsub", *words, text=script).split(".")[0].strip()

    def delete_all(self) -> None:
        """Delete every job."""
        with contextlib.suppress(BatchError):  # there is none
            self.run("qdel", "-u", "*")

    def is_idle(self) -> bool:
        """Whether it answers, its execd speaks, and there is no job."""
        try:
            status = self.status()
        except BatchError:
            return False
        queues = [entry for entry in status.queues if entry.cpus is not None and not entry.state]
        return len(queues) == 1 and not any(True for _ in status.jobs())

    def written(self) -> None:
        """Make the folder of a cell that has never run."""
        common, spool = self.root / "default" / "common", self.root / "spool"
        for folder in (common, spool / "qmaster", spool / "execd"):
            folder.mkdir(parents=True)
        for name in ("bin", "lib", "utilbin"):
            (self.root / name).mkdir()
            (self.root / name / _arch()).symlink_to(BIN)
        (self.root / "util").symlink_to(SHARE / "util")
        (common / "bootstrap").write_text(BOOTSTRAP.format(root=self.root))
        (common / "act_qmaster").write_text("localhost\n")
        names = {socket.gethostname(), socket.getfqdn()} - {"localhost"}
        (common / "host_aliases").write_text(f"localhost {' '.join(sorted(names))}\n")
        self._spooled(f"{common};{spool / 'qmaster'}")

    def _spooled(self, where: str) -> None:
        given = {k: v.format(root=self.root, gids=self.gids) for k, v in CONFIGURATION.items()}
        default = (SHARE / "default-configuration").read_text()
        (self.root / "configuration").write_text(changed(default, given))
        resources = SHARE / "util" / "resources"
        user = pwd.getpwuid(os.getuid()).pw_name
        self.run("spoolinit", "classic", "libspoolc", where, "init")
        for kind, value in (
            ("configuration", str(self.root / "configuration")),
            ("complexes", str(resources / "centry")),
            ("usersets", str(resources / "usersets")),
            ("managers", user),
        ):
            self.run("spooldefaults.bin", kind, value)

    def start_qmaster(self) -> None:
        """Start qmaster on the state that its predecessor left; returns when it listens."""
        self.qmaster = self._daemon("sge_qmaster")
        wait_port(self.ports[0], self.qmaster, f"qmaster of {self.name}")

    def kill_qmaster(self, number: int = signal.SIGKILL) -> None:
        """End qmaster."""
        assert self.qmaster is not None
        self.qmaster.send_signal(number)
        self.qmaster.wait(UP_LIMIT_S)
        self.qmaster = None

    def start_execd(self) -> None:
        """Start the host's execd."""
        self.execd = self._daemon("sge_execd")

    def configured(self) -> None:
        """Give a new cell its scheduler, its parallel environment and its queue."""
        for name, text, option in (
            ("schedule", changed(self.run("qconf", "-ssconf"), SCHEDULE), "-Msconf"),
            ("pe", PE, "-Ap"),
            (
                "queue",
                changed(
                    self.run("qconf", "-sq"),
                    {key: value.format(slots=self.slots) for key, value in QUEUE.items()},
                ),
                "-Aq",
            ),
        ):
            path = self.root / name
            path.write_text(text)
            self.run("qconf", option, str(path))
        self.run("qconf", "-as", "localhost")

    def _daemon(self, name: str) -> subprocess.Popen[bytes]:
        commands = self.commands
        with open(self.root / f"{name}.out", "ab") as output:
            return subprocess.Popen(
                [f"{BIN}/{name}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=commands.environment(),
            )


class GridEngineTestbed:
    """Cells that run; made by `bed`."""

    def __init__(self, root: Path, cells: int, slots: int) -> None:
        taken: set[int] = set()
        self.cells: dict[str, Cell] = {}
        for number in range(cells):
            name = chr(ord("p") + number)
            first = free_ports(2, taken)
            gids = f"{64000 + 200 * number}-{64199 + 200 * number}"
            folder = root / name
            self.cells[name] = Cell(
                name=name, root=folder, slots=slots, ports=(first, first + 1), gids=gids
            )

    def __getitem__(self, name: str) -> Cell:
        return self.cells[name]

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells.values())

    def start(self) -> None:
        """Bring everything up, and wait until every queue can take jobs."""
        for cell in self:
            cell.written()
            cell.start_qmaster()
        for cell in self:
            self.wait(lambda cell=cell: _answers(cell), f"qmaster of {cell.name} answers")  # type: ignore[misc]
            cell.configured()
            cell.start_execd()
        for cell in self:
            self.wait(cell.is_idle, f"the queue of {cell.name} is idle")

    def wait(self, holds: Callable[[], bool], what: str, limit_s: float = UP_LIMIT_S) -> None:
        """See `wait_until`."""
        wait_until(holds, what, self.logs, limit_s)

    def logs(self) -> str:
        """The last lines of every daemon's log."""
        return "".join(
            f"--- {path}\n{path.read_text(errors='replace')[-1500:]}"
            for cell in self
            for path in sorted(cell.root.glob("spool/**/messages"))
        )

    def stop(self) -> None:
        """End every daemon, and every process that any of them left."""
        own = [
            process
            for cell in self
            for process in (cell.qmaster, cell.execd)
            if process is not None
        ]
        pids = {process.pid for process in own}
        left = _marked(self)
        kill([*pids, *left])
        for process in own:
            process.wait()
        while left := [pid for pid in {*left, *_marked(self)} if Path(f"/proc/{pid}").exists()]:
            kill(left)
            wait_gone(left)
            for pid in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


@contextlib.contextmanager
def bed(cells: int = 1, *, slots: int = 4, keep: bool = False) -> Iterator[GridEngineTestbed]:
    """Run so many cells, named p, q, r.

    Parameters
    ----------
    slots : int
        Of each cell's host.
    keep : bool
        Whether the folder with the logs stays.

    Raises
    ------
    BedError
    """
    absent = missing()
    if absent:
        raise BedError(absent)
    with bed_folder("ge", keep=keep) as root, up(GridEngineTestbed(root, cells, slots)) as running:
        yield running


def changed(text: str, values: dict[str, str]) -> str:
    """A configuration of Grid Engine's with other values; a key keeps its place."""
    lines = []
    for line in text.splitlines():
        key = line.split(" ")[0].split("\t")[0]
        lines.append(f"{key} {values[key]}" if key in values else line)
    return "\n".join(lines) + "\n"


def _answers(cell: Cell) -> bool:
    try:
        cell.run("qconf", "-sm")
    except BatchError:
        return False
    return True


def _arch() -> str:
    return subprocess.run(
        [str(SHARE / "util" / "arch")], check=True, capture_output=True, text=True
    ).stdout.strip()


def _marked(running: GridEngineTestbed) -> list[int]:
    """Processes below this one that belong to a cell's execd, and all below them."""
    marks = [f"SGE_ROOT={cell.root}\0".encode() for cell in running]
    found: dict[int, None] = {}
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            if any(mark in environment for mark in marks):
                found |= dict.fromkeys([pid, *descendants(pid)])
    return list(found)


def main() -> int:
    """Run cells until interrupted."""
    parser = argparse.ArgumentParser(description="Real Grid Engine cells on this machine.")
    parser.add_argument("--cells", type=int, default=1)
    parser.add_argument("--slots", type=int, default=4, help="of each cell's host")
    return by_hand(
        parser,
        lambda args: bed(args.cells, slots=args.slots, keep=args.keep),
        lambda running: (
            " ".join(f"{key}={value}" for key, value in cell.commands.steering().items())
            for cell in running
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
