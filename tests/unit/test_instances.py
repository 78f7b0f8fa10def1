"""The instance library: its cases, its best known plans, and a checker that shares no code."""

from __future__ import annotations

import copy
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.instances.check import elementary_bound, faults, main, makespan
from benchmarks.instances.families import FAMILIES, instance, names
from benchmarks.plans.instances import TABLE, digest, known, text_of

import coalloc
from coalloc.model.formats.plan_json import read_plan

Plan = dict[str, Any]
BEST = known()
LINK = {
    "format": "coalloc-snapshot/1",
    "time": 0.0,
    "clusters": [
        {"name": k, "link_gbps": 0.1, "nodes": [{"name": f"{k}{n}"} for n in range(2)]}
        for k in "ab"
    ],
    "queue": [{"id": "0", "kind": "rigid", "procs": 4, "base_time": 8, "proc_gbps": 0.05}],
}


def first(family: str) -> tuple[str, Plan]:
    """The first large instance of a family, and a copy of its best known plan."""
    name = f"{family}-60-000"
    return name, copy.deepcopy(BEST[name].plan)


def test_every_best_known_plan_is_feasible_and_its_bound_is_no_higher() -> None:
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = {row["instance"]: row for row in csv.DictReader(file)}
    assert [*rows] == [*names()]
    assert len(rows) == 300
    for name, best in BEST.items():
        body = instance(name)
        assert not faults(body, best.plan), name
        assert makespan(best.plan) == pytest.approx(best.makespan, abs=1e-5)
        assert elementary_bound(body) <= best.bound * (1.0 + 1e-9)
        assert best.bound <= best.makespan * (1.0 + 1e-9)
        assert rows[name]["sha256"] == digest(name)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_product_reads_and_accepts_them(family: str) -> None:
    name, plan = first(family)
    assert coalloc.check(coalloc.read_snapshot(instance(name)), read_plan(plan)).violations == ()


def at_once(plan: Plan) -> None:
    for each in plan["placements"]:
        each["start"], each["end"] = 0.0, each["end"] - each["start"]


def longer(plan: Plan) -> None:
    plan["placements"][0]["end"] += 1.0


def left_out(plan: Plan) -> None:
    del plan["placements"][0]


def twice(plan: Plan) -> None:
    plan["placements"].append(plan["placements"][0])


def one_more(plan: Plan) -> None:
    nodes = plan["placements"][0]["nodes"]
    nodes[min(nodes)] += 1


def elsewhere(plan: Plan) -> None:
    plan["placements"][0]["nodes"] = {"nowhere": 1}


def before(plan: Plan) -> None:
    plan["placements"][0]["start"] -= 5.0
    plan["placements"][0]["end"] -= 5.0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("spoil", [at_once, longer, left_out, twice, one_more, elsewhere, before])
def test_a_spoiled_plan_is_refused(family: str, spoil: Callable[[Plan], None]) -> None:
    name, plan = first(family)
    spoil(plan)
    assert faults(instance(name), plan)


def test_a_chunk_that_is_missing_is_seen() -> None:
    name, plan = first("divisible")
    piece = next(each for each in plan["placements"] if each.get("chunks"))
    piece["chunks"] += 1
    assert any("chunks are placed" in fault for fault in faults(instance(name), plan))


@pytest.mark.parametrize("thing", ["memory_mb", "resources"])
def test_memory_and_gpus_are_counted(thing: str) -> None:
    name, plan = first("counted")
    body = instance(name)
    for cluster in body["clusters"]:
        for node in cluster["nodes"]:
            node[thing] = 1 if thing == "memory_mb" else {}
    for job in body["queue"]:
        job["shape"]["per_proc"] = {"gpu": 1}
    word = "memory" if thing == "memory_mb" else "gpu"
    assert any(f"{word} of " in fault for fault in faults(body, plan))


@pytest.mark.parametrize(("rate", "is_feasible"), [(0.05, False), (0.05 * 3 / 4, True)])
def test_links_are_counted_by_what_crosses_them(rate: float, is_feasible: bool) -> None:
    """Two of four processes on each side: 2 * 2 / 3 of the rate, on a link of 0.1 Gbit/s at 3/4."""
    body = copy.deepcopy(LINK)
    body["queue"][0]["proc_gbps"] = rate * 2.0  # type: ignore[index]
    nodes = {"a0": 1, "a1": 1, "b0": 1, "b1": 1}
    plan = {"placements": [{"job": "0", "start": 0.0, "end": 8.0, "nodes": nodes}]}
    assert (not faults(body, plan)) == is_feasible
    body["queue"][0]["one_cluster"] = True  # type: ignore[index]
    assert faults(body, plan) == ["job 0: is split, and may not be"]


def test_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, plan = first("split")
    files = [tmp_path / "case.json", tmp_path / "plan.json"]
    for path, body in zip(files, (instance(name), plan), strict=True):
        path.write_text(text_of(body), encoding="utf-8")
    words = [*map(str, files)]
    assert main(words) == 0
    assert "feasible, makespan" in capsys.readouterr().out
    at_once(plan)
    files[1].write_text(text_of(plan), encoding="utf-8")
    assert main(words) == 1
    assert main(["nowhere", words[1]]) == 2
    assert main([]) == 2
