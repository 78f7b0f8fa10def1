"""One machine that several owners read: no slot of it is planned, or started on, twice."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import Read
from coalloc.core.rounds.snapshots import snapshot
from coalloc.model.plan import Plan
from coalloc.model.sites.parts import PART_ENDED, PartState
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.registry import POLICIES
from tests.support.core_site import Site, reading

NODES, SLOTS = 3, 2
OWNERS = {"m@ann": "ann", "m@bob": "bob", "n@eve": "eve"}
KEY = "ssh-ed25519 SHA256:x main"


def read(site: Site, name: str) -> None:
    """Have a cluster read as its executor would: what runs of others' jobs, and of no one's own."""
    user = OWNERS[name]
    others = tuple(
        Running(
            id=record.id,
            nodes={f"{name}/{node.rpartition('/')[2]}": n for node, n in part.held.items()},
            start=site.now,
            end=site.now + 50.0,
            ours=False,
        )
        for record in site.state.placed_records()
        for part in record.parts
        if part.state is PartState.RUNNING and OWNERS[part.cluster] != user
    )
    told = replace(reading(name, NODES, slots=SLOTS), running=others if name[0] == "m" else ())
    told = replace(told, site=KEY if name[0] == "m" else "")
    site.do(StatementReceived(statement=Read(cluster=name, reading=told)))


def most_used(site: Site, plan: Plan | None) -> int:
    """The most slots of one node of the machine that are started, or planned, at any time."""
    held: Counter[str] = Counter()
    for record in site.state.placed_records():
        for part in record.parts:
            if part.state not in PART_ENDED and part.cluster[0] == "m":
                held.update({node[-2:]: n for node, n in part.held.items()})
    places = () if plan is None else plan.placements
    planned = [
        sum(
            n
            for p in places
            if p.start <= one.start < p.end
            for node, n in p.nodes.items()
            if node[0] == "m" and node[-2:] == name
        )
        for one in places
        for name in {node[-2:] for node in one.nodes}
    ]
    return max([*held.values(), *planned], default=0)


def easy(told: Snapshot) -> Plan:
    plan = POLICIES["easy"].solve(told, {}, Budget())
    assert check(told, plan).ok
    return plan


@pytest.mark.parametrize("seed", range(30))
def test_no_slot_of_a_machine_goes_twice(seed: int) -> None:
    draw = random.Random(seed)
    site = Site(dict.fromkeys(OWNERS, NODES), slots=SLOTS, owners=OWNERS)
    for name in OWNERS:
        read(site, name)
    site.plan_of = easy  # type: ignore[assignment]
    for _ in range(25):
        match draw.choice("ssswrre"):
            case "s":
                site.submit(draw.randint(1, NODES * SLOTS), user=draw.choice(("ann", "bob")))
            case "w":
                site.now += draw.choice((1.0, 30.0))
            case "r":
                read(site, draw.choice(list(OWNERS)))
            case "e":
                for job in [job for job in site.state.placed if draw.random() < 0.5]:
                    site.run(job)
                    if draw.random() < 0.5:
                        site.finish(job)
        assert most_used(site, site.state.schedule.plan) <= SLOTS
    assert site.orders


def test_what_a_twin_has_read_itself_is_counted_once() -> None:
    site = Site(dict.fromkeys(OWNERS, NODES), slots=SLOTS, owners=OWNERS)
    read(site, "m@ann")
    read(site, "m@bob")
    job = site.submit(1, user="ann")

    def busy() -> list[str]:
        return [run.id for run in snapshot(site.state, site.now).running]

    assert busy() == [job, f"{job}@m@bob"]
    site.run(job)
    read(site, "m@bob")
    assert len(busy()) == 3, "a reading that may have begun before the start counts for nothing"
    site.now += 60.0
    read(site, "m@bob")
    assert busy() == [job, job], "now it is in the twin's own reading"
