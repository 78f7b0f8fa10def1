"""A compressed month: the real cores on a real store, in virtual time, with crashes.

``python -m benchmarks.soak`` runs days of arrivals through the daemon's core, the journal, SQLite
and the executors' cores; every process crashes now and then and starts from what is on disk. It
prints memory, descriptors and the size of the store at the end of each day, and ends with an error
where one of them goes on growing. Launching is instant; planning is that of ``plain``.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import itertools
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from coalloc.core import executor as there
from coalloc.core.coordinator import Coordinator
from coalloc.core.effects import Drop, Effect, Greet, Resend, Send, Solve, Wake
from coalloc.core.events import Event, Requested, Solved, Stated, Ticked
from coalloc.core.messages import Numbered, PartReport, Read, Statement, Welcome
from coalloc.core.records import Launch, PartState
from coalloc.core.requests import Submit
from coalloc.core.settings import ClusterSettings, Settings, Trigger
from coalloc.daemon.delivery import Delivery
from coalloc.daemon.journal import recall, writes_of
from coalloc.daemon.store import SqliteStore
from coalloc.model.reading import ClusterReading, NodeReading
from coalloc.policies.plain import plain_fcfs

DAY_S = 86_400.0
READ_EVERY_S = 60.0
PRUNE_EVERY_S = 300.0
NODES = {"alpha": 16, "beta": 16}
SIZES = (1, 1, 2, 4, 8, 20)
MEAN_RUN_S = 600.0
GROWTH = 0.10
"""What memory and store may still grow from half-time to the end."""


class Soak:
    """Daemon, executors and users; time jumps from event to event."""

    def __init__(self, path: Path, *, jobs_a_day: int, keep_events: int, seed: int) -> None:
        self.path, self.jobs_a_day, self.keep_events = path, jobs_a_day, keep_events
        self.dice = random.Random(seed)
        self.now = 0.0
        self.submitted = self.crashes = 0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._progress = {name: there.ExecutorState(cluster=name) for name in NODES}
        self._runs: dict[tuple[str, there.Key], PartReport] = {}
        self._settings = Settings(
            clusters=tuple(ClusterSettings(name=name, link_gbps=10.0) for name in NODES),
            triggers=(Trigger(kind="queue_length"), Trigger(kind="job_finished")),
            min_interval_s=0.0,
            keep_ended=200,
        )
        self.executors: dict[str, there.ExecutorCore] = {}
        self._start_daemon()
        for name in NODES:
            self._start_executor(name)
        self._every(READ_EVERY_S, self._read)
        self._every(PRUNE_EVERY_S, lambda: self.store.prune(self.keep_events))
        self._every(DAY_S / jobs_a_day, self._submit)
        self._every(DAY_S / 6.0, self._crash)

    def run_until(self, end: float) -> None:
        """Carry out what is due until then, seconds."""
        while self._agenda and self._agenda[0][0] <= end:
            self.now, _, call = heapq.heappop(self._agenda)
            call()

    def _at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (when, next(self._order), call))

    def _every(self, period: float, call: Callable[[], Any]) -> None:
        def again() -> None:
            call()
            self._at(self.now + period * self.dice.uniform(0.5, 1.5), again)

        self._at(self.now + period, again)

    def _start_daemon(self) -> None:
        self.store = SqliteStore(self.path)
        memory = recall(self.store, self._settings.keep_ended)
        self.core = Coordinator(self._settings, memory.remembered)
        state = self.core.state
        launch = Launch(argv=("true",))
        self.delivery = Delivery(self._deliver, lambda _: launch, epoch=state.epoch)
        self.delivery.restore(memory.outbox)

    def _start_executor(self, name: str) -> None:
        kept = self._progress[name]
        state = there.ExecutorState(
            cluster=name, store=kept.store, epoch=kept.epoch, last_seq=kept.last_seq
        )
        state.parts = {key: part for (at, key), part in self._runs.items() if at == name}
        self.executors[name] = there.ExecutorCore(state)
        self._obey(name, self.executors[name].hello(self.now))

    def _crash(self) -> None:
        """One of them ends in mid-air, and starts from its disk."""
        self.crashes += 1
        victim = self.dice.choice(["daemon", *NODES])
        if victim != "daemon":
            self._start_executor(victim)
            return
        self.store.close()
        self._start_daemon()
        for name, core in self.executors.items():
            self._obey(name, core.hello(self.now))

    def _submit(self) -> None:
        self.submitted += 1
        procs = self.dice.choice(SIZES)
        job = {"kind": "rigid", "procs": procs, "base_time": 600.0, "proc_gbps": 0.01}
        command = Submit(
            token=f"t{self.submitted}", job=job, launch=Launch(argv=("true",)), name="soak"
        )
        self._offer(Requested(origin="", user="ann", uid=1, gid=1, operator=True, command=command))

    def _read(self) -> None:
        for name, size in NODES.items():
            nodes = tuple(NodeReading(name=f"{name}{n}") for n in range(1, size + 1))
            reading = ClusterReading(cluster=name, nodes=nodes)
            self._offer(Stated(statement=Read(cluster=name, reading=reading, at=self.now)))
        self._offer(Ticked())

    def _offer(self, event: Event) -> None:
        effects = self.core.handle(event, self.now)
        writes = writes_of(effects, self.now)
        if writes:
            self.store.commit(writes)
        for effect in effects:
            self._speak(effect)

    def _speak(self, effect: Effect) -> None:
        match effect:
            case Send(cluster=cluster, seq=seq, order=order):
                self.delivery.add(cluster, seq, order)
            case Drop(cluster=cluster, through_seq=seq):
                self.delivery.done(cluster, seq)
            case Resend(cluster=cluster, from_seq=seq):
                self.delivery.replay(cluster, seq)
            case Greet(cluster=cluster, base_seq=base):
                state = self.core.state
                welcome = Welcome(
                    store=state.store, epoch=state.epoch, base_seq=base, lease_s=600.0
                )
                self._deliver(cluster, welcome)
            case Solve(round=number, snapshot=snapshot):
                answer = Solved(round=number, plan=plain_fcfs(snapshot), solve_s=0.0)
                self._soon(lambda: self._offer(answer))
            case Wake(at=at):
                self._at(max(at, self.now), lambda: self._offer(Ticked()))
            case _:
                pass

    def _soon(self, call: Callable[[], None]) -> None:
        self._at(self.now, call)

    def _deliver(self, cluster: str, message: Numbered | Welcome) -> bool:
        self._soon(
            lambda: self._obey(
                cluster, self.executors[cluster].handle(there.Heard(message=message), self.now)
            )
        )
        return True

    def _obey(self, cluster: str, effects: list[there.ExecutorEffect]) -> None:
        for effect in effects:
            match effect:
                case there.ClaimPart(order=order):
                    key = (order.job, order.attempt, order.part)
                    self._soon(lambda key=key: self._news(cluster, key, PartState.READY))  # type: ignore[misc]
                case there.StartPart(key=key):
                    self._news(cluster, key, PartState.RUNNING)
                    end = self.now + self.dice.expovariate(1.0 / MEAN_RUN_S)
                    self._at(end, lambda key=key: self._news(cluster, key, PartState.FINISHED))  # type: ignore[misc]
                case there.EndPart(key=key):
                    self._news(cluster, key, PartState.REFUSED)
                case there.RemovePart(key=key):
                    self._runs.pop((cluster, key), None)
                case there.SaveProgress(store=store, epoch=epoch, last_seq=last):
                    self._progress[cluster] = there.ExecutorState(
                        cluster=cluster, store=store, epoch=epoch, last_seq=last
                    )
                case there.Say(statement=statement):
                    self._soon(lambda said=statement: self._hear(said))  # type: ignore[misc]
                case _:
                    pass

    def _hear(self, statement: Statement) -> None:
        self._offer(Stated(statement=statement))

    def _news(self, cluster: str, key: there.Key, state: PartState) -> None:
        before = self._runs.get((cluster, key))
        if before is not None and before.state in {PartState.FINISHED, PartState.REFUSED}:
            return
        if state is PartState.READY and before is not None:
            return
        job, attempt, part = key
        started = before.started if before is not None and before.started else None
        report = PartReport(
            job=job,
            attempt=attempt,
            part=part,
            state=state,
            exit_code=0 if state is PartState.FINISHED else None,
            started=self.now if state is PartState.RUNNING else started,
            ended=self.now if state is PartState.FINISHED else None,
            reason="exited" if state is PartState.FINISHED else "",
        )
        self._runs[cluster, key] = report
        self._obey(cluster, self.executors[cluster].handle(there.PartNews(report=report), self.now))


def main() -> int:
    """Print a row a day; returns 1 where something goes on growing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=600, help="submits a day")
    parser.add_argument("--keep-events", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    process = psutil.Process()
    rows: list[tuple[float, int, float]] = []
    print("day submitted crashes waiting events  rss_MB fds store_MB cpu_s")
    with tempfile.TemporaryDirectory(prefix="co-") as folder:
        path = Path(folder) / "coalloc.db"
        soak = Soak(path, jobs_a_day=args.jobs, keep_events=args.keep_events, seed=args.seed)
        for day in range(1, args.days + 1):
            soak.run_until(day * DAY_S)
            gc.collect()
            rss = process.memory_info().rss / 1e6
            size = sum(os.path.getsize(file) for file in Path(folder).iterdir()) / 1e6
            rows.append((rss, process.num_fds(), size))
            kept = len(soak.store.events(0, 1_000_000))
            print(
                f"{day:3} {soak.submitted:9} {soak.crashes:7} {len(soak.core.state.waiting):7}"
                f" {kept:6} {rss:7.1f} {rows[-1][1]:3} {size:8.1f} {time.process_time():5.0f}",
                flush=True,
            )
        soak.store.close()
    half, last = rows[len(rows) // 2], rows[-1]
    grows = [
        name
        for name, then, now in zip(("memory", "descriptors", "store"), half, last, strict=True)
        if now > then * (1.0 + GROWTH)
    ]
    print(f"grows: {', '.join(grows) or 'nothing'}")
    return 1 if grows else 0


if __name__ == "__main__":
    sys.exit(main())
