"""Places on a node: never more than there is, never a CPU or a GPU twice, by an own count."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.base import ClaimRefusedError
from coalloc.adapters.local.launcher import places_on
from coalloc.adapters.local.settings import LocalNode, read_settings
from coalloc.adapters.part_folder import PartFolder
from coalloc.adapters.runner.spec import OwnPlace
from coalloc.model.shape import Shape
from coalloc.model.sites.parts import PartSpec
from tests.support.part_specs import part_spec

GPUS = {0: "gpu:a100", 1: "gpu:a100", 2: "gpu:v100", 3: "gpu:v100"}


def node(**given: Any) -> LocalNode:
    table = {"gres": "gpu:a100:2,gpu:v100:2,nvme:10", "memory_mb": 100, **given}
    return read_settings({"nodes": [{"name": "n1", "cpus": ["0-7"], **table}]}, "c").nodes[0]


def folder(part: PartSpec, places: list[OwnPlace]) -> PartFolder:
    """The part as it is found after a restart."""
    return PartFolder(
        path=Path("/p"),
        key=part.key,
        nodes=part.nodes,
        shape=part.shape,
        memory_mb_per_proc=part.memory_mb_per_proc,
        places=[{"node": "n1", **place} for place in places],
    )


def wanted(part: PartSpec) -> Counter[str]:
    """What a part takes of this node, counted by hand: a slot is a CPU here."""
    shape, procs = part.shape, part.nodes["n1"]
    if shape.exclusive:
        whole = {"slots": 8, "gpu": 4, "gpu:a100": 2, "gpu:v100": 2, "nvme": 10}
        return Counter({**whole, "mem": shape.memory_mb_per_node})
    found = Counter({"slots": procs * max(1, shape.cpus_per_proc)})
    found["mem"] = shape.memory_mb_per_node + procs * part.memory_mb_per_proc
    if shape.all_memory:
        found["mem"] = 100
    for amounts, times in ((shape.per_node, 1), (shape.per_proc, procs)):
        for name, count in amounts.items():
            found[name] += count * times
            if ":" in name:
                found["gpu"] += count * times
    return found


def drawn(draw: random.Random, job: int) -> PartSpec:
    gpu = draw.choice(["gpu", "gpu:a100", "gpu:v100"])
    shape = Shape(
        cpus_per_proc=draw.choice([0, 0, 1, 2, 3]),
        memory_mb_per_node=draw.choice([0, 0, 30]),
        all_memory=draw.random() < 0.05,
        exclusive=draw.random() < 0.1,
        per_node=draw.choice([{}, {}, {gpu: 1}, {gpu: 2, "nvme": 4}]),
        per_proc=draw.choice([{}, {}, {gpu: 1}]),
    )
    memory = 0 if shape.all_memory or shape.exclusive else draw.choice([0, 20])
    procs = draw.randint(1, 2)
    return part_spec(
        "true", job=str(job), nodes=(("n1", procs),), shape=shape, memory_mb_per_proc=memory
    )


def placed(
    here: LocalNode, part: PartSpec, folders: list[PartFolder]
) -> tuple[list[OwnPlace], str]:
    """What a part gets, or nothing, and why."""
    try:
        return places_on(here, GPUS, part, folders), "taken"
    except ClaimRefusedError as error:
        why = "by number" if "by number" in error.detail else error.reason
        return [], why


def numbers(folders: list[PartFolder], what: str) -> list[int]:
    """Those that the parts have, each part's own counted once."""
    return [n for each in folders for n in {n for place in each.places for n in place[what]}]


def test_random_parts_share_a_node_exactly() -> None:
    sizes = {"slots": 8, "mem": 100, "gpu": 4, "gpu:a100": 2, "gpu:v100": 2, "nvme": 10}
    here, seen = node(), Counter[str]()
    for seed in range(60):
        draw, live = random.Random(seed), list[tuple[PartFolder, Counter[str]]]()
        for job in range(30):
            part, use = drawn(draw, job), Counter[str]()
            for _, took in live:
                use += took
            own = wanted(part)
            short = [what for what, count in own.items() if use[what] + count > sizes[what]]
            folders = [each for each, _ in live]
            places, why = placed(here, part, folders)
            seen[why] += 1
            if not places:
                # GPUs of any type were taken of the type that is asked for
                assert short or why == "by number", part
            else:
                assert not short, (part, live)
                live.append((folder(part, places), own))
                counted = [f for f, _ in live if f.shape.cpus_per_proc]
                cpus, gpus = numbers(counted, "cpus"), numbers([f for f, _ in live], "gpus")
                assert len(cpus) == len(set(cpus))
                assert len(gpus) == len(set(gpus))
                if not any(each.shape.exclusive for each, _ in live):
                    assert len(gpus) == sum(took["gpu"] for _, took in live)
                if part.shape.exclusive:
                    continue
                if part.shape.cpus_per_proc:
                    each = {len(place["cpus"] or ()) for place in places}
                    assert each == {part.shape.cpus_per_proc}
                kinds = Counter(GPUS[n] for n in {int(n) for p in places for n in p["gpus"]})
                assert all(kinds[name] >= own[name] for name in set(GPUS.values()))
            while live and draw.random() < 0.4:
                live.pop(draw.randrange(len(live)))
    assert min(seen.values()) >= 20, seen


@pytest.mark.parametrize(
    ("shape", "procs", "said"),
    [
        ({"cpus_per_proc": 3}, 3, "9 slots wanted, 8 of 8 free"),
        ({"memory_mb_per_node": 101}, 1, "101 MiB wanted, 100 of 100 free"),
        ({"per_proc": {"gpu:a100": 1}}, 3, "3 gpu:a100 wanted, 2 of 2 free"),
        ({"per_node": {"gpu": 5}}, 1, "5 gpu wanted, 4 of 4 free"),
        ({"per_node": {"fpga": 1}}, 1, "1 fpga wanted, 0 of 0 free"),
    ],
)
def test_the_short_resource_is_named(shape: Mapping[str, Any], procs: int, said: str) -> None:
    part = part_spec("true", nodes=(("n1", procs),), shape=Shape(**shape))
    with pytest.raises(ClaimRefusedError, match=f"^n1: {said}$"):
        places_on(node(), GPUS, part, [])


def test_gpus_of_the_node_are_shared_and_those_of_a_process_are_its_own() -> None:
    shape = Shape(per_node={"gpu:v100": 1}, per_proc={"gpu:a100": 1})
    part = part_spec("true", nodes=(("n1", 2),), shape=shape)
    first, second = places_on(node(), GPUS, part, [])
    assert (first["gpus"], second["gpus"]) == ([2, 0], [2, 1])
    alone = part_spec("true", nodes=(("n1", 1),), shape=Shape(exclusive=True))
    assert places_on(node(), GPUS, alone, [])[0]["gpus"] == [0, 1, 2, 3]
    none = part_spec("true", nodes=(("n1", 1),))
    assert places_on(node(), GPUS, none, [])[0]["gpus"] == []
    assert "gpus" not in places_on(node(gres=""), {}, none, [])[0]
