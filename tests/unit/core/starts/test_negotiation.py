"""Claims that wait in the clusters' queues: parts meet, or all is given back."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.effects import SaveMeta
from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import Abort, Arrange, Hasten, Prepare, Read, Start
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, Done, PauseRounds, ResumeRounds
from coalloc.core.base.state_tables import ClaimWait, Learning
from coalloc.core.coordinator import Coordinator, StoredState
from coalloc.core.jobs.occupation import occupation
from coalloc.core.starts.meetings import PUT_OFF_S
from coalloc.core.starts.negotiation import in_words, late_clusters
from coalloc.core.starts.queued_claims import wanted_slots
from coalloc.core.starts.waits import SHARED_S, WAITS_KEY, expected_wait, kept_waits
from coalloc.model.plan import Placement, Plan, Reason
from coalloc.model.sites.parts import PartReport, PartState
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.values import replace
from tests.simulation.planning import ahead
from tests.support.core_site import Site, first_fit, reading


class Crowded(Site):
    """Clusters whose nodes others have, and in whose queues others wait."""

    plan_of = staticmethod(lambda snapshot: ahead(first_fit(snapshot), snapshot))

    def __init__(self, clusters: dict[str, int], **settings: Any) -> None:
        super().__init__(clusters, **settings)
        for name in clusters:
            self.read(name, waiting=3, busy=True)

    def read(self, name: str, *, waiting: int, busy: bool, others: str = "x") -> None:
        nodes = reading(name, self.sizes[name])
        taken = {node.name: 1 for node in nodes.nodes} if busy else {}
        work = (Running(id=others, nodes=taken, start=self.now, end=self.now + 3600.0, ours=False),)
        seen = replace(nodes, queues=True, waiting=waiting, running=work if busy else ())
        self.do(StatementReceived(statement=Read(cluster=name, reading=seen)))

    def tell(self, job: str, cluster: str, state: PartState, **fields: Any) -> None:
        record = self.job(job)
        part = next(p for p in record.parts if p.cluster == cluster)
        report = PartReport(job=job, attempt=record.attempt, part=part.index, state=state, **fields)
        self.report(cluster, report)

    def waits(self, job: str, *clusters: str) -> None:
        for name in clusters:
            self.tell(job, name, PartState.WAITING, expected=self.now + 50.0)

    def grants(self, job: str, cluster: str, *nodes: str) -> None:
        self.tell(job, cluster, PartState.PREPARING, nodes=dict.fromkeys(nodes, 1))


def negotiating(**settings: Any) -> tuple[Crowded, str]:
    """A job of three processes on two clusters of two, both of whose claims wait."""
    site = Crowded({"a": 2, "b": 2}, **settings)
    job = site.submit(3)
    assert [c for c, _ in site.orders_for(job, Prepare)] == ["a", "b"]
    site.waits(job, "a", "b")
    return site, job


def test_a_job_is_sent_into_the_queue_of_a_crowded_cluster() -> None:
    site = Crowded({"a": 2})
    job = site.submit(1)
    ((_, order),) = site.orders_for(job, Prepare)
    assert order.queue is not None
    assert not order.queue.at_once
    assert order.queue.hold_s == 0.0
    assert site.job(job).state is JobState.PREPARING


def test_a_job_that_the_plan_leaves_out_takes_its_turn_too() -> None:
    site = Crowded({"a": 2, "b": 2})
    site.plan_of = staticmethod(leaving_out)
    assert [p.cluster for p in site.job(site.submit(2)).parts] == ["a", "b"], "as siblings"
    parts = site.job(site.submit(3)).parts
    assert sorted(sum(part.nodes.values()) for part in parts) == [1, 2]


def test_no_share_is_kept_where_a_job_is_awaited_that_holds_nodes_elsewhere() -> None:
    site, job = negotiating()
    site.solving = False
    site.submit(1)
    assert [wanted_slots(site.state, name, site.now) for name in "ab"] == [1, 1]
    site.grants(job, "a", "a1")
    assert [wanted_slots(site.state, name, site.now) for name in "ab"] == [1, 0]


def test_a_clock_set_back_keeps_no_job_from_its_turn() -> None:
    site = Crowded({"a": 2})
    site.ask(PauseRounds(), operator=True)
    job = site.submit(1)
    site.now -= 600.0
    site.read("a", waiting=3, busy=True)
    site.ask(ResumeRounds(), operator=True)
    assert site.orders_for(job, Prepare)


def test_a_job_that_one_cluster_can_hold_is_not_spread_however_late_it_is_planned() -> None:
    """Readings are as old as they are now, not as they will be then."""
    site = Crowded({"a": 2, "b": 2})
    site.plan_of = staticmethod(spread_later)
    assert [sum(p.nodes.values()) for p in site.job(site.submit(2)).parts] == [2, 2]


def spread_later(snapshot: Snapshot) -> Plan:
    start = snapshot.time + 600.0
    placements = tuple(
        Placement(job=job.id, start=start, end=start + 5.0, nodes={"a1": 1, "b1": 1})
        for job in snapshot.queue
    )
    return replace(first_fit(snapshot), placements=placements, deferred=())


def leaving_out(snapshot: Snapshot) -> Plan:
    plan = first_fit(snapshot)
    left = tuple(replace(deferred, reason=Reason.NOT_SELECTED) for deferred in plan.deferred)
    return replace(plan, deferred=left)


def test_where_others_were_not_seen_lately_our_own_order_is_kept() -> None:
    site = Crowded({"a": 2})
    site.read("a", waiting=0, busy=False)
    site.now += 2.0 * SHARED_S
    site.read("a", waiting=0, busy=False)
    site.submit(2)
    job = site.submit(1)
    assert not site.orders_for(job, Prepare)


def test_free_nodes_are_tried_at_once() -> None:
    site = Crowded({"a": 2})
    site.read("a", waiting=0, busy=False)
    ((_, order),) = site.orders_for(site.submit(1), Prepare)
    assert order.queue is not None
    assert order.queue.at_once


def test_claims_that_wait_are_bounded_for_each_user() -> None:
    site = Crowded({"a": 4}, max_waiting=2)
    jobs = [site.submit(1) for _ in range(4)]
    sent = [job for job in jobs if site.orders_for(job, Prepare)]
    assert sent == jobs[:2]
    site.waits(jobs[0], "a")
    site.grants(jobs[0], "a", "a3")
    assert site.orders_for(jobs[2], Prepare)
    assert not site.orders_for(jobs[3], Prepare)


def test_parts_are_told_of_all_nodes_when_the_last_has_its_own() -> None:
    site, job = negotiating()
    site.grants(job, "b", "b2")
    assert not site.orders_for(job, Arrange)
    site.grants(job, "a", "a2", "a1")
    orders = site.orders_for(job, Arrange)
    assert [c for c, _ in orders] == ["a", "b"]
    assert list(orders[0][1].all_nodes) == ["a2", "a1", "b2"]
    assert orders[0][1].rendezvous.startswith("a2:")
    assert not site.orders_for(job, Start)
    for name in ("a", "b"):
        nodes = {"a": {"a2": 1, "a1": 1}, "b": {"b2": 1}}[name]
        site.tell(job, name, PartState.READY, nodes=nodes)
    assert len(site.orders_for(job, Start)) == 2
    assert [dict(p.nodes) for p in site.job(job).parts] == [{"a2": 1, "a1": 1}, {"b2": 1}]


def test_what_is_said_late_of_a_claim_takes_nothing_back() -> None:
    site, job = negotiating()
    site.grants(job, "b", "b2")
    site.waits(job, "b")
    assert site.job(job).parts[1].granted is not None
    site.grants(job, "a", "a1", "a2")
    assert len(site.orders_for(job, Arrange)) == 2


def test_what_is_held_idle_is_bounded_and_then_all_is_given_back() -> None:
    site, job = negotiating(max_idle_node_s=30.0)
    site.grants(job, "a", "a1", "a2")
    site.wait(14.0)
    assert site.job(job).state is JobState.PREPARING
    site.wait(1.5)
    record = site.job(job)
    assert record.state is JobState.PENDING
    assert record.idle_node_s == pytest.approx(31.0)
    assert "held 31 node-seconds" in record.detail
    assert sorted(c for c, _ in site.orders_for(job, Abort)) == ["a", "b"]


def test_of_two_jobs_that_hold_what_the_other_waits_for_the_younger_gives_way() -> None:
    site = Crowded({"a": 2, "b": 2})
    first, second = site.submit(3), site.submit(3)
    for job in (first, second):
        site.waits(job, "a", "b")
    site.grants(first, "a", "a1", "a2")
    site.grants(second, "b", "b1")
    assert site.job(first).state is JobState.PREPARING
    assert site.job(second).state is JobState.PENDING
    assert site.job(second).detail == f"a: gives way to job {first}, which waits for its nodes"
    assert not site.orders_for(first, Abort)
    assert sorted(c for c, _ in site.orders_for(second, Abort)) == ["a", "b"]


def test_what_a_job_has_held_idle_is_told_at_its_start() -> None:
    site, job = negotiating()
    site.grants(job, "a", "a1", "a2")
    site.wait(5.0)
    site.grants(job, "b", "b1")
    site.tell(job, "a", PartState.READY, nodes={"a1": 1, "a2": 1})
    site.tell(job, "b", PartState.READY, nodes={"b1": 1})
    site.now += 1.0
    for name in ("a", "b"):
        site.tell(job, name, PartState.RUNNING, started=site.now)
    said = site.notes("job_started")[0]
    assert said["idle_node_s"] == pytest.approx(13.0)
    assert said["idle_for_others_node_s"] == pytest.approx(10.0)


def test_a_claim_waits_on_where_there_is_no_other_combination() -> None:
    site, job = negotiating(max_wait_s=60.0)
    site.wait(61.0)
    assert site.job(job).state is JobState.PREPARING
    assert not site.orders_for(job, Abort)


def test_a_cancel_while_one_part_holds_and_another_waits() -> None:
    site, job = negotiating()
    site.grants(job, "a", "a1", "a2")
    assert isinstance(site.ask(Cancel(job=job)), Done)
    assert site.job(job).state is JobState.CANCELLED
    assert sorted(c for c, _ in site.orders_for(job, Abort)) == ["a", "b"]


def test_a_restarted_daemon_goes_on_with_the_negotiation() -> None:
    site, job = negotiating()
    site.grants(job, "a", "a1", "a2")
    fresh = site.restarted()
    record = fresh.state.jobs[job]
    assert record.parts[0].granted is not None
    assert record.parts[1].is_waiting


def put_off(**settings: Any) -> tuple[Crowded, str]:
    """A job on two clusters in whose queues others wait."""
    site = Crowded({"a": 2, "b": 2}, **settings)
    site.state.learning.waits = {"a": (ClaimWait(40.0, 3),), "b": (ClaimWait(10.0, 3),)}
    job = site.submit(3)
    site.waits(job, "a", "b")
    return site, job


def next_in(site: Crowded, job: str, *clusters: str) -> list[str]:
    """Its parts are the next there, and the clusters are read; those that are hastened."""
    before = len(site.orders_for(job, Hasten))
    for name in clusters:
        site.tell(job, name, PartState.WAITING, is_next=True, detail="BeginTime")
    site.read("a", waiting=3, busy=True)
    return sorted(name for name, _ in site.orders_for(job, Hasten)[before:])


def test_parts_are_put_off_until_each_is_the_next() -> None:
    site, job = put_off()
    assert all(o.queue.begin_s == PUT_OFF_S for _, o in site.orders_for(job, Prepare))
    before = site.job(job).parts[1].expected
    site.tell(job, "b", PartState.WAITING, expected=site.now + 500.0, detail="BeginTime")
    assert site.job(job).parts[1].expected == before
    assert next_in(site, job, "a") == []
    site.wait(7.0)
    assert next_in(site, job, "b") == ["a", "b"]
    assert [part.asked for part in site.job(job).parts] == [site.now, site.now]
    assert next_in(site, job, "a", "b") == [], "once"


def test_the_part_that_takes_longest_is_opened_first() -> None:
    """Two slots of two come after one run time and half of it more, one of two after half of it."""
    site, job = put_off()
    for name in ("a", "b"):
        site.state.clusters[name].run_s = 40.0
    wide = max(site.job(job).parts, key=lambda part: len(part.nodes)).cluster
    other = next(name for name in ("a", "b") if name != wide)
    assert next_in(site, job, "a", "b") == [wide]
    site.tell(job, wide, PartState.WAITING, is_next=False)
    site.read(wide, waiting=3, busy=False)
    assert next_in(site, job) == [], "others go before it again"
    site.tell(job, wide, PartState.WAITING, is_next=True)
    site.read(wide, waiting=3, busy=False)
    assert [name for name, _ in site.orders_for(job, Hasten)] == [wide, other]


def test_jobs_gather_together_only_where_their_parts_fit() -> None:
    site, job = put_off()
    other = site.submit(3)
    site.waits(other, "a", "b")
    assert next_in(site, job, "a", "b") == ["a", "b"]
    assert next_in(site, other, "a", "b") == [], "one would hold what the other waits for"
    site.ask(Cancel(job=job))
    assert next_in(site, other) == ["a", "b"]


def test_where_nothing_is_known_of_waits_parts_are_put_off_for_long_but_not_for_ever() -> None:
    site, job = put_off()
    site.state.learning.waits = {}
    site.wait(3600.0)
    assert next_in(site, job, "a") == []
    site.wait(1.0)
    assert sorted(name for name, _ in site.orders_for(job, Hasten)) == ["a", "b"]


def test_a_queue_that_says_nothing_of_places_is_waited_for_twice_as_long_as_others_do() -> None:
    site, job = put_off()
    site.wait(2.0 * 40.0)
    assert not site.orders_for(job, Hasten)
    site.wait(2.0 * 40.0)  # 40 s for one node are 80 s for two
    assert sorted(name for name, _ in site.orders_for(job, Hasten)) == ["a", "b"]


def test_where_a_later_begin_costs_the_place_nothing_is_put_off() -> None:
    site = Crowded({"a": 2, "b": 2})
    seen = site.state.clusters["a"].reading
    assert seen is not None
    seen = replace(seen, keeps_places=False)
    site.do(StatementReceived(statement=Read(cluster="a", reading=seen)))
    job = site.submit(3)
    begins = {name: order.queue.begin_s for name, order in site.orders_for(job, Prepare)}
    assert begins == {"a": 0.0, "b": PUT_OFF_S}


def test_run_times_of_local_jobs_are_learnt_from_those_that_are_gone() -> None:
    site = Crowded({"a": 2, "b": 2})
    site.now += 30.0
    site.read("a", waiting=3, busy=False)
    assert site.state.clusters["a"].run_s == pytest.approx(30.0)


def test_who_is_granted_unforeseen_hastens_the_others() -> None:
    site, job = put_off()
    site.grants(job, "a", "a1", "a2")
    assert [c for c, _ in site.orders_for(job, Hasten)] == ["b"]


def test_a_wait_that_was_given_up_counts_as_long_as_it_was() -> None:
    site, job = put_off(max_idle_node_s=30.0)
    site.grants(job, "a", "a1", "a2")
    site.wait(15.5)
    assert site.job(job).state is JobState.PENDING
    assert site.job(job).late == ("b",)
    assert site.state.learning.waits["b"][-1].seconds == pytest.approx(15.5)
    assert site.state.learning.waits["b"][-1].was_put_off


def test_a_part_that_is_put_off_is_not_late() -> None:
    site, job = put_off()
    for name in ("a", "b"):
        site.state.clusters[name].run_s = 40.0
    (wide,) = next_in(site, job, "a", "b")
    other = "a" if wide == "b" else "b"
    site.tell(job, wide, PartState.WAITING, is_next=True, expected=site.now + 50.0)
    record = site.job(job)
    start, reason, text = in_words(site.core.state, record, site.now) or (None, "", "")
    assert reason == "others_first"
    assert text == f"other jobs of {wide} go first; {other} is asked for when it is the turn there"
    assert start == pytest.approx(site.now + 50.0)
    assert late_clusters(record, site.now + 59.0) == (wide,)


def test_local_jobs_tell_how_long_the_first_claim_will_wait() -> None:
    """Nothing of ours has waited yet; the newest of theirs that are as wide count."""
    site = Crowded({"a": 2, "b": 2})
    local = {"a": ((90.0, 8), (40.0, 2), (30.0, 1)), "b": ((4.0, 1),)}
    for name, waited in local.items():
        seen = site.state.clusters[name].reading
        assert seen is not None
        site.do(
            StatementReceived(statement=Read(cluster=name, reading=replace(seen, waited=waited)))
        )
    assert expected_wait(site.state, "a", 3, width=2.0) == pytest.approx(35.0), "those of 1 and 2"
    assert expected_wait(site.state, "b", 3, width=2.0) == pytest.approx(8.0), "in proportion"


def test_waits_of_about_the_same_width_count() -> None:
    site = Crowded({"a": 4})
    narrow, wide = ClaimWait(10.0, 0, width=1.0), ClaimWait(100.0, 0, width=8.0)
    site.state.learning.waits = {"a": (narrow, narrow, narrow, wide, wide)}
    assert expected_wait(site.state, "a", 0, width=1.0) == 10.0
    assert expected_wait(site.state, "a", 0, width=5.0) == 100.0
    assert expected_wait(site.state, "a", 0, width=32.0) == 320.0, "none is as wide: in proportion"


def test_waits_are_kept_for_the_next_daemon() -> None:
    site = Crowded({"a": 2, "b": 2})
    job = site.submit(2)
    site.waits(job, "a")
    site.wait(12.0)
    site.grants(job, "a", "a1", "a2")
    kept = [e for e in site.effects if isinstance(e, SaveMeta) and e.key == f"{WAITS_KEY}a"]
    (wait,) = kept_waits(kept[-1].value)
    assert wait.seconds == pytest.approx(12.0)
    assert (wait.width, wait.ahead, wait.was_put_off) == (2.0, 3, False)
    later = Coordinator(site.state.settings, StoredState(learning=Learning(waits={"a": (wait,)})))
    assert expected_wait(later.state, "a", 0) == pytest.approx(3.0)


def test_a_claim_that_waits_takes_no_node() -> None:
    site = Crowded({"a": 2})
    job = site.submit(2)
    site.waits(job, "a")
    site.read("a", waiting=1, busy=False)
    assert occupation(site.state, site.now).free == {"a1": 1, "a2": 1}


def test_who_is_refused_behind_others_is_tried_when_their_queue_moves() -> None:
    site = Site({"a": 1}, backoff_max_s=300.0)
    job = site.submit(1)
    site.say(job, PartState.REFUSED, reason="others_first", detail="insufficient priority")
    assert site.job(job).detail == "other jobs of a go first"
    assert site.job(job).not_before == pytest.approx(site.now + 300.0)
    crowd = replace(reading("a", 1), waiting=2)
    site.do(StatementReceived(statement=Read(cluster="a", reading=crowd)))
    assert len(site.orders_for(job, Prepare)) == 1
    site.wait(1.0)
    site.do(StatementReceived(statement=Read(cluster="a", reading=replace(crowd, waiting=1))))
    assert len(site.orders_for(job, Prepare)) == 2
