"""Siblings: a job waits in every queue that may run it, and runs once, where it is ready first."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.effects import AppendEvent, SaveJob, SendOrder
from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import Abort, Arrange, Forget, Hello, Prepare, Report, Start
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, Drain, Hold, Resume, RoundNow, SetPriority, Update
from coalloc.core.jobs.occupation import occupation
from coalloc.core.starts.negotiation import in_words
from coalloc.core.starts.waits import SHARED_S
from coalloc.daemon.queries.job_views import job_row
from coalloc.model.settings import PriorityConfig
from coalloc.model.sites.parts import PartReport, PartState
from coalloc.model.values import replace
from tests.unit.core.starts.test_negotiation import Crowded

READY, WAITING, REFUSED = PartState.READY, PartState.WAITING, PartState.REFUSED


def waiting(*names: str, procs: int = 1, **settings: Any) -> tuple[Crowded, str]:
    """A job that waits in the queues of all clusters."""
    site = Crowded(dict.fromkeys(names or ("a", "b"), 2), **settings)
    job = site.submit(procs)
    site.waits(job, *site.sizes)
    return site, job


def sent(site: Crowded, job: str) -> list[tuple[str, int, int]]:
    return [(c, o.attempt, o.part) for c, o in site.orders_for(job, Prepare)]


def ended(site: Crowded, job: str) -> list[str]:
    return [c for c, _ in site.orders_for(job, Abort)]


def started(site: Crowded, job: str) -> list[str]:
    return [c for c, _ in site.orders_for(job, Start)]


def look(site: Crowded) -> None:
    for name in site.sizes:
        if site.state.clusters[name].connected:
            site.read(name, waiting=3, busy=True)
    site.ask(RoundNow(), operator=True)


def of_part(job: str, part: int, state: PartState, **fields: Any) -> PartReport:
    return PartReport(job=job, attempt=1, part=part, state=state, **fields)


def test_a_job_waits_as_a_whole_in_each_queue_and_shows_it() -> None:
    site, job = waiting("a", "b", procs=2)
    assert sent(site, job) == [("a", 1, 0), ("b", 1, 1)]
    orders = [order for _, order in site.orders_for(job, Prepare)]
    assert [dict(o.all_nodes) == dict(o.nodes) for o in orders] == [True, True]
    assert [(o.first_rank, o.size, o.queue.hold_s) for o in orders if o.queue] == [(0, 2, 0.0)] * 2
    assert [o.rendezvous.split(":")[0] for o in orders] == ["a1", "b1"]
    site.tell(job, "a", WAITING, expected=site.now + 90.0, detail="Priority")
    site.tell(job, "b", WAITING, expected=site.now + 40.0, detail="Resources")
    told = in_words(site.state, site.job(job), site.now)
    first = "other jobs of a go first (Priority)"
    assert told == (
        site.now + 40.0,
        "others_first",
        f"{first}; other jobs of b go first (Resources)",
    )
    row = job_row(site.job(job), site.state, site.now)
    assert (row.procs, row.clusters, row.start_estimate) == (2, ("a", "b"), site.now + 40.0)
    look(site)
    assert len(sent(site, job)) == 2, "each once"


def test_the_first_that_is_ready_runs_and_the_others_are_withdrawn_in_the_same_turn() -> None:
    site, job = waiting("a", "b", "c")
    site.grants(job, "b", "b2")
    assert [(c, list(o.all_nodes)) for c, o in site.orders_for(job, Arrange)] == [("b", ["b2"])]
    assert not ended(site, job), "a grant is no choice"
    before = len(site.effects)
    site.tell(job, "b", READY, nodes={"b2": 1})
    turn = site.effects[before:]
    assert [(e.cluster, type(e.order)) for e in turn if isinstance(e, SendOrder)] == [
        ("a", Abort),
        ("c", Abort),
        ("b", Start),
    ]
    saved = [e.record for e in turn if isinstance(e, SaveJob)][-1]
    assert (saved.state, saved.siblings, saved.clusters) == (JobState.STARTING, 0, ("b",))
    assert saved.rendezvous == saved.parts[0].rendezvous
    assert saved.rendezvous.startswith("b2:")
    event = next(e for e in turn if isinstance(e, AppendEvent) and e.kind == "siblings_withdrawn")
    assert (event.fields["clusters"], event.fields["granted"]) == ("a,c", "b")
    site.say(job, PartState.RUNNING, started=site.now)
    assert site.job(job).state is JobState.RUNNING
    assert started(site, job) == ["b"]


def test_of_two_that_are_ready_in_one_step_one_runs() -> None:
    site, job = waiting()
    site.grants(job, "a", "a1")
    site.now += 2.0
    site.tell(job, "b", READY, nodes={"b2": 1})
    late = of_part(job, 0, READY, nodes={"a1": 1})
    for _ in range(3):
        site.report("a", late)
    assert started(site, job) == ["b"]
    assert set(ended(site, job)) == {"a"}
    assert site.job(job).idle_node_s == pytest.approx(2.0), "what the other held is counted"
    site.report("a", of_part(job, 0, REFUSED, reason="aborted"))
    assert [c for c, _ in site.orders_for(job, Forget)] == ["a"]
    site.say(job, PartState.RUNNING, started=site.now)
    site.finish(job)
    assert site.job(job).state is JobState.COMPLETED
    site.report("a", late)
    assert started(site, job) == ["b"]


def test_a_withdrawal_that_is_lost_is_repeated_until_the_sibling_has_ended() -> None:
    site, job = waiting()
    site.say(job, READY, cluster="a", nodes={"a1": 1})
    assert ended(site, job) == ["b"]
    # its executor has followed the order, which its batch system has not
    for state in (WAITING, PartState.PREPARING, READY):
        site.report("b", of_part(job, 1, state))
    assert ended(site, job) == ["b"] * 4
    assert started(site, job) == ["a"]


def test_a_crash_in_any_turn_loses_neither_the_job_nor_the_choice() -> None:
    site, job = waiting()
    site.grants(job, "a", "a2")
    fresh = site.restarted()
    record = fresh.state.jobs[job]
    assert (record.siblings, record.clusters) == (2, ("a", "b"))
    fresh.report("b", of_part(job, 1, READY, nodes={"b1": 1}))
    assert [c for c, _ in fresh.orders_for(job, Start)] == ["b"]
    again = fresh.restarted()
    assert again.state.jobs[job].clusters == ("b",)
    again.report("a", of_part(job, 0, READY, nodes={"a2": 1}))
    again.report("b", of_part(job, 1, READY, nodes={"b1": 1}))
    assert not again.orders_for(job, Start), "the outbox has it"
    assert [c for c, _ in again.orders_for(job, Abort)] == ["a"]


def test_after_a_restoration_nothing_is_chosen_until_every_cluster_was_heard_of() -> None:
    site, job = waiting()
    site.state.presence.unreconciled.add("b")
    site.tell(job, "a", READY, nodes={"a1": 1})
    site.tell(job, "a", READY, nodes={"a1": 1})
    assert not started(site, job)
    parts = (of_part(job, 1, WAITING),)
    site.do(StatementReceived(statement=Hello(cluster="b", parts=parts)))
    site.tell(job, "a", READY, nodes={"a1": 1})
    assert started(site, job) == ["a"]
    assert ended(site, job) == ["b"]


def test_a_sibling_that_is_refused_is_dropped_and_sent_again_after_a_pause() -> None:
    site, job = waiting(backoff_first_s=5.0)
    site.tell(job, "a", REFUSED, reason="node_unavailable", detail="down")
    assert site.job(job).clusters == ("b",)
    assert site.job(job).state is JobState.PREPARING
    look(site)
    assert len(sent(site, job)) == 2
    site.wait(5.0)
    look(site)
    assert sent(site, job)[2:] == [("a", 1, 2)], "with an index that was not used before"
    site.waits(job, "a")
    site.tell(job, "a", READY, nodes={"a2": 1})
    assert (started(site, job), ended(site, job)) == (["a"], ["b"])
    old = Report(cluster="a", last_seq=1, parts=(of_part(job, 0, READY),))
    site.do(StatementReceived(statement=old))
    (order,) = (order for cluster, order in site.orders_for(job, Abort) if cluster == "a")
    assert order.claim_only, "what runs there is the other one"


def test_the_last_sibling_that_is_refused_gives_the_attempt_up() -> None:
    site, job = waiting(backoff_first_s=5.0)
    for name in ("a", "b"):
        site.tell(job, name, REFUSED, reason="node_unavailable", detail="down")
    record = site.job(job)
    assert (record.state, record.parts, record.siblings) == (JobState.PENDING, (), 0)
    assert record.detail == "b: down"
    assert not ended(site, job)


def test_a_cluster_that_will_not_take_it_is_barred() -> None:
    site, job = waiting(backoff_first_s=1.0)
    site.tell(job, "a", REFUSED, reason="not_permitted", detail="no")
    assert dict(site.job(job).barred) == {"a": "no"}
    site.wait(60.0)
    look(site)
    assert site.job(job).clusters == ("b",)


def test_a_limit_on_submits_is_no_failure_and_holds_for_the_user_there() -> None:
    site, job = waiting(backoff_first_s=1.0, backoff_max_s=100.0)
    for _ in range(5):
        site.tell(job, "a", REFUSED, reason="over_limit", detail="AssocMaxSubmitJobLimit")
        site.wait(101.0)
        look(site)
        assert site.job(job).state is JobState.PREPARING
        assert not site.job(job).barred
    assert [c for c, _, _ in sent(site, job)].count("a") == 6
    site.tell(job, "a", REFUSED, reason="over_limit", detail="AssocMaxSubmitJobLimit")
    other, theirs = site.submit(1), site.submit(1, user="bob")
    assert (site.job(other).clusters, site.job(theirs).clusters) == (("b",), ("a", "b"))


def test_a_granted_sibling_that_never_gets_ready_is_dropped() -> None:
    site, job = waiting(prepare_timeout_s=10.0, backoff_first_s=1.0)
    site.wait(3600.0)
    assert len(site.job(job).parts) == 2, "who waits has no reason to give up"
    site.grants(job, "a", "a1")
    site.wait(10.5)
    record = site.job(job)
    assert (record.clusters, record.state, ended(site, job)) == (("b",), JobState.PREPARING, ["a"])
    assert record.idle_node_s == pytest.approx(10.5)
    site.wait(30.0)
    look(site)
    assert len(sent(site, job)) == 2, "orders name an attempt: its end has to be heard of first"
    site.report("a", of_part(job, 0, READY, nodes={"a1": 1}))
    assert not started(site, job)
    site.report("a", of_part(job, 0, REFUSED, reason="aborted"))
    site.wait(2.0)
    look(site)
    assert sent(site, job)[2:] == [("a", 1, 2)]
    site.tell(job, "b", READY, nodes={"b1": 1})
    assert ended(site, job)[-1] == "a", "an older abort does not stand for it"


def test_a_sibling_is_lost_with_the_state_of_its_executor_and_the_others_wait_on() -> None:
    site, job = waiting(backoff_first_s=1.0)
    for name in ("a", "b"):
        site.state.clusters[name].identity = "old"
    site.do(StatementReceived(statement=Hello(cluster="a", identity="new")))
    site.now += 60.0
    site.state.clusters["a"].connected = False
    site.do(StatementReceived(statement=Hello(cluster="a", identity="new")))
    assert site.job(job).clusters == ("b",)
    assert site.job(job).state is JobState.PREPARING
    look(site)
    assert [c for c, _, part in sent(site, job) if part == 2] in ([], ["a"])
    site.tell(job, "b", READY, nodes={"b1": 1})
    assert started(site, job) == ["b"]


def test_replayed_reports_change_nothing() -> None:
    site, job = waiting()
    site.grants(job, "a", "a2")
    before = site.job(job)
    for state in (WAITING, PartState.PREPARING):
        site.tell(job, "a", state)
    assert site.job(job) == before


def test_a_cancel_a_hold_and_a_change_withdraw_all() -> None:
    for command in (Cancel, Hold):
        site, job = waiting()
        site.ask(command(job=job))
        assert ended(site, job) == ["a", "b"]
        assert site.job(job).state in {JobState.CANCELLED, JobState.HELD}
        site.report("a", of_part(job, 0, READY, nodes={"a1": 1}))
        assert not started(site, job)
    for change in (Update(job=job, name="other"), SetPriority(job=job, priority=1.0)):
        site, job = waiting()
        site.ask(change, operator=True)
        assert ended(site, job) == ["a", "b"]
        look(site)
        assert sent(site, job)[2:] == [("a", 2, 0), ("b", 2, 1)]


def test_a_job_that_has_nodes_is_not_taken_back() -> None:
    site, job = waiting()
    site.grants(job, "a", "a1")
    site.ask(Hold(job=job))
    assert (site.job(job).state, ended(site, job)) == (JobState.PREPARING, [])


def test_free_slots_elsewhere_are_tried_beside_the_queues() -> None:
    site, job = waiting("a", "b", "c")
    site.tell(job, "c", REFUSED, reason="node_unavailable", detail="down")
    site.wait(60.0)
    site.read("c", waiting=0, busy=False)
    site.ask(RoundNow(), operator=True)
    (cluster, order) = site.orders_for(job, Prepare)[-1]
    assert (cluster, order.queue.at_once) == ("c", True)
    assert site.job(job).deadline == pytest.approx(site.now + 10.0)
    site.tell(job, "c", READY)
    assert (started(site, job), ended(site, job)) == (["c"], ["a", "b"])


def test_a_drained_cluster_gets_one_when_it_is_back() -> None:
    site = Crowded({"a": 2, "b": 2})
    site.ask(Drain(target="b"), operator=True)
    job = site.submit(1)
    assert site.job(job).clusters == ("a",)
    site.waits(job, "a")
    site.ask(Resume(target="b"), operator=True)
    look(site)
    assert site.job(job).clusters == ("a", "b")


def test_what_may_start_now_goes_to_one_cluster_until_it_comes_to_wait() -> None:
    site = Crowded({"a": 2, "b": 2})
    site.read("a", waiting=0, busy=False)
    job = site.submit(1)
    assert sent(site, job) == [("a", 1, 0)]
    site.waits(job, "a")
    assert sent(site, job) == [("a", 1, 0), ("b", 1, 1)]


def test_a_cluster_that_is_ours_alone_keeps_our_order() -> None:
    site = Crowded({"a": 2, "b": 2})
    site.now += 2.0 * SHARED_S
    site.read("a", waiting=1, busy=True)
    site.read("b", waiting=0, busy=False)
    first = site.submit(2)
    assert site.job(first).clusters == ("b",)
    site.run(first)
    job = site.submit(1)
    assert site.job(job).clusters == ("a",), "b is full of our own"


def test_two_jobs_with_siblings_do_not_give_way_to_each_other() -> None:
    site = Crowded({"a": 2, "b": 2})
    jobs = [site.submit(1), site.submit(1)]
    for job, name in zip(jobs, ("a", "b"), strict=True):
        site.waits(job, "a", "b")
        site.grants(job, name, f"{name}1")
    assert [site.job(job).state for job in jobs] == [JobState.PREPARING] * 2
    for job, name in zip(jobs, ("a", "b"), strict=True):
        site.tell(job, name, READY, nodes={f"{name}1": 1})
        assert started(site, job) == [name]


def test_who_weighs_less_is_behind_the_best_of_ours_in_a_queue() -> None:
    site = Crowded({"a": 2, "b": 2})
    weights = (8.0, 8.0, 2.0, 16.0)
    jobs = [site.submit(1, job={"weight": weight}) for weight in weights]
    for job, nice in zip(jobs, (0, 0, 200, 0), strict=True):
        terms = [order.queue for _, order in site.orders_for(job, Prepare)]
        assert [each.nice for each in terms if each] == [nice, nice]


def test_what_waits_in_queues_counts_before_the_same_projects_other_jobs() -> None:
    site = Crowded({"a": 2}, priority=PriorityConfig(shares=10.0, step_s=60.0))
    mine = [site.submit(1) for _ in range(3)]
    theirs = site.submit(1, user="bob")
    nice = [o.queue.nice for job in (*mine, theirs) for _, o in site.orders_for(job, Prepare)]
    assert nice[0] == 0
    assert sorted(nice[:3]) == nice[:3]
    assert 0 < nice[1] < nice[2]


@pytest.mark.parametrize("later", [False, True])
def test_of_clusters_that_start_it_equally_soon_the_one_that_bills_less(later: bool) -> None:
    site = Crowded({"a": 2, "b": 2})
    for name, cpus in (("a", 8), ("b", 1)):
        site.read(name, waiting=0, busy=later and name == "b")
        cluster = site.state.clusters[name]
        assert cluster.reading is not None
        nodes = tuple(replace(node, slot_cpus=cpus) for node in cluster.reading.nodes)
        cluster.reading = replace(cluster.reading, nodes=nodes)
    assert site.job(site.submit(1)).clusters == (("a",) if later else ("b",))


def test_a_cluster_that_is_drained_is_left_by_those_that_wait_there() -> None:
    site, job = waiting(backoff_first_s=1.0)
    site.ask(Drain(target="a"), operator=True)
    assert (site.job(job).clusters, ended(site, job)) == (("b",), ["a"])
    site.ask(Drain(target="b"), operator=True)
    assert site.job(job).state is JobState.PENDING
    site.report("a", of_part(job, 0, REFUSED, reason="aborted"))
    for name in ("a", "b"):
        site.ask(Resume(target=name), operator=True)
    site.wait(2.0)
    look(site)
    assert [(c, a) for c, a, _ in sent(site, job)[2:]] == [("a", 2), ("b", 2)]


def test_free_nodes_behind_others_are_no_start_of_now() -> None:
    site = Crowded({"a": 2, "b": 2})
    for name in ("a", "b"):
        site.read(name, waiting=1, busy=False)
    job = site.submit(1)
    assert site.job(job).clusters == ("a", "b")
    assert site.job(job).deadline is None, "a slow submission is not late"
    assert occupation(site.state, site.now).free == dict.fromkeys(("a1", "a2", "b1", "b2"), 1)
