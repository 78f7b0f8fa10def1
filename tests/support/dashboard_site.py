"""A dashboard in a thread of the test, filled by the test itself, and made-up sites for it."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from coalloc.client.client import Client
from coalloc.core.base.records import JobRecord, JobState
from coalloc.dashboard.access import Settings
from coalloc.dashboard.known import Known
from coalloc.dashboard.questions import Questions
from coalloc.dashboard.server import DashboardServer
from coalloc.model.jobs import RigidJob
from coalloc.model.sites.parts import Launch
from coalloc.wire.answers import (
    Event,
    NewestPlan,
    NodesAnswer,
    PlanAnswer,
    QueueAnswer,
    RunningRow,
    ServiceStatus,
    Why,
)
from coalloc.wire.client import RefusedError
from coalloc.wire.job_rows import JobDetails, QueueRow
from coalloc.wire.node_rows import ClusterRow, NodeRow
from coalloc.wire.share_answers import AccountRow

NOW = 1_790_000_000.0
HOUR = 3600.0


class Answers:
    """Stands for the daemon where one job is asked about; counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def show(self, job: str) -> JobDetails:
        self.asked.append(("show", job))
        if job == "404":
            raise RefusedError("not_found", "there is no job 404")
        return JobDetails(
            id=job,
            name="model",
            user="ann",
            procs=4,
            submitted=NOW,
            record=JobRecord(id=job, user="ann", job=RigidJob(id=job, procs=4, base_time=60.0)),
            launch=Launch(argv=("./secret", "input"), cwd="/home/ann", stdout="out-%j.txt"),
        )

    def why(self, job: str) -> Why:
        self.asked.append(("why", job))
        return Why(job=job, state="pending", reason="not_selected", detail="does not fit now")

    def events(self, *, job: str) -> Iterator[Event]:
        self.asked.append(("events", job))
        yield Event(seq=1, time=NOW, kind="job_submitted", job=job)

    def close(self) -> None:
        pass


