"""What is said to fit beside running work starts at once on a real Slurm, and nothing else does.

Random shapes beside random work, on nodes of two kinds of GPUs and on nodes of two threads a core;
and each takes of its nodes just what it is said to take.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from coalloc.adapters.slurm.parsers.text import read_gres, read_nodes
from coalloc.adapters.slurm.part_commands import allocated
from coalloc.adapters.slurm.reader import SlurmReader
from coalloc.adapters.slurm.settings import read_settings
from coalloc.model.shape import Room, Shape, demands, lays_out, most_procs, room_of, taken
from coalloc.model.sites.reading import ClusterReading, NodeReading
from tests.slurm.test_shapes import KINDS, THREADS
from tests.testbeds.slurm import Cluster, SlurmTestbed, bed
from tests.testbeds.slurm_launches import settings_of
from tests.testbeds.slurm_site import SlurmSite

MOST_RUNNING = 5
NEVER = "Immediate execution impossible|configuration is not available|More processors|allocate"


@pytest.fixture(scope="module")
def kinds() -> Iterator[SlurmTestbed]:
    with bed(KINDS, THREADS) as running:
        yield running


class Drawn:
    """A random job: what it is for us, and its words for Slurm."""

    def __init__(self, random: Random, *, gpus: bool) -> None:
        cpus, nodes = random.choice((1, 1, 2, 3, 4, 8)), random.choice((0, 0, 1, 1, 2, 3))
        each = random.choice((1, 1, 2, 3, 4, 6))
        keys: dict[str, Any] = {"cpus_per_proc": cpus}
        self.procs = each * max(nodes, 1)
        self.words = ["-n", str(self.procs), "-c", str(cpus)]
        if nodes:
            keys |= {"min_nodes": nodes, "max_nodes": nodes, "procs_per_node": each}
            self.words += ["-N", str(nodes), f"--ntasks-per-node={each}"]
        self.memory_mb = 0
        if gpus and random.random() < 0.4:
            mb = random.choice((500, 3000, 9000))
            self.memory_mb = mb * cpus
            self.words.append(f"--mem-per-cpu={mb}")
        else:
            mb = random.choice((1000, 8000, 31000, 64000))
            keys["memory_mb_per_node"] = mb
            self.words.append(f"--mem={mb}")
            if random.random() < 0.1:
                keys["exclusive"] = True
                self.words.append("--exclusive")
        if gpus and random.random() < 0.5:
            name = random.choice(("gpu", "gpu:a100", "gpu:v100", "nvme"))
            count = random.choice((1, 2, 4)) * (100 if name == "nvme" else 1)
            keys["per_node"] = {name: count}
            self.words.append(f"--gres={name}:{count}")
        elif gpus and random.random() < 0.3:
            name = random.choice(("gpu", "gpu:a100", "gpu:v100"))
            keys["per_proc"] = {name: 1}
            self.words.append(f"--gpus-per-task={name.removeprefix('gpu:').replace('gpu', '')}:1")
        self.words = [word.replace("=:", "=") for word in self.words]
        self.shape = Shape(**keys)


def free_rooms(reading: ClusterReading) -> dict[str, Room]:
    """What is free on each node."""
    free = {}
    for node in reading.nodes:
        slots, memory, resources = room_of(node)
        left = dict(resources)
        for job in reading.running:
            slots -= job.nodes.get(node.name, 0)
            memory -= job.memory_mb.get(node.name, 0)
            for name, count in demands(job.resources.get(node.name, {})).items():
                left[name] -= count
        free[node.name] = Room(slots, memory, left)
    return free


def has(cluster: Cluster, count: int) -> bool:
    """Whether so many jobs are in the queue."""
    return len(cluster.run("squeue", "-h", "-o", "%i").split()) == count


def start(cluster: Cluster, *words: str) -> str:
    """The number of an allocation that is granted at once; empty: it is not."""
    answer = cluster.slurm.ask("salloc", "--no-shell", "-I", "-t", "10", *words)
    found = re.search(r"Granted job allocation (\d+)", answer.err)
    assert found or re.search(NEVER, answer.err), answer
    return found[1] if found else ""


def is_split(cluster: Cluster, number: str, drawn: Drawn) -> bool:
    """Whether Slurm has given a task fewer CPUs than it asks for, as 22.05 may without ``-N``.

    No step of such a job starts: "More processors requested than permitted".
    """
    text = cluster.run("scontrol", "-d", "-o", "show", "job", number)
    each = max(1, drawn.shape.cpus_per_proc)
    room = sum(cpus // each * len(read_nodes(names)) for names, cpus, _ in allocated(text))
    return room < drawn.procs


def check_taken(cluster: Cluster, number: str, drawn: Drawn, sizes: dict[str, NodeReading]) -> None:
    """What it takes of each of its nodes is what the model says of its processes there."""
    text = cluster.run("scontrol", "-d", "-o", "show", "job", number)
    each, procs = max(1, drawn.shape.cpus_per_proc), 0
    for names, cpus, gres in allocated(text):
        for name in read_nodes(names):
            node = sizes[name]
            count = min(drawn.shape.procs_per_node or drawn.procs, cpus // each, drawn.procs)
            procs += count
            room = taken(drawn.shape, drawn.memory_mb, node, count)
            assert room.slots == cpus, (drawn.words, text)
            held = re.search(rf" Nodes={re.escape(names)} CPU_IDs=\S+ Mem=(\d+)", text)
            assert held is not None
            assert int(held[1]) == room.memory_mb, (drawn.words, text)
            assert read_gres(gres).get("gpu", 0) == room.resources.get("gpu", 0), drawn.words
    assert procs >= drawn.procs, (drawn.words, text)


@pytest.mark.parametrize("name", ["g", "t"])
@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.nightly)])
def test_what_fits_starts_at_once_and_nothing_else(
    kinds: SlurmTestbed, name: str, count: int
) -> None:
    cluster, random = kinds[name], Random(f"{name} {count}")
    settings = read_settings(settings_of(cluster, slots="cpus", load="none"), name)
    reader = SlurmReader(settings, cluster.slurm)
    running: list[str] = []
    tally = [0, 0]
    for _ in range(count):
        while len(running) > random.randrange(MOST_RUNNING + 1):
            cluster.run("scancel", running.pop(random.randrange(len(running))))
            kinds.wait(partial(has, cluster, len(running)), "it has gone")
        drawn = Drawn(random, gpus=name == "g")
        reading = reader.read()
        sizes = {node.name: node for node in reading.nodes}
        free = free_rooms(reading)
        room = {n: most_procs(drawn.shape, drawn.memory_mb, sizes[n], free[n]) for n in sizes}
        fits = lays_out(drawn.shape, drawn.procs, list(room.values()))
        number = start(cluster, *drawn.words)
        running += [number] if number else []
        if number and is_split(cluster, number, drawn):
            continue
        assert bool(number) == fits, (drawn.words, drawn.shape, free, room)
        tally[fits] += 1
        if number:
            check_taken(cluster, number, drawn, sizes)
    assert min(tally) > count // 10, tally
    assert sum(tally) > 0.95 * count, "split tasks are rare"


@pytest.mark.nightly
def test_shaped_jobs_fill_a_busy_site(kinds: SlurmTestbed, root: Path) -> None:
    """550 of ours beside 60 local ones: none is overcommitted, hardly a claim is refused."""
    random, jobs = Random(550), list[str]()
    with SlurmSite(root, kinds, given={"slots": "cpus"}) as site:
        for n in range(610):
            drawn = Drawn(random, gpus=random.random() < 0.7)
            text = f"sleep {random.uniform(0.1, 2.0):.2f}"
            if n % 10 == 5:
                words = [*drawn.words, "-t", "1", "-o", "/dev/null", "--wrap", text]
                kinds["g"].slurm.ask("sbatch", *words)
                continue
            job = {
                "shape": msgspec.to_builtins(drawn.shape),
                "memory_mb_per_proc": drawn.memory_mb,
                "time_limit": 60.0,
            }
            words = ["sh", "-c", text]
            answer = site.ask("submit", **site.submission(words, drawn.procs, job=job))
            if answer["type"] == "refused":
                assert answer["code"] == "infeasible", answer
            else:
                jobs.append(answer["job"])
        site.until(lambda: not site.ask("queue")["jobs"], 1200.0)
        assert {site.job(job)["state"] for job in jobs} == {"completed"}
        assert len(site.lines("job_requeued")) <= 0.02 * len(jobs)
    assert len(jobs) > 300
