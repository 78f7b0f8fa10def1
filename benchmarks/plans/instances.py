"""Our plans of the instance library beside the best that are known.

    python -m benchmarks instances [--only split-30] [--work N] [--seeds 2] [--keep]
    python -m benchmarks instances --write FOLDER

Each instance is planned by the policies that plan its family, within a limit of work, for the
makespan; `instances.check` judges every plan. With ``--keep`` better plans and bounds become the
best known. ``--write`` puts instances and best known plans into files.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.instances.check import elementary_bound, faults, makespan
from benchmarks.instances.families import instance, names
from coalloc.model.errors import InputError
from coalloc.model.formats.plan_json import write_plan
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup

FOLDER = Path(__file__).parent.parent / "instances"
TABLE, PLANS = FOLDER / "best.csv", FOLDER / "plans.jsonl.gz"
COLUMNS = ("instance", "sha256", "makespan", "bound", "proof", "policy")
POLICIES: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "split": (("oas", {}),),
    "moldable": (("oas", {}), ("bicriteria", {"objective": "makespan", "prefer": "cmax"})),
    "divisible": (("auto", {"objective": "makespan"}),),
    "counted": (("auto", {"objective": "makespan"}),),
}
EQUAL = 1e-9
WORK = 1_000_000


@dataclass(frozen=True, slots=True)
class Best:
    """A makespan that a plan reaches, and a bound on all, seconds."""

    makespan: float
    bound: float
    policy: str
    plan: dict[str, Any]

    def better(self, other: Best) -> Best:
        """The better plan and the better bound of both."""
        bound = max(self.bound, other.bound)
        first = self if self.makespan <= other.makespan * (1.0 + EQUAL) else other
        return replace(first, bound=bound)

    @property
    def is_proved(self) -> bool:
        """Nothing is shorter."""
        return self.makespan <= self.bound * (1.0 + EQUAL)


def solved(name: str, work: int, seeds: int) -> Best:
    """The best of all policies and seeds for an instance."""
    body = instance(name)
    snapshot = read_snapshot(body)
    found: list[Best] = []
    for policy, given in POLICIES[name.partition("-")[0]]:
        entry = lookup(policy)
        for seed in range(seeds):
            options = read_options(given, entry.options)
            plan = entry.solve(snapshot, options, Budget(work=work, seed=seed), None)
            text = write_plan(plan)
            wrong = [*faults(body, text), *map(str, check(snapshot, plan).violations)]
            if wrong:
                raise InputError(f"{name}, {policy}", wrong[0])
            bound = max(plan.objective.bound or 0.0, elementary_bound(body))
            kept = {key: text[key] for key in ("format", "policy", "status", "objective")}
            kept["placements"] = text["placements"]
            found.append(Best(makespan(text), min(bound, makespan(text)), policy, kept))
    best = found[0]
    for each in found[1:]:
        best = best.better(each)
    return best


def digest(name: str) -> str:
    """Of an instance as it is written."""
    return hashlib.sha256(text_of(instance(name)).encode()).hexdigest()


def text_of(body: dict[str, Any]) -> str:
    """An instance or a plan as it is written to a file."""
    return json.dumps(body, separators=(",", ":"), sort_keys=True) + "\n"


def known() -> dict[str, Best]:
    """The best known so far."""
    if not TABLE.exists():
        return {}
    with gzip.open(PLANS, "rt", encoding="utf-8") as lines:
        plans = {row["instance"]: row["plan"] for row in map(json.loads, lines)}
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {
            row["instance"]: Best(
                float(row["makespan"]), float(row["bound"]), row["policy"], plans[row["instance"]]
            )
            for row in csv.DictReader(file)
        }


def keep(best: dict[str, Best]) -> None:
    """Make these the best known."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for name, each in best.items():
            by_hand = elementary_bound(instance(name))
            proof = "elementary" if each.bound <= by_hand * (1.0 + EQUAL) else "search"
            figures = (repr(each.makespan), repr(each.bound))
            rows.writerow((name, digest(name), *figures, proof, each.policy))
    rows_of_plans = (text_of({"instance": n, "plan": each.plan}) for n, each in best.items())
    # No time and no name within: the same plans are the same file.
    with PLANS.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
        packed.writelines(row.encode() for row in rows_of_plans)


def report(found: Iterable[tuple[str, Best]], best: dict[str, Best]) -> None:
    """Print each, and a line for each family and size."""
    groups: dict[str, list[tuple[float, Best]]] = defaultdict(list)
    for name, each in found:
        before = best.get(name, each)
        more = each.makespan / before.makespan - 1.0
        mark = "proved" if each.is_proved else f"gap {each.makespan / each.bound - 1.0:.2%}"
        print(f"{name:18} {each.makespan:12.3f}  best known {more:+.2%}  {mark}", flush=True)
        groups[name.rpartition("-")[0]].append((more, each))
    print("| instances | proved | mean gap to our bound | worse than best known | better | mean |")
    print("|---|---|---|---|---|---|")
    for group, rows in groups.items():
        worse, better = (sum(more * sign > EQUAL for more, _ in rows) for sign in (1, -1))
        gap = sum(each.makespan / each.bound - 1.0 for _, each in rows) / len(rows)
        mean = sum(more for more, _ in rows) / len(rows)
        proved = sum(each.is_proved for _, each in rows)
        print(
            f"| {group} ({len(rows)}) | {proved} | {gap:.2%} | {worse} | {better} | {mean:+.2%} |"
        )


def write(folder: Path, chosen: list[str], best: dict[str, Best]) -> None:
    """Write instances, and the best known plans beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        (folder / f"{name}.json").write_text(text_of(instance(name)), encoding="utf-8")
        if name in best:
            (folder / f"{name}.plan.json").write_text(text_of(best[name].plan), encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks instances", description=__doc__)
    parser.add_argument("--only", default="", help="instances whose names begin with this")
    parser.add_argument("--work", type=int, default=WORK)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    given = parser.parse_args(argv)
    chosen, best = [name for name in names() if name.startswith(given.only)], known()
    if given.write:
        write(given.write, chosen, best)
        return
    solve = partial(solved, work=given.work, seeds=given.seeds)
    with ProcessPoolExecutor(given.processes) as pool:
        found = list(zip(chosen, pool.map(solve, chosen), strict=True))
    report(found, best)
    if given.keep:
        better = {name: each.better(best[name]) if name in best else each for name, each in found}
        every = {**best, **better}
        keep({name: every[name] for name in names() if name in every})


if __name__ == "__main__":
    main()
