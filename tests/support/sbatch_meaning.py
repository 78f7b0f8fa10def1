"""What sbatch 22.05 makes of the options of a script, read anew: the judge of ``coalloc sbatch``.

Nothing of the product is imported. `SEEN` is what a real one gave; the reading is held against it.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

LETTERS = {
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "G": "gpus",
    "x": "exclude",
    "w": "nodelist",
    "m": "distribution",
    "O": "overcommit",
    "L": "licenses",
}
WORDS = {
    *("nodes", "ntasks", "cpus-per-task", "gpus", "exclude", "nodelist", "distribution"),
    *("ntasks-per-node", "mem", "mem-per-cpu", "mem-per-gpu", "gres", "gpus-per-node", "hint"),
    *("gpus-per-task", "cpus-per-gpu", "ntasks-per-gpu", "exclusive", "overcommit", "signal"),
    *("contiguous", "switches", "gpu-bind", "network", "ntasks-per-socket", "mincpus", "licenses"),
    "threads-per-core",
}
BARE = {"exclusive", "overcommit", "contiguous"}
JUDGED_THERE = {
    *("exclude", "nodelist", "distribution", "hint", "overcommit", "signal", "contiguous"),
    *("switches", "gpu-bind", "network", "ntasks-per-socket", "mincpus", "threads-per-core"),
}
"""Options that say nothing of the size; they are to reach the cluster as they are."""


class Meaning(NamedTuple):
    """Size of a job; what is not said is 0, or empty."""

    tasks: int = 1
    nodes: tuple[int, int] = (1, 0)
    """At least, and at most."""
    each: int = 0
    """Tasks of a node, at most."""
    cpus: int = 1
    mem_node: float = 0
    """MiB; infinite: all."""
    mem_task: int = 0
    on_node: Mapping[str, int] = {}
    of_task: Mapping[str, int] = {}
    exclusive: bool = False
    there: frozenset[str] = frozenset()


def said(lines: Sequence[str]) -> dict[str, str]:
    """The last value of each option that speaks of the size."""
    out: dict[str, str] = {}
    for line in lines:
        words = iter(shlex.split(line))
        for word in words:
            name, equals, value = word.removeprefix("--").partition("=")
            if not word.startswith("--"):
                name, value = LETTERS.get(word[1:2], ""), word[2:]
                equals = value
            name = "ntasks-per-node" if name == "tasks-per-node" else name
            if not equals and name not in BARE:
                value = next(words, "")
            if name in WORDS:
                out[name] = value
    return out


def mebibytes(text: str) -> int:
    digits = text.rstrip("KkMmGgTtBb")
    unit = text[len(digits) :].upper()[:1] or "M"
    return math.ceil(int(digits) * {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}[unit])


def counts(text: str, family: str = "") -> dict[str, int]:
    """a100:2 of GPUs, or gpu:a100:2,nvme:10."""
    out: dict[str, int] = {}
    for item in text.split(",") if text else ():
        parts = [*([family] if family else []), *item.split(":")]
        number = int(parts.pop()) if parts[-1].isdigit() else 1
        out[":".join(parts)] = number
    return out


def meaning(lines: Sequence[str]) -> Meaning | str:
    """The size of the job, or why sbatch refuses it."""
    of = said(lines)
    try:
        return _read(of)
    except ValueError as error:
        return str(error)


def _read(of: Mapping[str, str]) -> Meaning:
    if len(of.keys() & {"mem", "mem-per-cpu", "mem-per-gpu"}) > 1:
        raise ValueError("memory is said twice")
    low, _, high = of.get("nodes", "0").partition("-")
    least, most = int(low), int(high or low)
    each, tasks = int(of.get("ntasks-per-node", 0)), int(of.get("ntasks", 0))
    if tasks < 0 or least > most:
        raise ValueError("no size")
    on_node = counts(of.get("gpus-per-node", ""), "gpu") | counts(of.get("gres", ""))
    of_task = counts(of.get("gpus-per-task", ""), "gpu")
    in_all = counts(of.get("gpus", ""), "gpu")
    if on_node and (of_task or in_all):  # the nodes follow
        here, each = sum(on_node.values()), each or sum(on_node.values()) // len(of_task or [0])
        each = each if of_task or "ntasks-per-node" in of else 0
        total = sum(in_all.values()) or (tasks or least * each) * sum(of_task.values())
        least = most = total // here
        in_all, on_node = {}, {} if of_task else on_node
    if not tasks:
        tasks = max(least, 1) * max(each, 1)
        least, most = (least, most) if least or not each else (1, 1)
    least, most = min(least, tasks), min(most, tasks)  # "setting nnodes to"
    if in_all:
        ((name, gpus),) = in_all.items()
        if (least == most > 0 and not gpus % least) or tasks == 1:
            least = most = least or 1
            on_node |= {name: gpus // least}
        elif not gpus % tasks:
            of_task = {name: gpus // tasks}
        else:
            raise ValueError("GPUs in all are not the same anywhere")
    gpus = sum(n for name, n in on_node.items() if name.startswith("gpu"))
    cpus = int(of.get("cpus-per-task", 1))
    if "cpus-per-gpu" in of:
        here = sum(of_task.values()) or gpus // (each or max(1, tasks // max(1, least)))
        cpus = int(of["cpus-per-gpu"]) * here
    mem = mebibytes(of.get("mem", "0")) or (math.inf if "mem" in of else 0)
    if "mem-per-gpu" in of:
        mem = mebibytes(of["mem-per-gpu"]) * gpus
    return Meaning(
        tasks=tasks,
        nodes=(least or 1, most),
        each=each,
        cpus=cpus,
        mem_node=mem,
        mem_task=mebibytes(of.get("mem-per-cpu", "0")) * cpus,
        on_node=on_node,
        of_task=of_task,
        exclusive=of.get("exclusive") == "",
        there=frozenset(_there(of)),
    )


def _there(of: Mapping[str, str]) -> Iterator[str]:
    for name in JUDGED_THERE & of.keys():
        yield f"--{name}={of[name]}" if of[name] else f"--{name}"
    if of.get("exclusive"):
        yield f"--exclusive={of['exclusive']}"


def asked(body: Mapping[str, Any]) -> Meaning:
    """The same of a request that the daemon is sent."""
    job: Mapping[str, Any] = body["job"]
    shape: Mapping[str, Any] = job.get("shape", {})
    return Meaning(
        tasks=job["procs"],
        nodes=(shape.get("min_nodes", 1), shape.get("max_nodes") or 0),
        each=shape.get("procs_per_node") or 0,
        cpus=shape.get("cpus_per_proc", 0),
        mem_node=math.inf if shape.get("all_memory") else shape.get("memory_mb_per_node", 0),
        mem_task=job.get("memory_mb_per_proc", 0),
        on_node=shape.get("per_node", {}),
        of_task=shape.get("per_proc", {}),
        exclusive=shape.get("exclusive", False),
        there=frozenset(body["batch"].get("passed", ())),
    )


GPU = {"gpu": 1}
SEEN: Mapping[str, Meaning | None] = {
    # what a real one gave on nodes of 8 CPUs and 4 GPUs; None: refused
    "-n 4 -c 3": Meaning(4, cpus=3),
    "-n 8 -c 2 -N 2": Meaning(8, (2, 2), cpus=2),
    "-N 3 -n 2": Meaning(2, (2, 2)),
    "-n 5 -N 2": Meaning(5, (2, 2)),
    "-N 4 -n 16": Meaning(16, (4, 4)),
    "-N 2-4 -n 6": Meaning(6, (2, 4)),
    "-N 1-3": Meaning(1, (1, 1)),
    "-N 2 --ntasks-per-node=3": Meaning(6, (2, 2), 3),
    "--ntasks-per-node=4": Meaning(4, (1, 1), 4),
    "-n 5 --ntasks-per-node=2": Meaning(5, each=2),
    "-N 2 --ntasks-per-node=3 -n 4": Meaning(4, (2, 2), 3),
    "-n 10 --mem=20G": Meaning(10, mem_node=20480),
    "-n 4 --mem-per-cpu=20G": Meaning(4, mem_task=20480),
    "-n 4 -c 2 --mem-per-cpu=3G": Meaning(4, cpus=2, mem_task=6144),
    "--mem=0": Meaning(mem_node=math.inf),
    "-N 2 --exclusive --mem=4G": Meaning(2, (2, 2), mem_node=4096, exclusive=True),
    "-N 2 --gpus=6": Meaning(2, (2, 2), on_node={"gpu": 3}),
    "--gpus=a100:2 --cpus-per-gpu=3": Meaning(1, (1, 1), cpus=6, on_node={"gpu:a100": 2}),
    "--gpus=2 --mem-per-gpu=8G": Meaning(1, (1, 1), mem_node=16384, on_node={"gpu": 2}),
    "-n 6 --gpus-per-task=a100:1": Meaning(6, of_task={"gpu:a100": 1}),
    "-n 6 --gpus=6": Meaning(6, of_task=GPU),
    "-N 1 -n 8 --ntasks-per-gpu=4": Meaning(8, (1, 1), on_node={"gpu": 2}),
    "-N 2 --gpus-per-node=2 --ntasks-per-gpu=2": Meaning(8, (2, 2), 4, on_node={"gpu": 2}),
    "--gres=gpu:v100:4,nvme:100": Meaning(on_node={"gpu:v100": 4, "nvme": 100}),
    "--gres=gpu:1,nvme:1,gpu:2": Meaning(on_node={"gpu": 2, "nvme": 1}),
    "--gres=gpu:2 --gpus-per-node=1": Meaning(on_node={"gpu": 2}),
    "--gpus=4 --gpus-per-node=2": Meaning(2, (2, 2), on_node={"gpu": 2}),
    "-n 5 --gres=gpu:1 --gpus=2": Meaning(5, (2, 2), on_node=GPU),
    "--ntasks-per-node=2 --gpus=4 --gpus-per-node=2": Meaning(4, (2, 2), 2, on_node={"gpu": 2}),
    "-N 2 --gpus-per-task=1 --gpus-per-node=1": Meaning(2, (2, 2), 1, of_task=GPU),
    "-n 4 --gpus-per-task=1 --gres=gpu:2": Meaning(4, (2, 2), 2, of_task=GPU),
    "-N 2 --gpus-per-task=1 --gres=gpu:2": Meaning(4, (2, 2), 2, of_task=GPU),
    "-n 4 --ntasks-per-gpu=2 --gres=gpu:1": Meaning(4, each=2, on_node=GPU),
    "-N 2 -n 4 --ntasks-per-gpu=2": Meaning(4, (2, 2), on_node=GPU),
    "-N 1 --gpus=4 --gpus-per-node=2": None,
    "-n 1 --gpus=4 --gpus-per-node=2": None,
    "--ntasks-per-node=1 --gpus-per-task=2 --gpus=4": None,
    "-n 6 --ntasks-per-node=2 --gpus-per-task=2 --gres=gpu:2": None,
    "-n 1 --gpus=1 --gpus-per-node=1 --gpus-per-task=2": None,
    "-N 2 -n 9 --ntasks-per-node=2": None,
    "--gres=gpu:a100:1,gpu:1": None,
    "--mem=4G --mem-per-cpu=1G": None,
    "-c 2 --gpus=1 --cpus-per-gpu=2": None,
    "-n 3 --ntasks-per-gpu=2": None,
    "--gpus-per-task=1": None,
    "--ntasks-per-gpu=1": None,
    "--mem-per-gpu=1": None,
    "--gpus-per-node=1 --ntasks-per-node=2 --ntasks-per-gpu=2": None,
    "-N 4-2": None,
    "--exclusive=some": None,
    "-n 5 -N 2 --gpus=3": None,
    "-n 4 -w n1,n2 --exclusive=user -O --hint=nomultithread": Meaning(
        4,
        there=frozenset(
            ("--nodelist=n1,n2", "--exclusive=user", "--overcommit", "--hint=nomultithread")
        ),
    ),
}
