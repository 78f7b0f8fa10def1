"""Open streams over two busy Slurm clusters: jobs come at their own times, whatever still waits.

One pair of clusters with our jobs and those of local users is an *arm*; the same jobs go to each
arm at the same times, through coalloc in the one, by plain ``sbatch`` to a random cluster in its
twin. Every process writes when and where it began and ended: these marks, not what any daemon says,
tell how long a job waited, whether it ran, and how often.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from pwd import struct_passwd
from typing import Any

from coalloc.adapters.batch.token import parse_comment
from coalloc.adapters.runner.command import UnreachableError
from tests.kernels import CACHE
from tests.slurm.open_jobs import Item
from tests.support.live_site import ENDED
from tests.testbeds.slurm import ClusterShape, SlurmTestbed
from tests.testbeds.slurm_site import SlurmSite

LOOK_S = 0.5
ROWS_S = 60.0
"""Between two looks at all jobs that Slurm remembers; it forgets them after five minutes."""
WARM_S = 600.0
ROW = "%i|%j|%u|%k|%T|%V|%S|%e|%D|%C|%N"


def shapes(conf: str = "") -> list[ClusterShape]:
    """Six processors on three shared nodes, and six whole nodes."""
    more = "MessageTimeout=30\n" + conf
    return [
        ClusterShape(name="alpha", nodes=3, cpus=2, conf=more),
        ClusterShape(name="beta", nodes=6, cpus=2, conf=more),
    ]


@dataclass(slots=True)
class Seen:
    """What the marks of one job say: when each process began and ended, in the order written."""

    began: dict[str, list[float]] = field(default_factory=dict)
    ended: dict[str, list[float]] = field(default_factory=dict)
    where: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Cluster and node of each beginning."""

    @property
    def first(self) -> float | None:
        """When its first process began."""
        return min((t for times in self.began.values() for t in times), default=None)

    @property
    def used_s(self) -> float:
        """Seconds of its processes, those that were cut short left out."""
        pairs = ((self.began[key][0], times[0]) for key, times in self.ended.items())
        return sum(end - begin for begin, end in pairs)


