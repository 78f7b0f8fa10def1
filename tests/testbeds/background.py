"""A local user who knows nothing of us, and always has jobs waiting in every cluster."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Sequence
from datetime import datetime
from pwd import struct_passwd
from types import TracebackType

from coalloc.adapters.runner.command import UnreachableError
from tests.testbeds.slurm import Cluster, SlurmTestbed


class BackgroundUser:
    """Keeps so many jobs waiting in each cluster while it is entered.

    Parameters
    ----------
    account : struct_passwd
        Whose jobs they are.
    waiting : int
        Jobs that wait in each cluster after each look.
    every_s : float
        Between two looks, seconds: at most `waiting` jobs are submitted to a cluster in that time.
    widths : sequence of int
        Nodes of a job, drawn from these.
    run_s : (float, float)
        Shortest and longest run time, seconds.
    options : sequence of str
        Of ``sbatch``.
    """

    def __init__(
        self,
        bed: SlurmTestbed,
        account: struct_passwd,
        *,
        waiting: int = 3,
        every_s: float = 0.5,
        widths: Sequence[int] = (1, 1, 2),
        run_s: tuple[float, float] = (1.0, 3.0),
        options: Sequence[str] = ("--exclusive",),
        seed: int = 1,
    ) -> None:
        self.bed, self.account = bed, account
        self._waiting, self._every_s, self._widths = waiting, every_s, widths
        self._run_s, self._options = run_s, options
        self._draw = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="background user")
        self._error: BaseException | None = None
        self.submitted = 0

    def __enter__(self) -> BackgroundUser:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        for cluster in self.bed:
            cluster.run("scancel", f"--user={self.account.pw_name}")
        if self._error is not None and error is None:
            raise self._error

    def waits(self, cluster: Cluster) -> list[float]:
        """How long each of the jobs that have started had waited, in whole seconds.

        Slurm forgets a job after ``MinJobAge``.
        """
        form = ("-o", "%T|%V|%S")
        rows = cluster.run("squeue", "-h", "-t", "all", "-u", self.account.pw_name, *form)
        found = []
        for state, submitted, started in (row.split("|") for row in rows.splitlines()):
            if state in {"RUNNING", "COMPLETING", "COMPLETED"}:
                times = (datetime.fromisoformat(text) for text in (started, submitted))
                found.append((next(times) - next(times)).total_seconds())
        return found

    def _work(self) -> None:
        try:
            while not self._over.wait(self._every_s):
                with contextlib.suppress(UnreachableError):  # a test has killed its slurmctld
                    self._look()
        except BaseException as error:
            self._error = error

    def _look(self) -> None:
        for cluster in self.bed:
            words = ("squeue", "-h", "-t", "PD", "-u", self.account.pw_name, "-o", "%i")
            for _ in range(self._waiting - len(cluster.run(*words).split())):
                self._submit(cluster)

    def _submit(self, cluster: Cluster) -> None:
        width = min(self._draw.choice(self._widths), cluster.shape.nodes)
        seconds = self._draw.uniform(*self._run_s)
        cluster.run(
            *("sbatch", "-N", str(width), "-t", "3", "-o", "/dev/null", "-J", "local"),
            *self._options,
            *("--wrap", f"sleep {seconds:.2f}"),
            account=self.account,
        )
        self.submitted += 1
