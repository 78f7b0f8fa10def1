"""Whether a change of the code leaves all plans as they are, bit for bit.

`python -m tests.plan_digests before.json [POLICY ...]` writes a digest of what each policy answers
in each case: its plan and incumbents, by a limit of work, and stopped after some polls. Where the
file is there already, it names what differs. The programs take minutes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from coalloc.model.errors import InputError
from coalloc.model.formats.plan_json import write_plan
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.options import options_of, read_options
from coalloc.policies.registry import POLICIES
from tests.contract.test_policies import CLUSTERS, EMPTY, MIXED

RIGID = [
    {
        "id": f"r{n}",
        "kind": "rigid",
        "procs": 1 + n * 5 % 7,
        "base_time": 5.0 + 3 * (n * 7 % 5),
        "proc_gbps": 0.02 * (n % 3),
        "weight": 1.0 + n % 4,
    }
    for n in range(16)
]
MOLDABLE = [
    {
        "id": f"m{n}",
        "kind": "moldable",
        "times": [20.0 + n, 11.0 + n, 8.0, 7.0 - n / 9],
        "weight": n,
    }
    for n in range(10)
]
FLOW = {
    "id": "w",
    "kind": "workflow",
    "tasks": [
        {"id": f"t{n}", "work": 10.0 + n % 4, "parallel_fraction": 0.9, "max_procs": 4}
        for n in range(9)
    ],
    "edges": [{"from": f"t{n // 2}", "to": f"t{n}", "gb": 0.5} for n in range(1, 9)],
}
ONE = [{"name": "a", "nodes": [{"name": "a[1-8]"}]}]
CHUNKS = {"id": "d", "kind": "divisible", "work": 50.0, "chunk_s": 4.0}
# Work that runs and reservations, which close some nodes for a while.
BUSY = {
    "clusters": [{"name": "a", "nodes": [{"name": "a[1-9]"}]}],
    "running": [
        {"id": "x", "nodes": {"a1": 1, "a2": 1}, "start": -3.0, "end": 9.0},
        {"id": "y", "nodes": {"a3": 1}, "start": -1.0, "end": 25.0},
    ],
    "reservations": [{"id": "r", "nodes": ["a[4-6]"], "start": 14.0, "end": 31.0}],
}
CASES: dict[str, Any] = {
    "mixed": MIXED,
    "rigid": {**EMPTY, "clusters": CLUSTERS, "queue": RIGID},
    "few": {**EMPTY, "clusters": ONE, "queue": RIGID[:6], "time": 1_795_300_000.123},
    "moldable": {**EMPTY, "clusters": ONE, "queue": MOLDABLE},
    "flow": {**EMPTY, "clusters": CLUSTERS, "queue": [FLOW, *RIGID[:3]]},
    "chunks": {**EMPTY, "clusters": CLUSTERS, "queue": [*RIGID[:5], CHUNKS]},
    "busy": {**EMPTY, **BUSY, "queue": RIGID},
    "pool": {
        **EMPTY,
        **BUSY,
        "queue": [{**job, "earliest": 4.0 * (n % 4)} for n, job in enumerate(MOLDABLE)],
    },
    "flows": {
        **EMPTY,
        "clusters": CLUSTERS,
        "queue": [FLOW, {**FLOW, "id": "v", "earliest": 20.0, "weight": 5.0}, *MOLDABLE[:3]],
        "running": [{"id": "x", "nodes": {"a1": 1, "b2": 1}, "start": 0.0, "end": 17.0}],
    },
}
OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    "weighted": {"objective": "weighted_completion"},
    "both": {"objective": "makespan_then_weighted_completion"},
    "program": {"engine": "mip"},
}


def _after(polls: int) -> Callable[[], bool]:
    """False so many times."""
    calls = count()
    return lambda: next(calls) >= polls


def answers(name: str, snapshot: Snapshot, options: dict[str, Any]) -> Iterator[list[Plan]]:
    """Incumbents and plan of calls that end by their work, and by polls of `stop`."""
    policy = POLICIES[name]
    budgets = [Budget(seed=7, work=work) for work in (60, 700)]
    budgets += [Budget(seed=7, work=700, stop=_after(polls)) for polls in (0, 4)]
    budgets.append(Budget(seed=7, work=800, live=True, previous=("r3", "m2", "r1")))
    for budget in budgets:
        seen: list[Plan] = []
        plan = policy.solve(snapshot, read_options(options, policy.options), budget, seen.append)
        yield [*seen, plan]


def digests(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name of a case, and the digest of its answers."""
    for case, body in CASES.items():
        snapshot = read_snapshot(body)
        for name in names:
            for label, options in OPTIONS.items():
                if not options.keys() <= options_of(POLICIES[name].options).keys():
                    continue
                try:
                    read_options(options, POLICIES[name].options)
                except InputError:
                    continue
                for number, plans in enumerate(answers(name, snapshot, options)):
                    key = " ".join((case, name, label, str(number)))
                    yield key, _digest(plans[-1:])
                    yield f"{key} incumbents", _digest(plans[:-1])


def _digest(plans: Sequence[Plan]) -> str:
    text = json.dumps([write_plan(plan) for plan in plans])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main(argv: Sequence[str]) -> int:
    """Write or compare."""
    path = Path(argv[0])
    found = dict(digests(argv[1:] or list(POLICIES)))
    if not path.exists():
        path.write_text(json.dumps(found, indent=1))
        return 0
    known = json.loads(path.read_text())
    other = [key for key in found.keys() | known.keys() if found.get(key) != known.get(key)]
    print("\n".join(sorted(other)) or f"{len(found)} answers are the same")
    return int(bool(other))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
