"""Loads on a real site whose outcome can be counted: every job leaves one line when it runs."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence

from coalloc.wire.client import NoAnswerError, RequestConnection
from tests.support.live_site import ENDED, Running

HONEST = frozenset({"part_missing", "lost"})
"""Ends of a job whose executor died between the decision to start and the start of a part."""


class Load(threading.Thread):
    """Submits without pause; a submit without an answer is sent again with its token.

    Parameters
    ----------
    sizes : sequence of int
        Processes of the jobs, in turn.
    pause_s : float
        Between two submits.

    Attributes
    ----------
    acknowledged : dict
        Token to job.
    waits : list of float
        Seconds that the answers took.
    """

    def __init__(
        self,
        site: Running,
        *,
        sizes: Sequence[int] = (1, 6, 2),
        pause_s: float = 0.0,
        endpoint: str = "",
        timeout_s: float = 1.0,
    ) -> None:
        super().__init__(daemon=True)
        self.site, self.sizes, self.pause_s = site, sizes, pause_s
        self.endpoint, self.timeout_s = endpoint or site.endpoint, timeout_s
        self.acknowledged: dict[str, str] = {}
        self.waits: list[float] = []
        self.broken = ""
        self._enough = threading.Event()
        self._progress = threading.Condition()

    def run(self) -> None:
        asker = RequestConnection(self.endpoint, timeout_s=self.timeout_s)
        number = 0
        while not self._enough.is_set():
            token = uuid.uuid4().hex
            size = self.sizes[number % len(self.sizes)]
            script = f'[ "$COALLOC_RANK" != 0 ] || echo {token} >> {self.site.work}/ran'
            body = self.site.submission(["sh", "-c", script], size, token=token)
            began = time.monotonic()
            while True:
                try:
                    answer = asker.ask({"type": "submit", **body})
                    break
                except NoAnswerError:
                    asker.close()
                    asker = RequestConnection(self.endpoint, timeout_s=self.timeout_s)
            with self._progress:
                self.waits.append(time.monotonic() - began)
                if answer["type"] != "done":
                    self.broken = str(answer)
                    self._progress.notify_all()
                    break
                self.acknowledged[token] = answer["job"]
                self._progress.notify_all()
            number += 1
            self._enough.wait(self.pause_s)
        asker.close()

    def await_more(self, count: int, limit_s: float = 120.0) -> None:
        """Until so many more submits were acknowledged."""
        with self._progress:
            wanted = len(self.acknowledged) + count
            reached = self._progress.wait_for(
                lambda: bool(self.broken) or len(self.acknowledged) >= wanted, limit_s
            )
        assert reached, f"no {count} submits within {limit_s:g} s"
        assert not self.broken, self.broken

    def end(self) -> None:
        """Submit no more."""
        self._enough.set()
        self.join(120.0)
        assert not self.is_alive()

    def settle(self, *, may_fail: bool, limit_s: float = 120.0) -> Counter[str]:
        """Wait for the end of every job, and check that none is lost and none ran twice.

        Returns
        -------
        Counter
            Jobs by their end.
        """
        jobs = self.acknowledged
        assert len(set(jobs.values())) == len(jobs), "every token has its own job"
        site = self.site
        site.until(lambda: all_ended(site, list(jobs.values())), limit_s)
        file = site.work / "ran"
        ran = Counter(file.read_text().split()) if file.exists() else Counter[str]()
        assert {token: count for token, count in ran.items() if count > 1} == {}, "started twice"
        ends: Counter[str] = Counter()
        for token, job in jobs.items():
            details = site.job(job)
            ends[details["state"]] += 1
            if details["state"] == "completed":
                assert ran[token] == 1, f"job {job} is completed, and did not run"
            else:
                assert may_fail, details
                assert details["reason"] in HONEST, details
        return ends


def kill_in_between(site: Running, kills: int, total: int, done: Callable[[], int]) -> None:
    """Kill the daemon so often while work is done, every second time alpha's executor with it."""
    for kill in range(1, kills + 1):
        wanted = total * kill // (kills + 1)
        site.until(lambda wanted=wanted: done() >= wanted, 300.0)  # type: ignore[misc]
        site.kill("coallocd")
        if kill % 2 == 0:
            site.kill("alpha")
            site.start_executor("alpha")
        site.start_daemon()


def all_ended(site: Running, jobs: Sequence[str]) -> bool:
    """None of the jobs is active; one that is not shown any more ended long ago."""
    rows = {row["id"]: row["state"] for row in site.ask("queue", all=True)["jobs"]}
    return all(rows.get(job, "completed") in ENDED for job in jobs)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
