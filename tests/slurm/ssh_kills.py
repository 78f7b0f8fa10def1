"""Jobs over two clusters by ssh while what connects them is killed, cut off or stopped.

``python -m tests.slurm.ssh_kills --first 0 --seeds 100 --longest 30`` does so for a range of seeds
over one pair of clusters, with a line for each. A seed says what is hit, at which stage of a job,
how long after it, and for how long.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pwd import struct_passwd
from typing import Any

from coalloc.wire.client import NoAnswerError
from tests.support.live_site import ENDED
from tests.testbeds.slurm import SlurmTestbed, alike, bed
from tests.testbeds.slurm_site import SlurmSite
from tests.testbeds.ssh import LoginNode, login_nodes, login_user, masters, pids_of, processes_of

LASTS = {1.0: 4, 30.0: 4, 600.0: 1}
"""Of a cut or a stop, seconds, and how often."""
KILLED = ("master", "session", "agent", "link", "executor", "daemon")
LASTING = ("cut", "master stopped", "laptop asleep")
STAGES = {"submitted": set[str](), "preparing": {"preparing"}, "starting": {"starting", "running"}}
WORDS = {"agent": "-ready", "link": "coalloc.adapters.ssh.link", "session": "@notty"}
RUN = 'echo "$COALLOC_CLUSTER $COALLOC_RANK" >> {lines}; sleep {run_s}; exit 0'
LEASE_S = 20.0
"""Cuts that are longer may cost a claim that was told to start (docs/GUARANTEES.md)."""
LIMIT_S = 240.0
"""Until a job has ended, beyond what a cut lasts: a silent connection is given up after 45 s."""


@contextlib.contextmanager
def site_by_ssh(
    root: Path, running: SlurmTestbed, route: str = "auto", **options: float
) -> Iterator[tuple[SlurmSite, dict[str, LoginNode], struct_passwd]]:
    """Daemon and executors of one ordinary user, who has nothing but logins."""
    steering = {cluster.name: {"SLURM_CONF": str(cluster.conf)} for cluster in running}
    (root / "site").mkdir()
    with (
        login_user(root, "ada") as ada,
        login_nodes(root / "ssh", ada.pw_name, steering, **options) as nodes,  # type: ignore[arg-type]
    ):
        own = {"conf": "", "address": "", "route": route}
        each = {name: {**own, **node.settings} for name, node in nodes.items()}
        with SlurmSite(root / "site", running, each=each, account=ada) as site:
            yield site, nodes, ada


def submitted(site: SlurmSite, ada: struct_passwd, lines: Path, run_s: float) -> str:
    """A job of two processes on each of the two clusters."""
    command = RUN.format(lines=lines, run_s=run_s)
    return site.submit(["sh", "-c", command], 4, cwd=ada.pw_dir)


def ends_once(site: SlurmSite, job: str, lines: Path) -> None:
    """Assert that a job completes, and has started each process once, and nothing is left."""
    ended = site.wait(job)
    assert ended["state"] == "completed", ended
    assert sorted(lines.read_text().split()[1::2]) == list("0123")
    site.bed.wait(lambda: all(each.is_idle() for each in site.bed), "no job is left")


@dataclass(frozen=True, kw_only=True)
class Hit:
    """What happens to a job of one seed."""

    what: str
    where: tuple[str, ...]
    """Clusters whose connections are hit."""
    stage: str
    delay_s: float
    lasts_s: float
    run_s: float

    @property
    def connections(self) -> int:
        """How many may be opened anew because of it."""
        return len(self.where) if self.what in {"master", "session", *LASTING} else 0


def hit_of(seed: int, longest_s: float) -> Hit:
    """Draw what happens."""
    draw = random.Random(seed)
    what = draw.choice((*KILLED, *LASTING))
    lasts = {s: n for s, n in LASTS.items() if s <= longest_s}
    where = draw.choice((("a",), ("b",), ("a", "b")))
    return Hit(
        what=what,
        where=("a", "b") if what == "laptop asleep" else where,
        stage=draw.choice(list(STAGES)),
        delay_s=draw.uniform(0.0, 1.5),
        lasts_s=draw.choices(list(lasts), list(lasts.values()))[0] if what in LASTING else 0.0,
        run_s=draw.uniform(0.1, 3.0),
    )


@dataclass
class Battered:
    """A site by ssh, what has hit it, and what came of that."""

    site: SlurmSite
    nodes: Mapping[str, LoginNode]
    ada: struct_passwd
    connections: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.connections = sum(node.accepted for node in self.nodes.values())
        self._there, self._files = self._processes(), self._paths()

    def suffer(self, name: str, hit: Hit) -> str:
        """Run a job while this happens; returns what was wrong, or an empty text."""
        lines = Path(self.ada.pw_dir) / f"lines{name}"
        job = submitted(self.site, self.ada, lines, hit.run_s)
        try:
            if states := STAGES[hit.stage]:
                self.site.until(lambda: self._state(job) in states | ENDED)
            time.sleep(hit.delay_s)
            self.connections += hit.connections
            self._strike(hit)
            self.site.until(lambda: self._state(job) in ENDED, LIMIT_S)
        except AssertionError:
            return f"does not end: {self.site.job(job)}"
        return self._fault(self.site.job(job), lines, hit)

    def left(self) -> str:
        """What is left of it all, once there was time to end; empty: nothing."""
        try:
            self.site.until(lambda: not self._left(), 90.0)
        except AssertionError:
            return self._left()
        return ""  # a further look might meet a query that has just begun

    def _state(self, job: str) -> str:
        try:
            return str(self.site.job(job)["state"])
        except NoAnswerError:
            return ""

    def _strike(self, hit: Hit) -> None:
        struck = 1
        with contextlib.ExitStack() as stack:
            if hit.what == "daemon":
                self.site.kill("coallocd")
                self.site.start_daemon(wait=False)
            elif hit.what == "executor":
                for name in hit.where:
                    self.site.kill(name)
                    self.site.start_executor(name)
                struck = len(hit.where)
            elif hit.what == "cut":
                for name in hit.where:
                    stack.enter_context(self.nodes[name].cut())
                struck = len(hit.where)
            elif hit.what in LASTING:
                stopped = self._connections(hit) if hit.what == "master stopped" else self._here()
                struck = _signal(stopped, signal.SIGSTOP)
                stack.callback(_signal, stopped, signal.SIGCONT)
            else:
                struck = _signal(self._connections(hit), signal.SIGKILL)
            self.counts["blows"] += struck
            time.sleep(hit.lasts_s)

    def _connections(self, hit: Hit) -> list[int]:
        is_master = hit.what.startswith("master")
        found = sorted(masters(self.ada) if is_master else pids_of(self.ada, WORDS[hit.what]))
        return found[: len(hit.where)] if hit.where != ("b",) else found[-1:]

    def _here(self) -> list[int]:
        """The user's processes on this side: what sshd and Slurm start has no such path."""
        found = []
        for pid in processes_of(self.ada):
            with contextlib.suppress(OSError):
                if b"PYTHONPATH=" in Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(pid)
        return found

    def _fault(self, job: Mapping[str, Any], lines: Path, hit: Hit) -> str:
        ranks = lines.read_text().split()[1::2] if lines.exists() else []
        lines.unlink(missing_ok=True)
        self.counts["further attempts"] += int(job["attempt"]) - 1
        if len(set(ranks)) < len(ranks):
            return f"twice: {sorted(ranks)} {job}"
        if job["state"] == "completed" and sorted(ranks) == list("0123"):
            return ""
        if job["reason"] == "part_missing" and hit.lasts_s > LEASE_S:
            self.counts["part_missing"] += 1
            return ""
        return f"ran {sorted(ranks)}: {job}"

    def _left(self) -> str:
        busy = [each.name for each in self.site.bed if not each.is_idle()]
        more = self._processes() - self._there
        files = self._paths() - self._files
        accepted = sum(node.accepted for node in self.nodes.values())
        said = [f"jobs on {busy}"] if busy else []
        said += [f"processes {dict(more)} beyond {dict(self._there)}"] if more else []
        said += [f"files {sorted(files)[:9]}"] if files else []
        if accepted > self.connections:
            said.append(f"{accepted} connections, and not {self.connections}")
        return "; ".join(said)

    def _processes(self) -> Counter[str]:
        """The user's processes by name, and with what they were told first; not the solvers.

        Those are the daemon's, and fewer while they are warmed up.
        """
        found: Counter[str] = Counter()
        for pid in processes_of(self.ada):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
                if words and "coalloc.daemon.solver.worker" not in words:
                    name = Path(f"/proc/{pid}/comm").read_text().strip()
                    found[f"{name} {' '.join(words[:3])}"[:60]] += 1
        return found

    def _paths(self) -> set[str]:
        folders = (Path(self.ada.pw_dir), self.site.root / "state/executors")
        found = (path for folder in folders for path in folder.rglob("*"))
        return {str(path) for path in found if ".cache" not in path.parts}


