"""Claims that wait in Grid Engine's queue like anybody's job, beside a user who fills the cells."""

from __future__ import annotations

import pwd
from collections.abc import Iterator
from pathlib import Path
from pwd import getpwuid

import pytest

from coalloc.model.sites.parts import Member, PartSpec, PartState, QueueTerms
from tests.testbeds.gridengine import GridEngineTestbed
from tests.testbeds.gridengine_background import background_user
from tests.testbeds.gridengine_launches import GridEngineLaunches
from tests.testbeds.mixed_site import MixedSite

SHAPE = QueueTerms(at_once=False)
NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def launch(cells: GridEngineTestbed, root: Path) -> Iterator[GridEngineLaunches]:
    running = GridEngineLaunches(root, cells["p"], start="queue")
    yield running
    running.close()
    running.cell.delete_all()
    cells.wait(running.cell.is_idle, "no job stays")


def test_a_claim_waits_and_is_granted_when_its_turn_comes(
    cells: GridEngineTestbed, launch: GridEngineLaunches
) -> None:
    cell = cells["p"]
    local = cell.submit("-pe", "smp", "4", "-l", "h_rt=600")
    cells.wait(lambda: cell.status().queues[0].used == 4, "it runs")
    other = cell.submit("-pe", "smp", "4", "-l", "h_rt=600")
    text = "echo $COALLOC_RANK $COALLOC_NODE"
    spec = launch.shell(text, nodes=(("localhost", 2),), size=2, queue=QueueTerms())
    launch.launcher.claim(spec)
    waits = launch.wait_one(spec.key, lambda r: r.detail == "1 jobs are before it" or r.is_ended)
    assert waits.state is PartState.WAITING, waits
    assert not waits.is_next
    cell.run("qdel", other)
    launch.wait_one(spec.key, lambda r: r.is_next or r.is_ended)
    cell.run("qdel", local)
    launch.wait_one(spec.key, lambda r: r.state is PartState.READY or r.is_ended)
    (job,) = cell.status().queues[0].jobs
    assert job.slots == 2
    launch.launcher.go(spec.key)
    assert launch.ended(spec.key).exit_code == 0
    lines = sorted(launch.output("coalloc-1.out").splitlines())
    assert lines == ["0 localhost", "1 localhost"]


def test_members_wait_as_one_job_and_run_in_turn(
    cells: GridEngineTestbed, launch: GridEngineLaunches
) -> None:
    cell = cells["p"]
    local = cell.submit("-pe", "smp", "4", "-l", "h_rt=600")
    cells.wait(lambda: cell.status().queues[0].used == 4, "it runs")
    behind = tuple(Member(job=f"1_{n}", attempt=1, array_index=n) for n in (1, 2))
    text = "echo $COALLOC_GRIDENGINE_JOB_ID"
    spec = launch.shell(text, job="1_0", members=behind, queue=QueueTerms())
    launch.launcher.claim(spec)
    launch.wait(spec.keys, lambda r: r.is_next or r.is_ended)
    cell.run("qdel", local)
    launch.wait(spec.keys, lambda r: r.state is PartState.READY or r.is_ended)
    launch.launcher.go(spec.key)
    assert {end.exit_code for end in launch.wait(spec.keys, lambda r: r.is_ended)} == {0}
    assert len({launch.output(f"coalloc-{key.job}.out") for key in spec.keys}) == 1


def test_a_part_put_off_is_hastened_and_holds_for_the_others(
    cells: GridEngineTestbed, launch: GridEngineLaunches
) -> None:
    later = QueueTerms(at_once=False, begin_s=600.0)
    spec = launch.shell("echo $COALLOC_NODELIST", size=2, queue=later)
    launch.launcher.claim(spec)
    launch.wait_one(spec.key, lambda r: r.state is PartState.WAITING and bool(r.detail))
    assert cells["p"].status().queues[0].used == 0, "there is room, and it does not take it"
    launch.launcher.hasten(spec.key)
    granted = launch.wait_one(spec.key, lambda r: bool(r.nodes) or r.is_ended)
    assert (granted.state, granted.nodes) == (PartState.PREPARING, {"localhost": 1})
    launch.launcher.arrange(spec.key, {"localhost": 1, "b1": 1}, "10.0.0.1:1")
    launch.wait_one(spec.key, lambda r: r.state is PartState.READY or r.is_ended)
    launch.launcher.go(spec.key)
    assert launch.ended(spec.key).exit_code == 0
    assert launch.output("coalloc-1.out") == "b1,localhost\n"


@pytest.fixture
def queued(cells: GridEngineTestbed, launch: GridEngineLaunches) -> PartSpec:
    """A claim that is the next one, behind a job with all slots."""
    cell = cells["p"]
    cell.submit("-pe", "smp", "4", "-l", "h_rt=600")
    cells.wait(lambda: cell.status().queues[0].used == 4, "it runs")
    spec = launch.shell("true", queue=SHAPE)
    launch.launcher.claim(spec)
    launch.wait_one(spec.key, lambda r: r.state is PartState.WAITING and r.is_next)
    return spec


def test_a_claim_that_waits_is_withdrawn(launch: GridEngineLaunches, queued: PartSpec) -> None:
    launch.launcher.abort(queued.key, reason="another combination")
    assert launch.ended(queued.key).state is PartState.REFUSED
    assert not launch.cell.status().waiting


def test_a_claim_deleted_while_it_waits_is_refused(
    launch: GridEngineLaunches, queued: PartSpec
) -> None:
    (job,) = launch.cell.status().waiting
    launch.cell.run("qdel", job.number)
    report = launch.ended(queued.key)
    assert (report.state, report.reason) == (PartState.REFUSED, "cancelled_there")


def waiting_there(site: MixedSite, name: str) -> int:
    """Local jobs that wait in a cell, as the daemon knows."""
    rows = site.ask("nodes")["clusters"]
    return next(int(row["waiting_there"]) for row in rows if row["cluster"] == name)


def test_jobs_start_in_cells_that_a_local_user_keeps_full(
    cells: GridEngineTestbed, root: Path
) -> None:
    """Narrow jobs wait their turn in one cell; one wider than any waits in several, and meets."""
    account = getpwuid(NOBODY.pw_uid)
    site = MixedSite(root, cells, given={"start": "queue"})
    with background_user(cells, account), site:
        site.until(lambda: all(waiting_there(site, cell.name) for cell in cells))
        jobs = [site.submit(["true"], n, job={"clusters": ["p", "q"]}) for n in (1, 2, 3, 1, 6)]
        for job in jobs:
            ended = site.wait(job)
            assert ended["state"] == "completed", ended
        assert len(ended["clusters"]) == 2
        told = [event["kind"] for event in ended["events"]]
        assert told.count("claim_queued") >= 2, told
    for cell in cells:
        cells.wait(cell.is_idle, "all is idle again")
