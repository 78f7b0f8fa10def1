"""Shapes on real processes: what they see of a node, and what is given back, whoever is killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.base import ClaimRefusedError
from coalloc.adapters.local.reader import LocalReader
from coalloc.model.shape import Shape
from coalloc.model.sites.batch_options import BatchOptions
from coalloc.model.sites.parts import PartKey, PartSpec
from tests.integration.test_local_launcher import executor_killed
from tests.support.launch_bed import LaunchTestbed, Signpost

GPUS = {"nodes": [{"name": "n1", "slots": 8, "gres": "gpu:a100:4"}], "partitions": ["short"]}
NAMES = ("CPUS_PER_TASK", "NTASKS_PER_NODE", "GPUS_PER_TASK", "GPUS")
TOLD = " ".join(f"${{COALLOC_{name}-no}}" for name in NAMES)


def held(bed: LaunchTestbed, sign: Signpost, job: str, shape: Shape, procs: int = 1) -> PartSpec:
    """A part that says which GPUs it sees, and stays until it is ended."""
    text = f"echo {job} $CUDA_VISIBLE_DEVICES > {sign.path}; sleep 600"
    spec = bed.shell(text, job=job, nodes=(("n1", procs),), shape=shape)
    bed.start(spec)
    return spec


def seen(sign: Signpost, lines: int) -> dict[str, list[str]]:
    """The GPUs that the processes of each job see."""
    found: dict[str, list[str]] = {}
    for _ in range(lines):
        job, _, gpus = sign.line().partition(" ")
        found.setdefault(job, []).append(gpus)
    return {job: sorted(gpus) for job, gpus in found.items()}


def test_two_jobs_share_the_gpus_of_a_node_and_a_third_waits(
    tmp_path: Path, sign: Signpost
) -> None:
    bed = LaunchTestbed(tmp_path, GPUS)
    first = held(bed, sign, "a", Shape(per_node={"gpu": 2}))
    held(bed, sign, "b", Shape(per_proc={"gpu:a100": 1}), procs=2)
    assert seen(sign, 3) == {"a": ["0,1"], "b": ["2", "3"]}
    third = bed.spec("true", job="c", nodes=(("n1", 1),), shape=Shape(per_node={"gpu": 1}))
    with pytest.raises(ClaimRefusedError, match="n1: 1 gpu wanted, 0 of 4 free"):
        bed.launcher.claim(third)
    bed.launcher.close()  # the executor is gone, and another finds the parts

    bed = LaunchTestbed(tmp_path, GPUS)
    bed.launcher.adopt()
    with pytest.raises(ClaimRefusedError, match="n1: 1 gpu wanted, 0 of 4 free"):
        bed.launcher.claim(third)
    bed.launcher.abort(first.key)
    bed.ended(first.key)
    held(bed, sign, "d", Shape(per_node={"gpu:a100": 2}))
    assert seen(sign, 1) == {"d": ["0,1"]}
    plain = bed.shell("echo [$CUDA_VISIBLE_DEVICES]", job="e", env={"CUDA_VISIBLE_DEVICES": "0"})
    bed.run(plain)
    assert bed.output("coalloc-e.out") == "[]\n", "who asked for none sees none"
    bed.close()


def test_gpus_of_a_killed_executors_part_are_not_given_again(
    tmp_path: Path, sign: Signpost
) -> None:
    executor_killed(tmp_path, sign, "running", GPUS, Shape(per_node={"gpu": 3}))
    sign.line()
    bed = LaunchTestbed(tmp_path, GPUS)
    held(bed, sign, "2", Shape(per_node={"gpu": 1}))
    assert seen(sign, 1) == {"2": ["3"]}
    with pytest.raises(ClaimRefusedError, match="1 gpu wanted, 0 of 4 free"):
        bed.launcher.claim(bed.spec("true", job="3", shape=Shape(per_node={"gpu": 1})))
    (tmp_path / "work" / "end").write_text("0\n")
    bed.ended(PartKey(job="1", attempt=1, part=0))
    held(bed, sign, "4", Shape(per_node={"gpu": 3}))
    assert seen(sign, 1) == {"4": ["0,1,2"]}
    bed.close()


def test_what_a_job_finds_of_its_shape(tmp_path: Path) -> None:
    shape = Shape(cpus_per_proc=2, per_proc={"nvme": 1})
    outer = {f"COALLOC_{name}": "stale" for name in NAMES}
    two = (("n1", 1), ("n2", 1))
    bed = LaunchTestbed(tmp_path, {"nodes": ["n[1-2]"], "slots": 4, "gres": "nvme:2"})
    text = f"echo {TOLD} ${{OMP_NUM_THREADS-no}}"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"shape": shape, "nodes": two, "env": outer}, "2 1 no no 2"),
        ({"shape": shape, "env": {"OMP_NUM_THREADS": "7"}}, "2 1 no no 7"),
        ({"shape": Shape(cpus_per_proc=1)}, "1 1 no no 1"),
        ({"shape": Shape(cpus_per_proc=1), "once": True, "nodes": (("n1", 3),)}, "1 3 no no no"),
        ({"nodes": (("n1", 2), ("n2", 1)), "env": outer}, "no no no no no"),
    ]
    for number, (fields, told) in enumerate(cases):
        spec = bed.shell(text, job=str(number), **fields)
        assert set(bed.run(spec).codes) == {0}
        assert set(bed.output(f"coalloc-{number}.out").splitlines()) == {told}
    bed.close()


def test_processes_that_asked_for_cpus_have_their_own(tmp_path: Path) -> None:
    usable = sorted(os.sched_getaffinity(0))[:2]
    cpus = ",".join(map(str, usable))
    bed = LaunchTestbed(tmp_path, {"nodes": [{"name": "n1", "cpus": [cpus]}]})
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    each: dict[str, Any] = {"nodes": (("n1", len(usable)),), "shape": Shape(cpus_per_proc=1)}
    bed.run(bed.spec(sys.executable, "-c", code, **each))
    assert sorted(bed.output().splitlines()) == [f"[{cpu}]" for cpu in usable]
    bed.run(bed.spec(sys.executable, "-c", code, job="2", once=True, **each))
    assert bed.output("coalloc-2.out") == f"{usable}\n", "a script has those of all"
    bed.close()


def test_a_script_has_the_gpus_of_all_its_nodes(tmp_path: Path) -> None:
    nodes = ["a", {"name": "b", "gres": "gpu:2"}, {"name": "c", "gres": "gpu:2"}]
    bed = LaunchTestbed(tmp_path, {"nodes": nodes, "slots": 1})
    cases: tuple[tuple[str, dict[str, int], str], ...] = (
        ("ab", {}, ""),
        ("a", {}, "no"),
        ("bc", {"gpu": 1}, "0,2"),
    )
    for names, asked, told in cases:
        spec = bed.shell(
            "echo ${CUDA_VISIBLE_DEVICES-no}",
            job=names,
            nodes=[(name, 1) for name in names],
            shape=Shape(per_node=asked),
            once=True,
        )
        assert bed.run(spec).codes == (0,)
        assert bed.output(f"coalloc-{names}.out") == f"{told}\n"
    bed.close()


def test_partitions_of_nodes(tmp_path: Path) -> None:
    bed = LaunchTestbed(tmp_path, GPUS)
    reading = LocalReader(bed.settings).read()
    assert reading.rules is not None
    assert [each.name for each in reading.rules.partitions] == ["short"]
    assert (reading.nodes[0].partitions, reading.nodes[0].resources) == (
        ("short",),
        {"gpu:a100": 4},
    )
    assert bed.run(bed.spec("true", batch=BatchOptions(partition="short"))).codes == (0,)
    bed.close()
    bed = LaunchTestbed(tmp_path)
    with pytest.raises(ClaimRefusedError, match="--partition=short cannot be honoured there"):
        bed.launcher.claim(bed.spec("true", job="2", batch=BatchOptions(partition="short")))
    bed.close()
