"""Operators' reservations in real Slurm: local jobs stay away, those of its users do not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from coalloc.adapters.runner.command import CommandRefusedError
from tests.testbeds.slurm import SlurmTestbed, alike, bed
from tests.testbeds.slurm_site import SlurmSite

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root may make reservations")


def listed(site: SlurmSite, name: str) -> list[dict[str, object]]:
    """What the daemon says of the reservation in each cluster's batch system."""
    rows = (row for row in site.ask("nodes")["reservations"] if row["name"] == name)
    found: list[dict[str, object]] = next(rows)["passed"]
    return found


def kept(running: SlurmTestbed) -> str:
    return running["a"].run("scontrol", "-o", "show", "reservation")


def test_reservation_is_made_used_adopted_and_removed(root: Path) -> None:
    with bed(*alike(1, 3)) as running:
        cluster = running["a"]
        site = SlurmSite(root, running, given={"pass_reservations": True})
        site.start()
        try:
            others = ("create", "reservation", "ReservationName=theirs", "Users=root")
            cluster.run("scontrol", *others, "StartTime=now+1hour", "Duration=60", "Nodes=a3")
            site.until(lambda: "theirs" in str(site.ask("nodes")["reservations"]))
            site.ask("reserve", targets=["a1", "a2"], users=["root"], name="course")
            there = [{"cluster": "a", "why": "", "running": []}]
            site.until(lambda: listed(site, "course") == there)
            assert "ReservationName=coalloc.a.course." in kept(running)
            words = ("-n", "1", "-w", "a1", "-t", "1", "--immediate=1", "true")
            with pytest.raises(CommandRefusedError, match="reserved"):
                cluster.run("srun", *words)

            job = site.submit(["sleep", "600"], 2, job={"time_limit": 3600.0})
            site.until(lambda: site.job(job)["state"] == "running")
            inside = cluster.run("squeue", "-h", "-o", "%N %v").split()
            assert inside[0] == "a[1-2]"
            assert inside[1].startswith("coalloc.a.course.")

            site.kill("a")
            site.start_executor("a")
            before = kept(running)
            site.until(lambda: site.ask("nodes")["clusters"][0]["connected"])
            site.until(lambda: listed(site, "course") != [])
            assert kept(running) == before, "adopted as it is"

            # it overlaps with somebody's: told, and theirs is left alone
            soon = time.time() + 1800.0
            site.ask("reserve", targets=["a3"], users=["root"], name="late", start=soon)
            site.until(lambda: "overlaps" in str(listed(site, "late")))
            assert site.lines("reservation_not_passed")

            site.ask("unreserve", name="course")
            site.ask("unreserve", name="late")
            site.until(lambda: "course" not in kept(running) or "State=INACTIVE" in _line(running))
            assert site.job(job)["state"] == "running", "what runs goes on"
            site.ask("cancel", job=job)
            site.until(lambda: "course" not in kept(running))
            assert "ReservationName=theirs" in kept(running)
        finally:
            site.stop()


def _line(running: SlurmTestbed) -> str:
    return next((line for line in kept(running).splitlines() if "course" in line), "")
