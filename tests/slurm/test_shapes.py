"""Scripts of several nodes, CPUs, memory and GPUs: taken and told as by sbatch, on real Slurm."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coalloc.model.shape import Shape
from coalloc.model.sites.batch_options import BatchOptions
from coalloc.model.sites.parts import PartSpec, QueueTerms
from tests.support.launch_bed import Signpost
from tests.testbeds.slurm import ClusterShape, SlurmTestbed, bed
from tests.testbeds.slurm_launches import SlurmLaunches

KINDS = ClusterShape(
    name="g",
    nodes=4,
    conf="SelectTypeParameters=CR_Core_Memory\nDefMemPerCPU=1000\nGresTypes=gpu,nvme",
    groups=(
        (2, "Gres=gpu:a100:4,nvme:900 RealMemory=64000"),
        (2, "Gres=gpu:v100:2 RealMemory=64000"),
    ),
    gres="NodeName=g[1-2] Name=gpu Type=a100 File=/dev/null,/dev/zero,/dev/full,/dev/random\n"
    "NodeName=g[1-2] Name=nvme Count=900\n"
    "NodeName=g[3-4] Name=gpu Type=v100 File=/dev/null,/dev/zero\n",
)
THREADS = ClusterShape(
    name="t",
    nodes=2,
    conf="SelectTypeParameters=CR_Core_Memory\nDefMemPerCPU=1000",
    groups=((2, "Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=64000"),),
)


@pytest.fixture(scope="module")
def kinds() -> Iterator[SlurmTestbed]:
    with bed(KINDS, THREADS) as running:
        yield running


class Case(NamedTuple):
    """A script's options, and what becomes of them."""

    words: str
    nodes: tuple[int, ...]
    """Processes on the first nodes."""
    shape: dict[str, Any]
    memory_mb_per_proc: int = 0
    cluster: str = "g"
    first: int = 1
    passed: tuple[str, ...] = ()


CASES = (
    Case(
        "-N2 --ntasks-per-node=2 -c4 --gres=gpu:2",
        (2, 2),
        {
            "cpus_per_proc": 4,
            "min_nodes": 2,
            "max_nodes": 2,
            "procs_per_node": 2,
            "per_node": {"gpu": 2},
        },
    ),
    Case(
        "-n1 --gres=gpu:a100:1,nvme:300 -c4 --mem=16G",
        (1,),
        {
            "cpus_per_proc": 4,
            "memory_mb_per_node": 16384,
            "per_node": {"gpu:a100": 1, "nvme": 300},
        },
    ),
    Case(
        "-N2 --exclusive --mem=0 --gres=gpu:4",
        (1, 1),
        {
            "per_node": {"gpu": 4},
            "cpus_per_proc": 1,
            "min_nodes": 2,
            "max_nodes": 2,
            "exclusive": True,
            "all_memory": True,
        },
    ),
    Case(
        "-N2 -n3 -c2 --mem-per-cpu=3G",  # uneven
        (2, 1),
        {"cpus_per_proc": 2, "min_nodes": 2, "max_nodes": 2},
        memory_mb_per_proc=6144,
    ),
    Case("-n4 -c2 --gpus-per-task=a100:1", (4,), {"cpus_per_proc": 2, "per_proc": {"gpu:a100": 1}}),
    Case(
        "-N2 -n3 --gpus-per-task=1",  # uneven, with GPUs of each
        (2, 1),
        {"cpus_per_proc": 1, "min_nodes": 2, "max_nodes": 2, "per_proc": {"gpu": 1}},
        first=3,
    ),
    Case("-n3 -c3", (2, 1), {"cpus_per_proc": 3}, cluster="t"),  # 6 CPUs are 3 cores, 3 are 2
    Case(
        "-N1 --ntasks-per-node=1 -c8 --hint=nomultithread",
        (1,),
        {"cpus_per_proc": 8, "min_nodes": 1, "max_nodes": 1, "procs_per_node": 1},
        passed=("--hint=nomultithread",),
    ),
)

TEXT = """#!/bin/sh
env -0 | tr '\\n' ' ' | tr '\\0' '\\n' | grep -E '^(SLURM|CUDA|GPU_|ROCR)'
scontrol -d -o show job $SLURM_JOB_ID
srun sh -c 'echo task $SLURM_PROCID/$SLURM_NTASKS $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'
"""
SIGNAL = ("--signal=B:USR1@60",)
UNEQUAL = {
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_TASK_PID", "SLURM_JOB_START_TIME"),
    *("SLURM_JOB_END_TIME", "SLURM_MEM_PER_CPU"),
}
"""Variables that are each job's own, or a default that sbatch alone tells."""


