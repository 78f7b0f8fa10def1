"""One machine that several owners read: no slot of it is planned, or started on, twice."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import Read
from coalloc.core.jobs.occupation import occupation
from coalloc.core.jobs.twins import reader_of
from coalloc.core.rounds.snapshots import snapshot
from coalloc.model.plan import Plan
from coalloc.model.sites.parts import PART_ENDED, PartState
from coalloc.model.sites.reading import MarkedClaim
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.registry import POLICIES
from tests.support.core_site import Site, reading

NODES, SLOTS = 3, 2
OWNERS = {"m@ann": "ann", "m@bob": "bob", "n@eve": "eve"}
KEY = "ssh-ed25519 SHA256:x main"


def read(site: Site, name: str, local: int = 0) -> None:
    """Have a cluster read as its executor would: what runs of others' jobs, and of no one's own.

    `local`: slots of the first node that a job of nobody here has.
    """
    user = OWNERS[name]
    parts = [
        (record, part)
        for record in site.state.placed_records()
        for part in record.parts
        if part.state is PartState.RUNNING and OWNERS[part.cluster] != user and name[0] == "m"
    ]
    work = [
        ({node.rpartition("/")[2]: n for node, n in part.held.items()}, record)
        for record, part in parts
    ]
    held = [nodes for nodes, _ in work] + [{"n1": local}] * (local > 0)
    others = tuple(
        Running(
            id=f"{name}:{number}",
            nodes={f"{name}/{node}": n for node, n in nodes.items()},
            start=site.now,
            end=site.now + 50.0,
            ours=False,
        )
        for number, nodes in enumerate(held)
    )
    mark: dict[str, Any] = {"claim": "c", "submitted": 0.0, "holds": True, "ours": False}
    claims = tuple(
        MarkedClaim(job=record.id, attempt=record.attempt, id=f"{name}:{number}", **mark)
        for number, (_, record) in enumerate(work)
    )
    told = replace(reading(name, NODES, slots=SLOTS), running=others, claims=claims)
    told = replace(told, site=KEY if name[0] == "m" else "")
    site.do(StatementReceived(statement=Read(cluster=name, reading=told)))


def name_reader(site: Site) -> None:
    """Have ann's executor read the machine for all of its owners."""
    readings = replace(site.state.settings.readings, readers=("m@ann",))
    site.state.settings = replace(site.state.settings, readings=readings)


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
    if seed % 2:
        name_reader(site)
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
    assert busy() == [job, "m@bob:0"], "now it is in the twin's own reading"


def test_a_named_readers_reading_is_that_of_all_owners() -> None:
    site = Site(dict.fromkeys(OWNERS, NODES), slots=SLOTS, owners=OWNERS)
    name_reader(site)
    for name in OWNERS:
        read(site, name)
    assert [reader_of(site.state, name, site.now) for name in OWNERS] == ["", "m@ann", ""]
    for user in ("bob", "ann"):
        site.run(site.submit(1, user=user))
    site.now += 60.0
    read(site, "m@ann", local=1)
    bob = site.state.clusters["m@bob"]
    assert bob.read_at == site.now
    assert [dict(work.nodes) for work in bob.running] == [{"m@bob/n1": 1}], "and not his own job"
    free = occupation(site.state, site.now).free
    assert sum(free[node.name] for node in bob.nodes) == NODES * SLOTS - 3, "his, hers, the local"
    bob.has_failed = True
    assert reader_of(site.state, "m@bob", site.now) == "", "nobody reads for one out of reach"
    bob.has_failed = False
    site.now += site.state.settings.readings.max_age_s + 1.0
    assert reader_of(site.state, "m@bob", site.now) == "", "one that is silent reads for nobody"
