"""One call to plan a snapshot, and one to judge a plan: for research, without a daemon."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any

from coalloc.chains import Search, chained
from coalloc.model.errors import InputError
from coalloc.model.formats import snapshot_json
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import OnIncumbent, never
from coalloc.policies.checking.check import CheckResult
from coalloc.policies.checking.check import check as check_plan
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from coalloc.policies.warming import warm_off_line


def read_snapshot(source: str | PathLike[str] | Mapping[str, Any] | Snapshot) -> Snapshot:
    """A snapshot from a file, from what its JSON decodes to (docs/FORMATS.md), or checked again.

    Raises
    ------
    coalloc.model.errors.InputError
        With the path and the reason of the first thing that is wrong.
    OSError
    """
    if isinstance(source, Snapshot):
        source = snapshot_json.write_snapshot(source)
    elif not isinstance(source, Mapping):
        source = json.loads(Path(source).read_bytes())
    return snapshot_json.read_snapshot(source)


def solve(
    snapshot: Snapshot,
    policy: str = "auto",
    *,
    time_limit: float | None = None,
    work: int | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    on_incumbent: OnIncumbent | None = None,
    stop: Callable[[], bool] = never,
    chains: int = 1,
) -> Plan:
    """Plan a snapshot.

    Parameters
    ----------
    policy : str
        One of those that ``coalloc policies`` lists.
    time_limit : float, optional
        Seconds, then the best plan so far; compiling, once for each policy, is not counted.
    work, seed : int, optional
        A limit in counts of the policy instead: with the same work and seed, the same plan.
    options : mapping, optional
        By name; the others keep their defaults.
    on_incumbent : callable, optional
        Gets each better plan while the search goes on.
    stop : callable, optional
        Asked again and again; once it returns true, the best plan so far is the answer.
    chains : int, optional
        Searches beside each other, each with a seed and all the work of its own: the best plan and
        the best bound of all. The first is this process's, and tells incumbents. The others are
        processes, for which a script has its calls behind ``if __name__ == "__main__":``.

    Returns
    -------
    Plan
        Its objective has the value and, where one was proved, the bound; `stats` has the seconds.

    Raises
    ------
    coalloc.model.errors.InputError
        There is no such policy, or an option is wrong.
    """
    row = lookup(policy)
    complete = read_options(options or {}, row.options)
    warm_off_line(row, snapshot, complete)
    began = time.monotonic()
    deadline = inf if time_limit is None else began + time_limit
    search = Search(row.name, snapshot, complete, work, deadline)
    if chains < 1:
        raise InputError("chains", f"at least 1 is needed, not {chains}")
    if chains == 1:
        plan = search.run(seed, stop, on_incumbent)
    else:
        plan = chained(search, seed, chains, stop, on_incumbent)
    return replace(plan, stats={**plan.stats, "elapsed_s": time.monotonic() - began})


def check(snapshot: Snapshot, plan: Plan) -> CheckResult:
    """Judge a plan by code that it shares with no policy: `violations`, `metrics`, `ok`."""
    return check_plan(snapshot, plan)