def told(path: Path) -> tuple[dict[str, str], list[str], list[str]]:
    """Variables, what is taken on each node, and the tasks of a step."""
    text = path.read_text()
    variables, shown, rest = re.split(r"^(JobId=.*)$", text, maxsplit=1, flags=re.M)
    found = dict(line.split("=", 1) for line in variables.splitlines())
    taken = re.findall(r"(?<= )Nodes=\S+ CPU_IDs=\S+ Mem=\S+ GRES=\S*", shown)
    return (
        {name: value for name, value in found.items() if name not in UNEQUAL},
        taken,
        sorted(line for line in rest.splitlines() if line.startswith("task ")),
    )


def script(launch: SlurmLaunches, case: Case) -> PartSpec:
    names = launch.cluster.node_names[case.first - 1 :]
    return launch.spec(
        "job.sh",
        script=TEXT,
        env={"PATH": "/usr/bin:/bin"},
        once=True,
        name="model",
        nodes=tuple(zip(names, case.nodes, strict=False)),
        size=sum(case.nodes),
        shape=Shape(**case.shape),
        memory_mb_per_proc=case.memory_mb_per_proc,
        batch=BatchOptions(passed=case.passed),
    )


@pytest.mark.parametrize("way", ["salloc", "sbatch"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
def test_a_script_takes_and_is_told_what_sbatch_makes_of_it(
    kinds: SlurmTestbed, root: Path, case: Case, way: str
) -> None:
    is_uneven = len(set(case.nodes)) > 1
    if way == "salloc" and (case.passed or "exclusive" in case.shape or is_uneven):
        pytest.skip("such a claim always waits its turn")
    launch = SlurmLaunches(root, kinds[case.cluster], start=way, slots="cpus")
    try:
        spec = script(launch, case)
        (launch.cwd / "job.sh").write_text(TEXT)
        words = [*case.words.split(), "-w", ",".join(spec.nodes), "-J", "model", "-o", "plain"]
        subprocess.run(
            ["sbatch", "-W", "-t1", "-Q", *words, "job.sh"],
            cwd=launch.cwd,
            env=launch.cluster.slurm.environment(),
            check=True,
        )
        report = launch.run(spec)
        assert report.exit_code == 0, (report, launch.output())
        ours, plain = told(launch.cwd / "coalloc-1.out"), told(launch.cwd / "plain")
        differ = {k: (ours[0].get(k), plain[0].get(k)) for k in ours[0].keys() | plain[0].keys()}
        assert {k: v for k, v in differ.items() if v[0] != v[1]} == {}
        assert ours[1:] == plain[1:]
    finally:
        launch.close()


def test_a_script_gets_the_signals_that_are_for_it(kinds: SlurmTestbed, root: Path) -> None:
    launch = SlurmLaunches(root, kinds["g"], start="sbatch", slots="cpus")
    sign = Signpost(root / "sign")
    try:
        text = f"#!/bin/sh\ntrap 'exit 7' USR1\necho up > {sign.path}\nwhile :; do sleep 0.1; done"
        spec = launch.spec("job.sh", script=text, once=True, batch=BatchOptions(passed=SIGNAL))
        launch.start(spec)
        assert sign.line() == "up"
        (number,) = launch.cluster.run("squeue", "-h", "-o", "%i").split()
        launch.cluster.run("scancel", "--batch", "--signal=USR1", number)
        assert launch.ended(spec.key).exit_code == 7
    finally:
        sign.close()
        launch.close()


def test_processes_follow_what_slurm_has_laid_out(kinds: SlurmTestbed, root: Path) -> None:
    """Slurm fills the first of the nodes that a claim at once names, whatever was planned."""
    launch = SlurmLaunches(root, kinds["g"], start="sbatch", slots="cpus")
    try:
        nodes = {"nodes": (("g3", 1), ("g4", 3)), "size": 4, "queue": QueueTerms(at_once=True)}
        spec = launch.shell("echo $COALLOC_NODE > out.$COALLOC_RANK", **nodes)
        report = launch.run(spec)
        assert report.exit_code == 0, report
        found = [(launch.cwd / f"out.{rank}").read_text().strip() for rank in range(4)]
        assert found == ["g3", "g3", "g3", "g4"]
    finally:
        launch.close()


@pytest.mark.parametrize("way", ["salloc", "sbatch"])
def test_each_process_has_its_cpus_and_gpus(kinds: SlurmTestbed, root: Path, way: str) -> None:
    launch = SlurmLaunches(root, kinds["g"], start=way, slots="cpus")
    try:
        shape = Shape(cpus_per_proc=2, min_nodes=2, max_nodes=2, per_proc={"gpu:v100": 1})
        text = "echo $OMP_NUM_THREADS $CUDA_VISIBLE_DEVICES > out.$COALLOC_RANK"
        nodes = (("g3", 2), ("g4", 2))
        assert launch.run(launch.shell(text, nodes=nodes, size=4, shape=shape)).exit_code == 0
        found = [(launch.cwd / f"out.{rank}").read_text().strip() for rank in range(4)]
        assert found == ["2 0", "2 1", "2 0", "2 1"]
    finally:
        launch.close()
