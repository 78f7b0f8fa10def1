"""One record of Slurm's answers that is not understood: it holds its nodes, and nothing else."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, cast

import pytest

from coalloc.adapters.base import AdapterError
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.parsers.queue import QUEUE_FIELDS, RECORD
from coalloc.adapters.slurm.reader import SlurmReader
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.platform import NodeState
from coalloc.model.sites.reading import ClusterReading

NOW = 1_795_200_000.0  # 2026-11-20T18:40:00
START, END = "2026-11-20T18:00:00", "2026-11-20T20:00:00"
ODD = (
    *("", "?", "x=y", "garbage!", "9" * 40, "-1", "é", "1_[2", "2026-99-99T00:00:00", "a b"),
    *("(null)x", "\x00", "%s", "[", "a[1-", "n[9-", "tomorrow", "99_[1-", "zz[1-3]"),
)
NODE = (
    "NodeName={} Arch=x86_64 CPUAlloc={} CPUEfctv=8 CPUTot=8 CPULoad=1.00 Gres=gpu:2 NodeAddr=x "
    "RealMemory=16000 FreeMem=9000 State={} Weight=1 Partitions={} Extra=x"
)
NODES = [
    NODE.format(*fields)
    for fields in (
        ("n1", 8, "ALLOCATED", "main"),
        ("n2", 8, "ALLOCATED", "main"),
        ("n3", 4, "MIXED", "main"),
        ("n4", 0, "IDLE", "main"),
        ("n5", 0, "IDLE+RESERVED", "main"),
        ("n6", 0, "IDLE", "gpu"),
        ("n7", 3, "MIXED+COMPLETING", "gpu"),
    )
]
PARTITIONS = [
    f"PartitionName={name} AllowGroups=ALL Default={default} DefaultTime=NONE MaxNodes=UNLIMITED "
    f"MaxTime=1-00:00:00 MinNodes=0 State=UP TotalNodes=3"
    for name, default in (("main", "YES"), ("gpu", "NO"))
]
RESERVATIONS = [
    f"ReservationName=r1 StartTime={START} EndTime={END} Duration=02:00:00 Nodes=n5 NodeCnt=1 "
    "CoreCnt=8 Flags=SPEC_NODES Users=ann State=ACTIVE"
]
JOB = {name: "(null)" for name, _ in QUEUE_FIELDS} | {
    name: text
    for texts in (
        {"reason": "None", "user": "ann", "uid": "1000", "gid": "100", "exclusive": "NO"},
        {"start": START, "end": END, "submitted": START, "time_limit": "2:00:00", "name": "x"},
        {"expected_nodes": "", "required_nodes": ""},
    )
    for name, text in texts.items()
}
JOBS = [
    JOB | dict(zip(("id", "state", "partition", "cpus", "node_count", "nodes"), each, strict=True))
    for each in (
        ("11", "RUNNING", "main", "16", "2", "n[1-2]"),
        ("12_3", "SUSPENDED", "main", "4", "1", "n3"),
        ("13", "COMPLETING", "gpu", "3", "1", "n7"),
        ("14_[4-9%2]", "PENDING", "main", "8", "1", ""),
    )
]
HELD = {"11": ("n1", "n2"), "12_3": ("n3",), "13": ("n7",)}


class Said:
    """Slurm as a test has it."""

    def __init__(self) -> None:
        self.answers = {"node": NODES, "partition": PARTITIONS, "reservation": RESERVATIONS}
        self.jobs = JOBS
        config = "Configuration data as of 2026-11-20T18:40:00\n"
        self.texts = {"config": config, "sdiag": "-", "licenses": "\n"}

    def run(self, name: str, *arguments: str, **kwargs: Any) -> str:
        if name == "squeue":
            mark = arguments[-1].removeprefix(RECORD).partition("%")[0]
            lines = (mark.join(job[field] for field, _ in QUEUE_FIELDS) for job in self.jobs)
            return self.texts.get("job", "".join(f"{RECORD}{mark}{line}\n" for line in lines))
        what = arguments[-1] if arguments else name
        return self.texts.get(what) or "".join(f"{x}\n" for x in self.answers[what])

    def read(self, slots: Any) -> ClusterReading:
        settings = SlurmSettings(cluster="c", slots=slots)
        return SlurmReader(settings, cast(Slurm, self), clock=lambda: NOW).read()


def free(reading: ClusterReading) -> dict[str, tuple[int, float]]:
    """Slots of each node that a job could have, and until when the others are taken at least."""
    found = {}
    kept = {name for each in reading.reservations for name in each.nodes}
    for node in reading.nodes:
        jobs = [job for job in reading.running if node.name in job.nodes]
        taken = sum(job.nodes[node.name] for job in jobs)
        is_open = node.state is NodeState.UP and node.name not in kept
        until = max((job.end for job in jobs), default=NOW)
        found[node.name] = (node.slots - taken if is_open else 0), until
    return found


def mutants(seed: int, count: int) -> Iterator[tuple[str, Said, set[str]]]:
    """Answers with one field of one record changed, and the nodes of that record."""
    draw = random.Random(seed)
    for _ in range(count):
        said, odd = Said(), draw.choice(ODD)
        what = draw.choice(("job", *said.answers))
        if what == "job":
            chosen, field = draw.randrange(len(JOBS)), draw.choice(QUEUE_FIELDS)[0]
            said.jobs = [*JOBS]
            said.jobs[chosen] = JOBS[chosen] | {field: odd}
            yield f"{what} {chosen} {field}={odd!r}", said, {*HELD.get(JOBS[chosen]["id"], ())}
            continue
        records = said.answers[what]
        chosen = draw.randrange(len(records))
        key = draw.choice(re.findall(r"(\w+)=", records[chosen]))
        begin, _, rest = records[chosen].partition(f"{key}=")
        changed = f"{begin}{key}={odd} {rest.partition(' ')[2]}"
        said.answers = said.answers | {what: [*records]}
        said.answers[what][chosen] = changed
        name = records[chosen].partition(" ")[0].partition("=")[2]
        own = {"node": {name}, "reservation": {"n5"}}.get(what)
        main = {"n1", "n2", "n3", "n4", "n5"}
        yield (
            f"{what} {name} {key}={odd!r}",
            said,
            own or (main if name == "main" else {"n6", "n7"}),
        )


@pytest.mark.parametrize("slots", ["node", "cpus"])
def test_an_odd_record_holds_its_own_nodes_and_no_others(slots: str) -> None:
    before = Said().read(slots)
    was = free(before)
    assert {name for name, (count, _) in was.items() if count} >= {"n4", "n6"}
    assert not before.notices
    for about, said, own in mutants(7, 400):
        reading = said.read(slots)
        now = free(reading)
        for name, (count, until) in was.items():
            if name not in own:
                assert now[name] == (count, until), about
            elif name in now:
                assert now[name][0] <= count, about
                assert now[name][0] == 0 or now[name][1] >= until, about


@pytest.mark.parametrize(
    ("field", "text", "notice"),
    [
        (
            "id",
            "job?",
            "job job? is not understood ('job?' is not a job): its nodes count as taken",
        ),
        ("start", "soon", "job 11 is not understood ('soon' is not a time)"),
        ("nodes", "n[1-", "job 11 is not understood ("),
        # what a wrapper of squeue, or a release to come, may say in other words
        ("time_limit", "infinite", ""),
        ("start", "NULL", ""),
        ("id", "49_[1-10,15,...]", ""),
        ("id", "54_3+1", ""),
    ],
)
def test_it_is_noticed(field: str, text: str, notice: str) -> None:
    said = Said()
    said.jobs = [JOBS[0] | {field: text}, *JOBS[1:]]
    notices = said.read("node").notices
    assert [each.startswith(notice) for each in notices] == [True] * bool(notice)
    assert len(said.read("node").nodes) == 7


def test_many_are_counted() -> None:
    said = Said()
    said.jobs = [JOBS[0] | {"cpus": "many"}] * 5
    assert said.read("cpus").notices[3:] == ("2 more jobs are not understood",)


def test_an_empty_cluster_is_not_an_unreadable_one() -> None:
    said = Said()
    said.texts |= {f"{what}": f"No {what}s in the system\n" for what in said.answers}
    said.texts["job"] = "slurm_load_jobs: No jobs in the system\n"
    reading = said.read("node")
    assert (reading.nodes, reading.running, reading.reservations) == ((), (), ())
    assert reading.notices[0] == "it has no nodes"


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("node", "\n"),
        ("node", "slurm_load_node error: Unable to contact slurm controller\n"),
        ("node", "No nodes in the system, or so\n"),
        ("node", "NodeName=n1 CPUTot=4"),  # cut short
        ("partition", "PartitionName=main Default=YES Sta"),
        ("reservation", "ReservationName=r StartTime=2026-11-2"),
        ("job", "slurm_load_jobs error: Unable to contact slurm controller\n"),
    ],
)
def test_an_unreadable_answer_is_no_empty_one(what: str, text: str) -> None:
    said = Said()
    said.texts[what] = text
    with pytest.raises(AdapterError):
        said.read("node")
