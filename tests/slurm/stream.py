"""A stream of jobs over Slurm clusters of different sizes and powers, and what became of each.

Every process of a job writes one line, its job and its rank, into one file when it starts: what
is missing there was lost, what stands there twice ran twice. A job that runs on a weaker cluster
takes longer, as it would on a weaker machine.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.wire.client import NoAnswerError
from tests.support.live_site import ENDED
from tests.testbeds.slurm import ClusterShape, SlurmTestbed
from tests.testbeds.slurm_site import SlurmSite

POWERS = {"a": 1.0, "b": 0.8, "c": 0.6}
LIMIT_S = 600.0
PER_TURN = 20
LOOK_S = 0.5
FORGETS_S = 10.0
"""A slurmctld's memory is written down every five seconds, later where the disk is slow; and a
claim comes before the start, by some seconds where the machine is busy."""


def shapes(scale: int, folder: Path) -> list[ClusterShape]:
    """Clusters of three, two and one times `scale` nodes; the smaller, the weaker.

    Each writes a line for every job that has ended into ``folder/ended.NAME``.
    """
    return [
        ClusterShape(
            name=name,
            nodes=count * scale,
            conf=f"JobCompType=jobcomp/filetxt\nJobCompLoc={folder}/ended.{name}",
        )
        for name, count in zip(POWERS, (3, 2, 1), strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class Work:
    """One job: its processes, and its run time on nodes of full power, seconds."""

    name: str
    procs: int
    base_s: float


def workload(
    count: int, *, widest: int, mean_s: float, seed: int = 1, wide: Sequence[int] = ()
) -> list[Work]:
    """Random jobs of up to `widest` processes, and, spread among them, some of `wide` processes."""
    draw = random.Random(seed)
    jobs = [
        Work(
            name=f"j{number}",
            procs=min(widest, int(2 ** draw.uniform(0.0, 3.3))),
            base_s=round(mean_s * draw.uniform(0.4, 1.6), 2),
        )
        for number in range(count)
    ]
    for number, procs in enumerate(wide):
        at = (2 * number + 1) * count // (2 * len(wide))
        jobs.insert(at + number, Work(name=f"w{number}", procs=procs, base_s=mean_s))
    return jobs


def script(work: Work, lines: Path, name: str, cluster: str) -> list[str]:
    """What a process runs; `name` and `cluster` are what the shell makes of them."""
    waits = " ".join(f"{key}) s={work.base_s / power:.2f};;" for key, power in POWERS.items())
    text = f"echo {work.name} {name} >> {lines}; case {cluster} in {waits} esac; sleep $s"
    return ["sh", "-c", text]


def submit(site: SlurmSite, work: Work, lines: Path) -> str:
    """Submit a job to the daemon; a lost answer is asked for again, with the same token."""
    body = site.submission(
        script(work, lines, "$COALLOC_RANK", "$COALLOC_CLUSTER"),
        work.procs,
        token=f"stream-{work.name}",
        job={"base_time": work.base_s, "time_limit": LIMIT_S},
        launch={"stdout": "/dev/null"},
    )
    answer = site.ask("submit", **body)
    assert answer["type"] == "done", answer
    return str(answer["job"])


def bound_s(jobs: Sequence[Work], bed: SlurmTestbed, extra_s: float = 0.0) -> float:
    """What no plan of these jobs can end before, seconds, each taking `extra_s` longer."""
    from coalloc.policies.bounds import lower_bound
    from coalloc.policies.kernel.instance.decoding import Planner

    clusters = [
        {
            "name": cluster.name,
            "nodes": [{"name": n, "power": POWERS[cluster.name]} for n in cluster.node_names],
        }
        for cluster in bed
    ]
    queue = [
        {"id": work.name, "kind": "rigid", "procs": work.procs, "base_time": work.base_s + extra_s}
        for work in jobs
    ]
    body = {"format": "coalloc-snapshot/1", "time": 0.0, "clusters": clusters, "queue": queue}
    return float(lower_bound(Planner(read_snapshot(body), {}), "makespan", effort="quick").value)


def runs(lines: Path) -> Counter[str]:
    """How often each process of each job was started, by ``JOB RANK``."""
    return Counter(lines.read_text().splitlines()) if lines.exists() else Counter()


def expected(jobs: Sequence[Work]) -> Counter[str]:
    """What `runs` is when every job ran once."""
    return Counter(f"{work.name} {rank}" for work in jobs for rank in range(work.procs))


def all_jobs(site: SlurmSite) -> list[dict[str, Any]]:
    """Every job the daemon knows, ended ones too."""
    rows: list[dict[str, Any]] = []
    while True:
        after = {"after": rows[-1]["id"]} if rows else {}
        answer = site.ask("queue", all=True, limit=1000, **after)
        rows += answer["jobs"]
        if not answer["more"]:
            return rows


def round_robin(bed: SlurmTestbed, jobs: Sequence[Work], lines: Path) -> float:
    """The same jobs by plain ``sbatch``, to each cluster in turn; seconds until all have ended.

    A job that is wider than the cluster whose turn it is goes to the next that takes it.
    """
    names = list(POWERS)
    began, turn = time.monotonic(), 0
    for work in jobs:
        while bed[names[turn % 3]].shape.nodes < work.procs:
            turn += 1
        cluster = bed[names[turn % 3]]
        turn += 1
        command = script(work, lines, "0", cluster.name)[-1]
        cluster.run(
            *("sbatch", "--parsable", "--exclusive", "-N", str(work.procs), "-t", "10"),
            *("-o", "/dev/null", "-J", work.name, "--wrap", command),
        )
    for cluster in bed:
        bed.wait(
            lambda cluster=cluster: not cluster.run("squeue", "-h", "-o", "%i"),  # type: ignore[misc]
            f"the queue of {cluster.name} is empty",
            3600.0,
        )
    return time.monotonic() - began


def drive(
    site: SlurmSite,
    jobs: Sequence[Work],
    lines: Path,
    *,
    chaos: Chaos | None = None,
    limit_s: float = 3600.0,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[float, list[dict[str, Any]]]:
    """Submit all jobs and see them end, while `chaos` does its work.

    Returns
    -------
    float
        Seconds from the first submit to the last end.
    rows : list
        What the daemon says of each job.
    """
    began = time.time()
    waiting = list(reversed(jobs))
    end = time.monotonic() + limit_s
    while True:
        rows = []
        try:
            for _ in range(min(PER_TURN, len(waiting))):
                submit(site, waiting[-1], lines)
                waiting.pop()
            rows = all_jobs(site)
        except NoAnswerError:
            if chaos is None:
                raise
        say(f"{time.time() - began:.0f} s, to submit: {len(waiting)}, {counted(rows)}")
        if chaos is not None:
            chaos.go_on()
        is_over = not waiting and len(rows) == len(jobs) and all(r["state"] in ENDED for r in rows)
        if is_over and (chaos is None or chaos.is_over):
            return max(row["ended"] for row in rows) - began, rows
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s:g} s: {counted(rows)}")
        time.sleep(0.0 if waiting else LOOK_S)


def counted(rows: Sequence[dict[str, Any]]) -> str:
    """How many jobs are in each state."""
    counts = Counter(row["state"] for row in rows)
    return ", ".join(f"{state}: {count}" for state, count in sorted(counts.items()))


@dataclass(frozen=True, kw_only=True)
class Kill:
    """Somebody was killed; `at` in seconds since 1970."""

    at: float
    kind: str
    name: str


class Chaos:
    """Kills daemon, executors and slurmctlds with SIGKILL, at random, and starts them again.

    Parameters
    ----------
    count : int
        Kills.
    every_s : float
        Mean time between two, seconds.
    down_s : float
        The longest that one of them is away, seconds.
    """

    KINDS = ("daemon", "executor", "slurmctld")

    def __init__(
        self, site: SlurmSite, count: int, *, every_s: float, down_s: float = 3.0, seed: int = 1
    ) -> None:
        self._site, self._left = site, count
        self._every_s, self._down_s = every_s, down_s
        self._draw = random.Random(seed)
        self._next_at = time.monotonic() + self._gap()
        self._back: list[tuple[float, str, str]] = []
        self.kills: list[Kill] = []

    @property
    def is_over(self) -> bool:
        """Whether all have been killed who were to be, and all are there again."""
        return not self._left and not self._back

    def go_on(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        for entry in [entry for entry in self._back if entry[0] <= now]:
            self._back.remove(entry)
            self._start(*entry[1:])
        if self._left and now >= self._next_at:
            self._next_at = now + self._gap()
            self._kill(now)

    def _gap(self) -> float:
        return self._every_s * self._draw.uniform(0.2, 1.8)

    def _kill(self, now: float) -> None:
        kind = self._draw.choice(self.KINDS)
        name = "coallocd" if kind == "daemon" else self._draw.choice(list(POWERS))
        if any(entry[1:] == (kind, name) for entry in self._back):
            return  # it is away
        if kind == "slurmctld":
            self._site.bed[name].kill_controller()
        else:
            self._site.kill(name)
        self._left -= 1
        self.kills.append(Kill(at=time.time(), kind=kind, name=name))
        self._back.append((now + self._draw.uniform(0.0, self._down_s), kind, name))

    def _start(self, kind: str, name: str) -> None:
        if kind == "slurmctld":
            self._site.bed[name].start_controller(wait=False)
        elif kind == "executor":
            self._site.start_executor(name)
        else:
            self._site.start_daemon(wait=False)


CUT_SHORT = {"lost", "cancelled", "failed"}
"""What a job is whose steps Slurm ends: it depends on what Slurm still says of it."""


def forgotten(rows: Sequence[dict[str, Any]], kills: Sequence[Kill]) -> list[str]:
    """Jobs cut short that Slurm itself ended, since a slurmctld was killed just after their start.

    It writes its state down every five seconds; of what started since then it knows nothing when
    it is back, and it ends steps that it does not know.
    """
    found = []
    for row in rows:
        if row["state"] in CUT_SHORT and any(
            kill.kind == "slurmctld"
            and kill.name in row["clusters"]
            and -FORGETS_S <= row["started"] - kill.at <= FORGETS_S
            for kill in kills
        ):
            found.append(row["id"])
    return found


def occupied(bed: SlurmTestbed, jobs: Sequence[Work], folder: Path) -> list[float]:
    """How much longer than their run time plain jobs had their nodes, seconds, in whole ones."""
    base = {work.name: work.base_s for work in jobs}
    out = []
    for cluster in bed:
        path = folder / f"ended.{cluster.name}"
        for line in path.read_text().splitlines() if path.exists() else []:
            fields = dict(pair.split("=", 1) for pair in line.split() if "=" in pair)
            if fields["Name"] in base:
                start, end = (datetime.fromisoformat(fields[k]) for k in ("StartTime", "EndTime"))
                ran = base[fields["Name"]] / POWERS[cluster.name]
                out.append((end - start).total_seconds() - ran)
    return out