def _signal(pids: list[int], number: int) -> int:
    """Send a signal; returns how many processes got it."""
    got = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            got += 1
    return got


@contextlib.contextmanager
def battered(root: Path, route: str = "auto") -> Iterator[Battered]:
    """Two clusters, a site by ssh, and one job that has run in peace."""
    with bed(*alike(2, 2)) as running, site_by_ssh(root, running, route) as (site, nodes, ada):
        lines = Path(ada.pw_dir) / "lines"
        assert site.wait(submitted(site, ada, lines, 0.1))["state"] == "completed"
        lines.unlink()
        running.wait(lambda: all(each.is_idle() for each in running), "no job is left")
        yield Battered(site, nodes, ada)


def main() -> int:
    """Run seeds; the exit code is 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm.ssh_kills", description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--longest", type=float, default=30.0, help="of cuts, seconds")
    parser.add_argument("--shortest", type=float, default=0.0, help="leave out what lasts less")
    parser.add_argument("--route", choices=("auto", "files"), default="auto", help="of the start")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin none after these")
    args = parser.parse_args()
    end, broken, done = time.monotonic() + 60.0 * args.minutes, 0, 0
    with tempfile.TemporaryDirectory(prefix="co-") as folder:
        Path(folder).chmod(0o755)
        with battered(Path(folder), args.route) as site:
            for seed in range(args.first, args.first + args.seeds):
                if time.monotonic() > end:
                    break
                if (hit := hit_of(seed, args.longest)).lasts_s < args.shortest:
                    continue
                began, done = time.monotonic(), done + 1
                why = site.suffer(str(seed), hit)
                broken += bool(why)
                print(f"{seed} {time.monotonic() - began:.1f} s {hit} {why}", flush=True)
            left = site.left()
            print(f"{done} seeds, {broken} broken, {dict(site.counts)}, left: {left or 'nothing'}")
    return 1 if broken or left else 0


if __name__ == "__main__":
    sys.exit(main())
