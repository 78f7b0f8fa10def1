"""CBC as a child process that can be stopped.

PuLP's own call waits for CBC whatever happens; CBC was seen to run 184 s on a limit of 60 s. Here
PuLP writes the model and reads the answer, and the child in between is asked to end by an interrupt
and killed if it does not.
"""

from __future__ import annotations

import ctypes
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulp

POLL_S = 0.05
PATIENCE = 40
"""Polls between the interrupt, after which CBC writes its best solution, and the kill."""
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

_BOUND = re.compile(r"^Lower bound:\s+(\S+)", re.MULTILINE)
_NODES = re.compile(r"^Enumerated nodes:\s+(\d+)", re.MULTILINE)


class Cbc(pulp.PULP_CBC_CMD):  # type: ignore[misc]
    """PuLP's CBC with a stop condition.

    Parameters
    ----------
    warm : bool
        Begin with the values of the variables.
    stop : callable
        Polled; true ends the search.
    seconds : float or None
    nodes, solutions : int or None
        Limits of the tree's nodes and of the solutions found.

    Attributes
    ----------
    bound : float or None
        Lower bound that CBC reported; the value if the optimum is proved.
    nodes : int
    stopped : bool
        By the stop condition.
    """

    def __init__(
        self,
        *,
        warm: bool,
        stop: Callable[[], bool],
        seconds: float | None,
        nodes: int | None,
        solutions: int | None,
    ) -> None:
        super().__init__(
            msg=False,
            warmStart=warm,
            timeLimit=seconds,
            maxNodes=nodes,
            gapRel=0.0,
            gapAbs=0.0,
            threads=None,
            options=[] if solutions is None else [f"maxSolutions {solutions}"],
        )
        self._stop = stop
        self.bound: float | None = None
        self.nodes = 0
        self.stopped = False

    def solve_CBC(self, lp: Any, use_mps: bool = True) -> int:  # noqa: N802
        with tempfile.TemporaryDirectory(prefix="coalloc-cbc-") as name:
            return self._solve_in(Path(name), lp)

    def _solve_in(self, folder: Path, lp: Any) -> int:
        mps, solution, first = (str(folder / f"model.{kind}") for kind in ("mps", "sol", "mst"))
        variables, names, rows, _ = lp.writeMPS(mps, rename=1)
        words = [self.path, mps]
        if self.optionsDict.get("warmStart"):
            self.writesol(first, lp, variables, names, rows)
            words += ["-mips", first]
        if self.timeLimit is not None:
            words += ["-sec", str(self.timeLimit)]
        for option in [*self.options, *self.getOptions()]:
            words += f"-{option}".split()
        words += ["-solve", "-printingOptions", "all", "-solution", solution]
        log = folder / "log"
        self._wait(words, log)
        told = log.read_text(errors="replace")
        self.nodes = int(_last(_NODES, told) or 0)
        if not Path(solution).exists():
            lp.assignStatus(pulp.LpStatusNotSolved, pulp.LpSolutionNoSolutionFound)
            return int(pulp.LpStatusNotSolved)
        status, values, _, _, _, state = self.readsol_MPS(solution, lp, variables, names, rows)
        lp.assignVarsVals(values)
        lp.assignStatus(status, state)
        bound = _last(_BOUND, told)
        if state == pulp.LpSolutionOptimal:
            self.bound = pulp.value(lp.objective)
        elif bound is not None:
            self.bound = float(bound)
        return int(status)

    def _wait(self, words: list[str], log: Path) -> None:
        with log.open("wb") as output:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,
            )
            asked = 0
            try:
                while True:
                    try:
                        child.wait(POLL_S)
                        return
                    except subprocess.TimeoutExpired:
                        pass
                    if asked or self._stop():
                        if asked == 0:
                            self.stopped = True
                            child.send_signal(signal.SIGINT)
                        asked += 1
                    if asked > PATIENCE:
                        return
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()


def _die_with_parent() -> None:
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.findall(text)
    return found[-1] if found else None
