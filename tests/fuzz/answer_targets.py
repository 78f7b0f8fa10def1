"""What batch systems print, and what a stranger says at the port of a part's barrier."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from pathlib import Path

from coalloc.adapters.batch.node_load import probe_text, read_probe
from coalloc.adapters.batch.token import claim_in_name, parse_comment
from coalloc.adapters.gridengine import parse_xml
from coalloc.adapters.gridengine.reading import chosen_queues, measured, running_jobs, waiting_count
from coalloc.adapters.gridengine.settings import read_settings as gridengine_settings
from coalloc.adapters.runner import status as part_status
from coalloc.adapters.runner.batch.barrier import Barrier
from coalloc.adapters.runner.status import READY
from coalloc.adapters.slurm.parsers.queue import QUEUE_FIELDS, RECORD, parse_queue
from coalloc.adapters.slurm.parsers.records import ParseError
from coalloc.adapters.slurm.parsers.rules import parse_licenses, parse_manager, parse_partitions
from coalloc.adapters.slurm.parsers.text import (
    parse_clock,
    parse_fields,
    parse_node_list,
    parse_reservations,
)
from tests.fuzz.target import Target
from tests.support.part_specs import batch_spec

MARK = "\x1f3f9a\x1f"
ROOT = Path(__file__).resolve().parents[1]
READERS: dict[str, Callable[[str], object]] = {
    "scontrol show node": parse_node_list,
    "scontrol show reservation": parse_reservations,
    "scontrol show partition": parse_partitions,
    "scontrol show assoc_mgr": parse_manager,
    "scontrol show licenses": parse_licenses,
    "scontrol show job": parse_fields,
    "squeue": lambda text: parse_queue(text, MARK),
    "date": parse_clock,
}


def _slurm(content: bytes) -> None:
    """The first line names the command, the rest is what it printed."""
    name, _, text = content.decode("utf-8", "replace").partition("\n")
    if name in READERS:
        READERS[name](text)


def _slurm_seeds() -> list[bytes]:
    node = "NodeName=n1 Arch=x86_64 CPUAlloc=2 CPUTot=8 CPULoad=1.50 State=MIXED+DRAIN "
    node += "AvailableFeatures=a,b RealMemory=16000 FreeMem=900 Partitions=main Reason=a [b@c]\n"
    kept = "ReservationName=r StartTime=2026-11-20T13:26:55 EndTime=2026-11-20T14:26:55 "
    kept += "Nodes=n[1-2] NodeCnt=2 Users=ann State=INACTIVE\n"
    part = (
        "PartitionName=main Default=YES Nodes=n[1-4] State=UP MaxTime=1-00:00:00 OverSubscribe=NO\n"
    )
    job = "JobId=7 JobName=x JobState=RUNNING Reason=None NumNodes=2 NodeList=n[1-2] "
    job += "StartTime=2026-11-20T13:26:55 EndTime=Unknown TimeLimit=UNLIMITED ExitCode=0:0\n"
    values = {
        "id": "12",
        "number": "12",
        "state": "RUNNING",
        "nodes": "a[1-2]",
        "uid": "1000",
        "gid": "100",
        "cpus": "16",
        "node_count": "2",
        "start": "2026-11-20T13:26:55",
        "end": "2026-11-20T13:36:55",
        "submitted": "2026-11-20T13:26:54",
        "user": "ann",
        "time_limit": "10:00",
        "exclusive": "NO",
        "partition": "main",
        "name": "work",
    }
    line = RECORD + MARK + MARK.join(values.get(name, "") for name, _ in QUEUE_FIELDS) + "\n"
    texts = {
        "scontrol show node": node * 2,
        "scontrol show reservation": kept,
        "scontrol show partition": part,
        "scontrol show job": job,
        "squeue": line * 2,
        "date": "Configuration data as of 2026-11-20T13:26:55\nX = 1\n",
    }
    return [f"{name}\n{text}".encode() for name, text in texts.items()]


def _gridengine(content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    parse_xml.parse_size_mb(text)
    parse_xml.parse_span(text)
    parse_xml.parse_time(text)
    parse_xml.tasks_in(text)
    status = parse_xml.parse_status(text)
    settings = gridengine_settings({"queue": "all.q", "pe": "coalloc"}, "ge", "settings")
    entries = chosen_queues(settings, status)
    measured(entries, status)
    running_jobs(settings, entries, 1e9, set())
    waiting_count(status, set())
    for job in status.jobs():
        assert job.count >= 1


def _gridengine_seeds() -> list[bytes]:
    files = sorted((ROOT / "gridengine" / "data").glob("*.xml"))
    texts = (b"16.000G", b"4-10:2,15", b"100:00:00", b"2026-11-20T13:26:55.123")
    return [*(path.read_bytes() for path in files), *texts]


def _small(content: bytes) -> None:
    """Texts that lie in jobs' names and comments, in status files, and in a probe's answer."""
    text = content.decode("utf-8", "replace")
    read_probe(text)
    parse_comment(text)
    claim_in_name(text)
    part_status.decoded(content)


def _barrier(content: bytes) -> None:
    """Everything that a stranger may send to the port where a part's nodes meet."""
    spec = batch_spec(("n1", 2))
    poller = select.poll()
    barrier = Barrier({"n1": spec}, "00" * 32, (0, 0), poller)
    try:
        for family in (socket.AF_INET6, socket.AF_INET):
            try:
                stranger = socket.create_connection(
                    ("::1" if family == socket.AF_INET6 else "127.0.0.1", barrier.port), 5.0
                )
            except OSError:
                continue
            with stranger:
                stranger.sendall(content[:4096])
                stranger.shutdown(socket.SHUT_WR)
                for _ in range(3):
                    for fd, _ in poller.poll(50):
                        barrier.take(fd)
            break
        barrier.drop_unauthenticated()
        assert barrier.nodes["n1"].connection is None
        assert READY not in barrier.nodes["n1"].records
    finally:
        barrier.close()


TARGETS: dict[str, Target] = {
    "slurm": Target(
        run=_slurm,
        allowed=(ParseError,),
        seeds=_slurm_seeds,
        words=(
            b"NodeName=",
            b"State=",
            b"n[1-9]",
            b"(null)",
            b"UNLIMITED",
            MARK.encode(),
            b"Unknown",
        ),
    ),
    "gridengine": Target(
        run=_gridengine,
        allowed=(parse_xml.QstatError,),
        seeds=_gridengine_seeds,
        words=(
            b"<job_list>",
            b"</Queue-List>",
            b"<tasks>1-9:2</tasks>",
            b"<slots>4</slots>",
            b"<!",
        ),
    ),
    "small": Target(
        run=_small,
        allowed=(),
        seeds=lambda: [
            b"coalloc:7.1.0:0123456789abcdef",
            probe_text(0.25, 1760000000.0).encode(),
            part_status.encoded({"pid": 7, "start": 1.5}),
        ],
    ),
    "barrier": Target(
        run=_barrier,
        allowed=(),
        seeds=lambda: [
            b"hello n1 " + b"0" * 32 + b"\n",
            b"prove " + b"0" * 64 + b"\n",
            b"hello x y\n",
        ],
        words=(b"hello n1 ", b"prove ", b"hello n1 \xff\n", b"\n"),
    ),
}
