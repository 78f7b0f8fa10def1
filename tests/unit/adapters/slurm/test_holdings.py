"""Memory and GRES of nodes: read, and shared among the local jobs that have them."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.adapters.slurm.holdings import shared, with_holdings
from coalloc.adapters.slurm.native.shapes import Asked, asked_for
from coalloc.adapters.slurm.parsers.records import NodeRecord, QueueEntry
from coalloc.adapters.slurm.parsers.text import (
    parse_jobs,
    parse_node_list,
    read_gres,
    select_words,
)
from coalloc.adapters.slurm.reading import Answers, Holding, running_jobs
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.shape import ONE_SLOT, Shape
from coalloc.model.sites.reading import NodeReading

HEAD = "NodeName=n1 CPUTot=16 State=MIXED RealMemory=64000 CPUAlloc=4 "
THREADS = "CoresPerSocket=4 Sockets=2 ThreadsPerCore=2 "


def test_a_node_has_cores_and_what_the_system_leaves() -> None:
    more = "CoreSpecCount=1 MemSpecLimit=4000 AllocMem=9000 Gres=gpu:a100:4(S:0-1) GresDrain=N/A "
    (node,) = parse_node_list(f"{HEAD}{THREADS}{more}GresUsed=gpu:a100:1(IDX:0)\n")
    assert (node.cpus, node.cpus_per_core, node.memory_mb) == (14, 2, 60000)
    assert (node.memory_taken_mb, dict(node.gres)) == (9000, {"gpu": 4, "gpu:a100": 4})
    assert node.gres_taken == {"gpu": 1, "gpu:a100": 1}
    (node,) = parse_node_list(f"{HEAD}CoresPerSocket=8 Sockets=2 ThreadsPerCore=2\n")
    assert node.cpus_per_core == 1, "a CPU for each core is configured"
    (node,) = parse_node_list(f"{HEAD}\n")
    assert node.cpus_per_core == 1


def test_gres_as_nodes_and_jobs_have_them() -> None:
    assert read_gres("gpu:(null):2(IDX:0-1)") == {"gpu": 2}
    assert read_gres("gres/gpu:a100=2,gres/nvme=1") == {"gpu": 2, "gpu:a100": 2, "nvme": 1}
    assert read_gres("gres:gpu") == {"gpu": 1}
    assert read_gres("N/A") == {}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("CR_CORE_MEMORY", {"CORE", "MEMORY"}),
        ("CR_CPU,CR_ONE_TASK_PER_CORE", {"CPU"}),
        ("CR_SOCKET_MEMORY", {"SOCKET", "MEMORY"}),
    ],
)
def test_what_is_given_out_and_counted(said: str, words: set[str]) -> None:
    assert select_words(f"SelectTypeParameters = {said}\n") - {"CR"} == words


def test_a_total_is_shared_exactly() -> None:
    assert shared(10, {"a": 1, "b": 1, "c": 1}) == {"a": 3, "b": 3, "c": 4}
    assert shared(7, {"a": 0, "b": 2}) == {"a": 0, "b": 7}


def found(*queue: QueueEntry, node: dict[str, Any], **given: Any) -> dict[str, Any]:
    nodes = (NodeRecord(name="n1", cpus=8, **node),)
    reading = NodeReading(name="n1", slots=8, memory_mb=64000, resources={"gpu:a100": 4})
    answers = Answers(now=0.0, nodes=nodes, queue=queue, **given)
    settings = SlurmSettings(cluster="a", slots="cpus")
    jobs = with_holdings(settings, answers, (reading,), running_jobs(settings, answers, nodes))
    return {job.id: (job.memory_mb.get("n1"), dict(job.resources.get("n1", {}))) for job in jobs}


def job(id: str, cpus: int, **fields: Any) -> QueueEntry:
    return QueueEntry(id=id, state="RUNNING", nodes=("n1",), cpus=cpus, **fields)


def test_local_jobs_share_what_our_parts_have_not() -> None:
    used = {"gpu": 3, "gpu:a100": 3}
    node = {"cpus_taken": 6, "memory_taken_mb": 20000, "gres_taken": used}
    ours = job("3", 2, comment="coalloc:1.1.0:c1")
    held = {"c1": Holding({"n1": 2}, Shape(per_node={"gpu": 1}), 4000)}
    local = job("1", 3), job("2", 1, gres={"gpu": 2})
    assert found(*local, ours, node=node, held=held, claims={"c1"}) == {
        "a:1": (9000, {}),
        "a:2": (3000, {"gpu:a100": 2, "gpu": 2}),
    }
    # Of a handed job of ours nothing is known but its CPUs.
    assert found(*local, job("3", 4), node=node, claimed={"3"}) == {
        "a:1": (7500, {}),
        "a:2": (2500, {"gpu:a100": 3, "gpu": 3}),
    }


def test_a_family_counts_what_its_types_and_the_others_have() -> None:
    used = {"gpu": 3, "gpu:a100": 2}
    node = {"cpus_taken": 2, "memory_taken_mb": 0, "gres_taken": used}
    local = job("1", 1, gres={"gpu:a100": 2}), job("2", 1, gres={"gpu": 1})
    told = found(*local, node=node)
    assert sum(told[id][1].get("gpu", 0) for id in ("a:1", "a:2")) == 3


PENDING = "NumNodes={} NumTasks={} CPUs/Task={} NtasksPerN:B:S:C={}:0:*:* MinCPUsNode={} "


@pytest.mark.parametrize(
    ("numbers", "more", "asked"),
    [
        ((1, 4, 1, 0, 1), "MinMemoryNode=0 OverSubscribe=OK", Asked(4)),
        (
            ("2-2", 8, 2, 4, 8),
            "MinMemoryCPU=500M OverSubscribe=OK TresPerNode=gres:gpu:v100:1",
            Asked(
                8,
                1000,
                Shape(
                    cpus_per_proc=2,
                    min_nodes=2,
                    max_nodes=2,
                    procs_per_node=4,
                    per_node={"gpu:v100": 1},
                ),
            ),
        ),
        (
            ("1-3", 1, 1, 0, 1),
            "MinMemoryNode=4G OverSubscribe=NO TresPerTask=gres:gpu:2",
            Asked(
                1,
                0,
                Shape(
                    cpus_per_proc=1,
                    max_nodes=3,
                    memory_mb_per_node=4096,
                    exclusive=True,
                    per_proc={"gpu": 2},
                ),
            ),
        ),
        ((1, 4, 1, 0, 1), "TresPerJob=gres:gpu:2", None),
        ((1, 4, 1, 0, 6), "OverSubscribe=OK", None),  # --mincpus
        ((1, "many", 1, 0, 1), "", None),
    ],
)
def test_shapes_of_jobs_submitted_in_slurm(numbers: Any, more: str, asked: Asked | None) -> None:
    text = f"JobId=7 JobName=x {PENDING.format(*numbers)}{more}\n"
    assert asked_for(parse_jobs(text)["7"], whole_nodes=False) == asked


def test_one_process_on_each_whole_node_has_no_shape() -> None:
    text = f"JobId=7 {PENDING.format('3-3', 3, 1, 0, 1)}\n"
    known = asked_for(parse_jobs(text)["7"], whole_nodes=True)
    assert known == Asked(3, 0, ONE_SLOT)
    assert asked_for({}, whole_nodes=True) is None
