"""Operators' reservations in real Grid Engine: local jobs stay away, parts of its users do not."""

from __future__ import annotations

import pwd
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc.adapters.gridengine.parse_xml import AdvanceReservation
from coalloc.adapters.gridengine.passing import read_reservations
from coalloc.adapters.runner.command import Account, CommandRefusedError
from tests.testbeds.gridengine import Cell, GridEngineTestbed
from tests.testbeds.mixed_site import MixedSite

NOBODY = Account.of(pwd.getpwnam("nobody").pw_uid)


@pytest.fixture
def site(cells: GridEngineTestbed, root: Path) -> Iterator[MixedSite]:
    running = MixedSite(root, cells, given={"pass_reservations": True})
    running.start()
    yield running
    running.stop()
    for cell in cells:
        cell.delete_all()
        for each in kept(cell):
            cell.run("qrdel", each.id)
        cells.wait(cell.is_idle, "all is idle again")


def kept(cell: Cell) -> tuple[AdvanceReservation, ...]:
    """The cell's reservations that are not being deleted."""
    return tuple(each for each in read_reservations(cell.commands) if "d" not in each.state)


def listed(site: MixedSite, name: str) -> list[dict[str, object]]:
    """What the daemon says of the reservation in each cluster's batch system."""
    rows = (row for row in site.ask("nodes")["reservations"] if row["name"] == name)
    found: list[dict[str, object]] = next(rows)["passed"]
    return found


def fits_now(cell: Cell, *options: str) -> bool:
    """Whether a job of a local user's would start at once."""
    words = ("-w", "p", "-S", "/bin/sh", *options)
    try:
        cell.commands.run("qsub", *words, text="true\n", account=NOBODY)
    except CommandRefusedError as error:
        if "suitable" not in error.why:
            raise
        return False
    return True


def test_reservation_is_made_used_adopted_and_removed(
    site: MixedSite, cells: GridEngineTestbed
) -> None:
    cell = cells["p"]
    assert fits_now(cell)
    site.ask("reserve", targets=["p"], users=["root"], name="course")
    site.until(lambda: listed(site, "course") == [{"cluster": "p", "why": "", "running": []}])
    (made,) = kept(cell)
    assert made.name.startswith("coalloc.p.course.")
    assert (made.slots, made.users) == ({("main", "localhost"): 4}, ("root",))
    assert not fits_now(cell)
    assert site.free("p") == 4, "for its users"

    given = {"time_limit": 3600.0, "clusters": ["p"]}
    job = site.submit(["sleep", "600"], 3, job=given)
    site.until(lambda: site.job(job)["state"] == "running")
    (there,) = cell.status().queues[0].jobs
    assert f"ar_id:{made.id}" in cell.run("qstat", "-j", there.number).replace(" ", "")

    site.kill("p")
    site.start_executor("p")
    site.until(lambda: site.ask("nodes")["clusters"][0]["connected"])
    site.until(lambda: listed(site, "course") != [])
    assert [each.id for each in kept(cell)] == [made.id], "adopted as it is"

    site.ask("unreserve", name="course")
    site.until(lambda: "p/localhost" not in str(site.ask("nodes")["reservations"]))
    second = site.submit(["true"], 1, job=given)
    assert site.job(job)["state"] == "running", "what runs goes on"
    assert [each.id for each in kept(cell)] == [made.id], "a job is in it, that would end with it"
    site.ask("cancel", job=job)
    cells.wait(lambda: not kept(cell), "it is removed when no job is in it")
    assert site.wait(second)["state"] == "completed"


def test_host_in_use_is_kept_piece_by_piece(site: MixedSite, cells: GridEngineTestbed) -> None:
    """What runs there goes on; what it leaves is kept, and the slots join when it has ended."""
    cell = cells["p"]
    short = cell.submit("-pe", "smp", "2", "-l", "h_rt=600")
    cells.wait(lambda: cell.status().queues[0].used == 2, "it runs")
    site.until(lambda: site.free("p") == 2)
    site.ask("reserve", targets=["p"], users=[], name="works")
    pieces = {("main", "localhost"): 2}
    site.until(lambda: [each.slots for each in kept(cell)] == [pieces, pieces])
    first, second = kept(cell)
    assert second.start > first.start + 500.0, "from when the job must have ended"
    site.until(lambda: listed(site, "works")[0]["running"] == [short])
    cell.run("qdel", short)
    site.until(lambda: [each.slots for each in kept(cell)] == [{("main", "localhost"): 4}])
    assert not fits_now(cell, "-l", "h_rt=10")
    site.until(lambda: listed(site, "works")[0]["running"] == [])
    site.ask("unreserve", name="works")
    cells.wait(lambda: not kept(cell), "it is removed")


def test_what_cannot_be_kept_is_told(site: MixedSite, cells: GridEngineTestbed) -> None:
    cell = cells["q"]
    cell.submit("-pe", "smp", "4")
    cells.wait(lambda: cell.status().queues[0].used == 4, "it runs, without an end")
    site.ask("reserve", targets=["q"], users=["root"], name="late", start=time.time() + 3600.0)
    site.until(lambda: "no suitable queues" in str(listed(site, "late")))
    assert site.lines("reservation_not_passed")
    assert not kept(cell)