class Served:
    """A dashboard that listens on a free port of loopback."""

    def __init__(self, settings: Settings, answers: Answers) -> None:
        self._ready = threading.Event()
        self.server = DashboardServer(
            settings, self._started, Questions(lambda: cast(Client, answers))
        )
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _started(self, post: object) -> None:
        self._ready.set()

    def _serve(self) -> None:
        asyncio.run(self.server.serve(on_signals=False))

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10.0)

    def stop(self) -> None:
        self.server.post(lambda known: self.server.stop())
        self._thread.join(10.0)
        assert not self._thread.is_alive()

    def change(self, change: Callable[[Known], object]) -> None:
        """Change the known, and return when that is done."""
        done = threading.Event()

        def made(known: Known) -> None:
            change(known)
            done.set()

        self.server.post(made)
        assert done.wait(30.0)

    def get(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        body: str = "",
    ) -> tuple[int, Mapping[str, str], bytes]:
        """One request; returns status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        try:
            connection.request(method, path, body or None, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        status, _, body = self.get(path)
        assert status == 200, body
        return json.loads(body)


@contextmanager
def served(settings: Settings | None = None, answers: Answers | None = None) -> Iterator[Served]:
    """A dashboard that asks no daemon."""
    running = Served(settings or Settings(host="127.0.0.1", port=0), answers or Answers())
    running.start()
    try:
        yield running
    finally:
        running.stop()


def fill(known: Known, *, now: float = NOW, name: str = "model") -> None:
    """A small site: a co-allocated job that runs, one that is planned, one that has ended."""
    running = QueueRow(
        id="2",
        name="wide",
        user="bob",
        state=JobState.RUNNING,
        procs=4,
        submitted=now - 250,
        started=now - 239,
        skew_ms=1.5,
        nodes={"a1": 2, "b1": 2},
        clusters=("alpha", "beta"),
    )
    waiting = QueueRow(
        id="3",
        name=name,
        user="ann",
        state=JobState.PENDING,
        procs=4,
        submitted=now - 100,
        start_estimate=now + 600,
        reason="planned",
    )
    known.take_queue(QueueAnswer(jobs=(running, waiting), time=now))
    known.take_accounts([ended_job("1", now=now, name=name)])
    known.take_nodes(nodes_of({"alpha": ["a1", "a2"], "beta": ["b1"]}, now))
    known.take_plan(
        PlanAnswer(
            plan=NewestPlan(round=7, time=now - 5, plan=plan_of(now)),
            node_clusters={"a1": "alpha", "a2": "alpha", "b1": "beta"},
            running=(
                RunningRow(job="2", start=now - 239, end=now + 600, nodes={"a1": 2, "b1": 2}),
                RunningRow(job="alpha.991", start=now - 50, end=now + 50, nodes={"a2": 1}),
            ),
            proc_gbps={"2": 0.1, "3": 0.1},
            time=now,
        )
    )
    known.take_status(status_of(now))


def plan_of(now: float) -> dict[str, Any]:
    """A plan in which job 3 starts when job 2 has ended."""
    place = {"job": "3", "start": now + 600, "end": now + 1200, "nodes": {"a1": 2, "b1": 2}}
    return {
        "format": "coalloc-plan/1",
        "policy": "auto",
        "status": "feasible",
        "objective": {"name": "weighted_completion", "value": 110.0, "bound": 100.0, "deferred": 0},
        "placements": [place],
        "deferred": [],
        "stats": {"elapsed_s": 0.25},
    }


def status_of(now: float, epoch: int = 1) -> ServiceStatus:
    return ServiceStatus(
        time=now, user="root", epoch=epoch, rounds=7, paused=False, waiting=1, placed=1, version="1"
    )


def nodes_of(clusters: Mapping[str, list[str]], now: float, slots: int = 2) -> NodesAnswer:
    return NodesAnswer(
        clusters=tuple(
            ClusterRow(
                cluster=cluster,
                stale=False,
                connected=True,
                drained=False,
                age_s=1.0,
                link_gbps=1.0,
                nodes=tuple(
                    NodeRow(
                        name=node,
                        state="up",
                        slots=slots,
                        free=1,
                        power=0.9,
                        raw_power=0.9,
                        load=0.1,
                    )
                    for node in nodes
                ),
            )
            for cluster, nodes in clusters.items()
        ),
        time=now,
    )


def ended_job(job: str, *, now: float = NOW, **fields: Any) -> AccountRow:
    """A job that has failed on one node."""
    given: dict[str, Any] = {
        "name": "model",
        "user": "ann",
        "project": "",
        "state": "failed",
        "submitted": now - 900,
        "eligible": now - 900,
        "started": now - 880,
        "ended": now - 300,
        "procs": 2,
        "requested_s": None,
        "proc_s": 1160.0,
        "clusters": {"alpha": 2},
        "nodes": {"a1": 2},
        "exit_code": 3,
        "detail": "exit 3",
    }
    return AccountRow(id=job, **{**given, **fields})


def fill_large(known: Known, *, ended: int, planned: int, now: float) -> None:
    """Many jobs on four clusters of forty nodes; every tenth is co-allocated."""
    draw = random.Random(7)
    names = {c: [f"{c}{i}" for i in range(1, 41)] for c in ("alpha", "beta", "gamma", "delta")}
    known.take_nodes(nodes_of(names, now, slots=4))
    free = {node: now - 400.0 * ended for nodes in names.values() for node in nodes}
    rows = []
    for i in range(ended):
        nodes = _drawn(draw, names)
        start = max(free[node] for node in nodes)
        end = start + draw.uniform(60.0, 4000.0)
        free.update(dict.fromkeys(nodes, end))
        rows.append((i, nodes, start, end))
    # the last of them ends now
    shift = now - 60.0 - max(end for _, _, _, end in rows)
    states = ("completed", "completed", "completed", "failed", "cancelled")
    jobs = []
    for i, nodes, start, end in rows:
        used = dict.fromkeys(nodes, draw.choice((1, 2, 4)))
        jobs.append(
            ended_job(
                str(i),
                name=f"job {i}",
                user=f"user{i % 50}",
                state=states[i % len(states)],
                procs=2 * len(nodes),
                submitted=start + shift - draw.expovariate(1 / 600.0),
                started=start + shift,
                ended=end + shift,
                nodes=used,
                clusters=dict.fromkeys(node.rstrip("0123456789") for node in nodes),
            )
        )
    jobs.sort(key=lambda row: row.ended)
    waiting, places = _planned(draw, names, ended, planned, now)
    known.take_queue(QueueAnswer(jobs=tuple(waiting), time=now))
    known.take_accounts(jobs)
    node_clusters = {node: cluster for cluster, nodes in names.items() for node in nodes}
    plan = {**plan_of(now), "placements": places}
    known.take_plan(
        PlanAnswer(
            plan=NewestPlan(round=7, time=now, plan=plan), node_clusters=node_clusters, time=now
        )
    )
    known.take_status(status_of(now))


def _planned(
    draw: random.Random, names: Mapping[str, list[str]], first: int, count: int, now: float
) -> tuple[list[QueueRow], list[dict[str, Any]]]:
    free = {node: now for nodes in names.values() for node in nodes}
    waiting, places = [], []
    for i in range(first, first + count):
        nodes = _drawn(draw, names)
        start = max(free[node] for node in nodes)
        end = start + draw.uniform(60.0, 4000.0)
        free.update(dict.fromkeys(nodes, end))
        places.append({"job": str(i), "start": start, "end": end, "nodes": dict.fromkeys(nodes, 4)})
        waiting.append(QueueRow(id=str(i), name=f"job {i}", user="ann", procs=4, submitted=now - i))
    return waiting, places


def _drawn(draw: random.Random, names: Mapping[str, list[str]]) -> list[str]:
    """Neighbours in one cluster, or in two."""
    clusters = draw.sample(sorted(names), 2 if draw.random() < 0.1 else 1)
    out: list[str] = []
    for cluster in clusters:
        width = draw.choice((1, 1, 2, 4, 8))
        first = draw.randrange(len(names[cluster]) - width)
        out += names[cluster][first : first + width]
    return out
