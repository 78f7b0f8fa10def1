"""EASY on one cluster of equal slots in forty lines that share nothing with the kernels."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Job:
    """A rigid job of a log; seconds."""

    submit: float
    procs: int
    estimate: float
    run: float


Key = Callable[[Job, float], float]
"""Of a job, and how long it has waited; smaller ones first, ties by arrival."""


def starts(
    jobs: list[Job], slots: int, queue: Key, backfill: Key, wait_limit: float = math.inf
) -> list[float]:
    """Start of each job; jobs by rising submit time, all of them narrow enough."""
    start = [math.nan] * len(jobs)
    waiting: list[int] = []
    running: list[tuple[float, float, int]] = []  # real end, estimated end, processes
    arrived = 0

    def begin(n: int, now: float) -> None:
        job = jobs[n]
        start[n] = now
        running.append((now + min(job.run, job.estimate), now + job.estimate, job.procs))
        waiting.remove(n)

    def ordered(key: Key, now: float) -> list[int]:
        late = {n for n in waiting if now - jobs[n].submit >= wait_limit}
        return sorted(
            waiting,
            key=lambda n: (-math.inf if n in late else key(jobs[n], now - jobs[n].submit), n),
        )

    def fits(procs: int, at: float) -> bool:
        """Whether so many slots stay free; the running jobs only ever give back."""
        return procs <= slots - sum(p for _, planned, p in running if planned > at)

    while arrived < len(jobs) or running:
        times = [end for end, _, _ in running]
        if arrived < len(jobs):
            times.append(jobs[arrived].submit)
        now = min(times)
        running = [entry for entry in running if entry[0] > now]
        while arrived < len(jobs) and jobs[arrived].submit <= now:
            waiting.append(arrived)
            arrived += 1

        head = -1
        for n in ordered(queue, now):
            if not fits(jobs[n].procs, now):
                head = n
                break
            begin(n, now)
        if head < 0:
            continue
        ends = sorted(planned for _, planned, _ in running)
        shadow = next(t for t in ends if fits(jobs[head].procs, t))
        for n in ordered(backfill, now):
            job = jobs[n]
            beside = fits(job.procs + jobs[head].procs, shadow)
            if n != head and fits(job.procs, now) and (now + job.estimate <= shadow or beside):
                begin(n, now)
    return start