def marks_in(path: Path) -> dict[str, Seen]:
    """The marks of every job that ran, by its name."""
    found: dict[str, Seen] = {}
    for line in path.read_text().splitlines():
        name, key, cluster, node, what, at = line.split()
        seen = found.setdefault(name, Seen())
        if what == "began":
            seen.where.setdefault(key, []).append((cluster, node))
        getattr(seen, what).setdefault(key, []).append(float(at))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job as Slurm had it, which is a claim of ours where there is a token."""

    cluster: str
    number: str
    name: str
    user: str
    job: str
    attempt: int
    state: str
    submitted: float
    began: float | None
    ended: float | None
    slots: int
    nodes: str


class Arm:
    """Two clusters, and what is submitted to them; by itself the plain twin."""

    title = "plain"

    def __init__(
        self, bed: SlurmTestbed, root: Path, ours: struct_passwd | None, local: struct_passwd
    ) -> None:
        self.bed, self.root, self.ours, self.local = bed, root, ours, local
        self.marks = root / "marks"
        self.marks.touch()
        self.marks.chmod(0o666)
        self.submitted: dict[str, float] = {}
        self.jobs: dict[str, str] = {}
        """The daemon's number of each of our jobs, by its name; in the plain twin none."""
        self.rows: dict[tuple[str, str], Row] = {}
        self.began = self.fed_at = 0.0
        """Of the stream, and when all was submitted; wall-clock seconds."""
        self.took_s: float | None = None
        """Until everything had ended; None: it has not."""
        self.rpcs_a_minute: dict[str, dict[str, float]] = {}
        self.error: BaseException | None = None
        self.over = threading.Event()
        self._looked = 0.0

    def script(self, item: Item, key: str, cluster: str, node: str) -> str:
        """What a process runs; all but the item are what the shell makes of them."""
        told = f"{item.name} {key} {cluster} {node}"
        mark = f'm() {{ echo "{told} $1 $(date +%s.%N)" >> {self.marks}; }}'
        return f"{mark}; m began; sleep {item.run_s:.2f}; m ended"

    def submit(self, item: Item) -> None:
        """Submit a job; a cluster that is out of reach is asked again."""
        self.submitted[item.name] = time.time()
        if item.is_ours:
            self.submit_ours(item)
        else:
            self.sbatch(item, self.local, item.clusters[0], item.width)

    def submit_ours(self, item: Item) -> None:
        """One job, or two that know nothing of each other."""
        widths = [item.width] if len(item.clusters) == 1 else [-(-item.width // 2), item.width // 2]
        for cluster, width in zip(item.clusters, widths, strict=True):
            self.sbatch(item, self.ours, cluster, width)

    def sbatch(self, item: Item, account: struct_passwd | None, cluster: str, width: int) -> None:
        """A plain job, to the slots of one cluster."""
        shape = ("-n", str(width)) if cluster == "alpha" else ("-N", str(width), "--exclusive")
        text = self.script(item, cluster, cluster, "$SLURMD_NODENAME")
        words = ("--parsable", *shape, "-t", f"{item.limit_min:g}", "-o", "/dev/null", "-D", "/")
        qos = ("-q", item.qos) if item.qos else ()
        there = self.bed[cluster]
        while not self.over.is_set():
            try:
                there.run("sbatch", *words, *qos, "-J", item.name, "--wrap", text, account=account)
                return
            except UnreachableError:
                time.sleep(1.0)
                with contextlib.suppress(UnreachableError):
                    if there.run("squeue", "-h", "-t", "all", "-n", item.name, "-o", "%i").strip():
                        return

    def is_done(self, items: Sequence[Item]) -> bool:
        """Whether nothing is left in any queue."""
        if len(self.submitted) < len(items):
            return False
        try:
            return all(not cluster.run("squeue", "-h", "-o", "%i").strip() for cluster in self.bed)
        except UnreachableError:
            return False

    def look(self, *, now: bool = False) -> None:
        """Note every job that Slurm remembers, now and then."""
        if not now and time.monotonic() < self._looked + ROWS_S:
            return
        self._looked = time.monotonic()
        for cluster in self.bed:
            with contextlib.suppress(UnreachableError):
                for row in self.rows_now(cluster.name, "-t", "all"):
                    self.rows[cluster.name, row.number] = row

    def rows_now(self, cluster: str, *words: str) -> list[Row]:
        """What waits or runs in a cluster, or what these words of ``squeue`` choose."""
        lines = self.bed[cluster].run("squeue", "-h", *words, "-o", ROW).splitlines()
        return [_row(cluster, line) for line in lines]

    def rpcs(self) -> dict[str, Counter[str]]:
        """Calls of slurmctld by our user and by type, of each cluster, since `forget_rpcs`."""
        user = "root" if self.ours is None else self.ours.pw_name
        found = {}
        for cluster in self.bed:
            counts: Counter[str] = Counter()
            section = ""
            for line in cluster.run("sdiag").splitlines():
                if line.startswith("Remote Procedure Call statistics by"):
                    section = line.split()[-1]
                words = line.split()
                if section == "user" and words and words[0].removesuffix("(") == user:
                    counts["ours"] += int(line.split("count:")[1].split()[0])
                elif section == "type" and words and words[0].startswith("REQUEST_"):
                    counts[words[0]] += int(line.split("count:")[1].split()[0])
            found[cluster.name] = counts
        return found

    def forget_rpcs(self) -> None:
        """Count calls anew."""
        for cluster in self.bed:
            cluster.run("sdiag", "-r")

    def stop(self) -> None:
        """End what still waits or runs."""
        self.over.set()
        for cluster in self.bed:
            with contextlib.suppress(UnreachableError):
                if left := cluster.run("squeue", "-h", "-o", "%i").split():
                    cluster.run("scancel", *left)


def _row(cluster: str, line: str) -> Row:
    number, name, user, comment, state, *times, nodes, cpus, where = line.split("|")
    token = parse_comment(comment)
    submitted, began, ended = (
        None if text in {"N/A", "NONE", "Unknown"} else datetime.fromisoformat(text).timestamp()
        for text in times
    )
    return Row(
        cluster=cluster,
        number=number,
        name=name,
        user=user,
        job="" if token is None else token.job,
        attempt=0 if token is None else token.attempt,
        state=state,
        submitted=submitted or 0.0,
        began=began if where else None,
        ended=ended,
        slots=int(cpus) if cluster == "alpha" else int(nodes),
        nodes=where,
    )


class CoallocArm(Arm):
    """The same jobs through a daemon and executors of an ordinary user's, or of root's."""

    title = "coalloc"

    def __init__(
        self,
        bed: SlurmTestbed,
        root: Path,
        ours: struct_passwd | None,
        local: struct_passwd,
        *,
        policy: str = "auto",
        given: Any = None,
    ) -> None:
        super().__init__(bed, root, ours, local)
        cache = root / "cache"
        if policy != "plain" and Path(CACHE).exists():
            # Its owner compiles what is missing there.
            shutil.copytree(CACHE, cache, dirs_exist_ok=True)
        self.site = SlurmSite(
            root,
            bed,
            given=given,
            each={"alpha": {"slots": "cpus"}, "beta": {"slots": "node"}},
            interval_s=1.0,
            account=ours,
            policy=policy,
            cache=cache,
        )

    def __enter__(self) -> CoallocArm:
        self.site.start()
        if self.site.policy != "plain":
            self.site.until(lambda: bool(self.site.lines("solver_warmed")), WARM_S)
        return self

    def __exit__(self, *error: object) -> None:
        self.site.stop()

    def submit_ours(self, item: Item) -> None:
        """One job, as ``coalloc submit -n WIDTH -t LIMIT`` makes it."""
        text = self.script(item, "$COALLOC_RANK", "$COALLOC_CLUSTER", "$COALLOC_NODE")
        limit_s = 60.0 * item.limit_min
        body = self.site.submission(
            ["sh", "-c", text],
            item.width,
            token=f"stream-{item.name}",
            name=item.name,
            job={"base_time": limit_s, "time_limit": limit_s},
            launch={"stdout": "/dev/null"},
            **({"batch": {"qos": item.qos}} if item.qos else {}),
        )
        with self.site.fresh_asker(60.0) as asker:
            answer = asker.ask({"type": "submit", **body})
        assert answer["type"] == "done", answer
        self.jobs[item.name] = str(answer["job"])

    def states(self) -> dict[str, dict[str, Any]]:
        """What the queue says of each of our jobs, by its name."""
        names = {job: name for name, job in self.jobs.items()}
        answer = self.site.ask("queue", all=True, limit=1000)
        return {names[row["id"]]: row for row in answer["jobs"] if row["id"] in names}

    def is_done(self, items: Sequence[Item]) -> bool:
        """Whether nothing is left in any queue, the daemon's among them."""
        if len(self.submitted) < len(items):
            return False
        ended = all(row["state"] in ENDED for row in self.states().values())
        return ended and super().is_done(items)


def feed(arm: Arm, items: Sequence[Item], began: float) -> list[threading.Thread]:
    """Submit every job at its time, each stream from a thread of its own."""

    def work(mine: Sequence[Item]) -> None:
        try:
            for item in mine:
                if arm.over.wait(max(0.0, began + item.at - time.monotonic())):
                    return
                arm.submit(item)
        except BaseException as error:
            arm.error = error

    streams: dict[tuple[str, ...], list[Item]] = {}
    for item in items:
        streams.setdefault(() if item.is_ours else item.clusters, []).append(item)
    threads = [
        threading.Thread(target=work, args=(mine,), name=f"{arm.title} {key}")
        for key, mine in streams.items()
    ]
    for thread in threads:
        thread.start()
    return threads


def faults(arm: Arm, items: Sequence[Item]) -> list[str]:
    """Jobs that did not run exactly once, each process from its beginning to its end."""
    marks = marks_in(arm.marks)
    wanted = ((item, keys_of(arm, item)) for item in items)
    found = ((item, not_once(marks.get(item.name, Seen()), keys)) for item, keys in wanted)
    return [f"{item.name} ({item.kind}, {item.width} wide): {text}" for item, text in found if text]


def keys_of(arm: Arm, item: Item) -> set[str]:
    """Processes that are to leave marks: ranks of ours, the first one of a plain job."""
    if isinstance(arm, CoallocArm) and item.is_ours:
        return {str(rank) for rank in range(item.width)}
    return set(item.clusters)


def not_once(seen: Seen, keys: set[str]) -> str:
    """What is wrong with the marks of a job that is to run once; empty: nothing."""
    for what, times in (("began", seen.began), ("ended", seen.ended)):
        if set(times) != keys or any(len(each) != 1 for each in times.values()):
            return f"{what}: { {key: len(each) for key, each in sorted(times.items())} }"
    return ""
