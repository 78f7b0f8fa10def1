"""Jobs over several real Slurm clusters, from the submit to the last exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.testbeds.slurm import SlurmTestbed, alike, bed
from tests.testbeds.slurm_site import SlurmSite


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmTestbed]:
    with bed(*alike(3, 3)) as running:
        yield running


@pytest.fixture
def site(wide: SlurmTestbed, root: Path) -> Iterator[SlurmSite]:
    with SlurmSite(root, wide) as running:
        yield running
    for cluster in wide:
        cluster.run("scancel", "--user=root")
    wide.wait(lambda: all(cluster.is_idle() for cluster in wide), "all is idle again")


def waits(job: Mapping[str, Any]) -> bool:
    return bool(job["reason"]) and (job["state"] == "pending" or job["reason"] == "others_first")


def output(site: SlurmSite, job: str) -> list[str]:
    return (site.work / f"coalloc-{job}.out").read_text().splitlines()


def test_rigid_job_wider_than_any_cluster(site: SlurmSite) -> None:
    text = 'echo "$COALLOC_RANK $COALLOC_SIZE $COALLOC_CLUSTER $COALLOC_NODE $COALLOC_NODELIST"'
    job = site.submit(["sh", "-c", text], 8)
    ended = site.wait(job)
    assert ended["state"] == "completed", ended
    assert len(ended["clusters"]) == 3
    assert ended["skew_ms"] is not None
    rows = [line.split() for line in output(site, job)]
    assert sorted(int(row[0]) for row in rows) == list(range(8))
    assert {row[1] for row in rows} == {"8"}
    assert len({row[3] for row in rows}) == 8
    assert len({row[4] for row in rows}) == 1


def test_torch_style_rendezvous(site: SlurmSite) -> None:
    """Rank 0 listens at MASTER_ADDR:MASTER_PORT, all others come to it, and the sum is right."""
    program = site.work / "meet.py"
    program.write_text(MEET)
    from tests.testbeds.ssh import PYTHON

    job = site.submit([PYTHON, str(program)], 7)
    ended = site.wait(job)
    assert ended["state"] == "completed", (ended, output(site, job))
    assert len(ended["clusters"]) == 3
    assert output(site, job).count("sum 21") == 7


MEET = """\
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(place)
    peers = [server.accept()[0] for _ in range(size - 1)]
    total = sum(int(peer.makefile().readline()) for peer in peers)
    for peer in peers:
        peer.sendall(b"%d\\n" % total)
else:
    for _ in range(200):
        try:
            peer = socket.create_connection(place, 5.0)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    peer.sendall(b"%d\\n" % rank)
    total = int(peer.makefile().readline())
os.write(1, b"sum %d\\n" % total)
"""


def test_local_job_is_waited_for(site: SlurmSite, wide: SlurmTestbed) -> None:
    """A job that is not ours has a node of one cluster; the job needs them all."""
    mark = site.work / "began"
    cluster = wide["b"]
    local = cluster.run("sbatch", "--parsable", "-w", "b2", "-o", "/dev/null", "--wrap=sleep 60")
    wide.wait(lambda: "R" in cluster.run("squeue", "-h", "-j", local.strip(), "-o", "%t"), "runs")
    job = site.submit(["touch", str(mark)], 9)
    # It waits here or, where the last reading was older than the local job, in b's own queue.
    site.until(lambda: waits(site.job(job)))
    assert not mark.exists()
    cluster.run("scancel", local.strip())
    assert site.wait(job)["state"] == "completed"
    assert mark.exists()


def test_cancelled_job_ends_everywhere(site: SlurmSite, wide: SlurmTestbed) -> None:
    job = site.submit(["sleep", "600"], 8)
    site.until(lambda: site.job(job)["state"] == "running")
    assert site.ask("cancel", job=job)["type"] == "done"
    assert site.wait(job)["state"] == "cancelled"
    for cluster in wide:
        assert cluster.run("squeue", "-h") == ""


def test_killed_daemon_and_executors_find_the_job_again(site: SlurmSite) -> None:
    go = site.work / "go"
    job = site.submit(["sh", "-c", f"echo up; while ! test -e {go}; do sleep 0.1; done"], 8)
    site.until(lambda: site.job(job)["state"] == "running")
    site.kill("b")
    site.kill("coallocd")
    site.start_daemon()
    site.start_executor("b")
    site.until(lambda: site.job(job)["state"] == "running")
    go.touch()
    ended = site.wait(job)
    assert ended["state"] == "completed"
    assert output(site, job) == ["up"] * 8


def test_start_skew_is_published(site: SlurmSite) -> None:
    for number in range(3):
        job = site.submit(["true"], 4 + number)
        ended = site.wait(job)
        assert ended["state"] == "completed"
        assert ended["skew_ms"] >= 0.0
    assert [line["skew_ms"] for line in site.lines("job_started")] != []
