"""Late moves: a job leaves the queue of a batch system for a much earlier start elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.effects import AppendEvent
from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import ABILITIES, Abort, Forget, Hello, Prepare, Start, Withdraw
from coalloc.core.base.records import ClaimWait, JobState
from coalloc.core.base.requests import Drain, Reserve, Resume, RoundNow
from coalloc.core.starts.late_moves import expected_start
from coalloc.core.starts.negotiation import in_words
from coalloc.model.sites.parts import PartState
from tests.unit.core.starts.test_negotiation import Crowded

MARGIN_S = 300.0
RUN_S = 60.0
"""As the plans of these tests have it."""


def waiting(
    procs: int = 1,
    sizes: dict[str, int] | None = None,
    *,
    expected_s: float = 3600.0,
    is_whole: bool = False,
    **more: Any,
) -> tuple[Crowded, str]:
    """A job that waits in a's queue, while all other clusters are full too."""
    settings = {"move_margin_s": MARGIN_S, **more}
    site = Crowded(sizes or {"a": 2, "b": 2}, **settings)
    for name in site.sizes:
        site.do(StatementReceived(statement=Hello(cluster=name, abilities=ABILITIES)))
    job = site.submit(procs, job={"base_time": RUN_S, "one_cluster": is_whole})
    assert [c for c, _ in site.orders_for(job, Prepare)] == ["a"]
    site.tell(job, "a", PartState.WAITING, expected=site.now + expected_s)
    assert not site.orders_for(job, Withdraw)
    return site, job


def open_up(site: Crowded, name: str) -> None:
    """All work of a cluster ends, and nobody waits there any more."""
    site.read(name, waiting=0, busy=False)


def look(site: Crowded) -> None:
    site.ask(RoundNow(), operator=True)


def leave(site: Crowded, job: str, cluster: str = "a") -> None:
    site.tell(job, cluster, PartState.REFUSED, reason="withdrawn", detail="left the queue")


def history(site: Crowded, job: str) -> list[str]:
    return [e.kind for e in site.effects if isinstance(e, AppendEvent) and e.job == job]


def test_a_job_moves_to_a_cluster_that_has_become_free_and_runs_there() -> None:
    site, job = waiting()
    open_up(site, "b")
    ((cluster, order),) = site.orders_for(job, Withdraw)
    assert (cluster, order.attempt) == ("a", 1)
    record = site.job(job)
    assert (record.state, record.leaving, record.moves) == (JobState.PREPARING, "a", 1)
    found = in_words(site.core.state, record, site.now)
    assert found is not None
    assert found[2].endswith("a is asked to let it go, for an earlier start elsewhere")
    leave(site, job)
    orders = site.orders_for(job, Prepare)
    assert [(c, o.attempt) for c, o in orders] == [("a", 1), ("b", 2)]
    assert [c for c, _ in site.orders_for(job, Forget)] == ["a"]
    assert not site.orders_for(job, Abort), "it has left by itself"
    site.run(job)
    assert site.job(job).state is JobState.RUNNING
    assert [c for c, _ in site.orders_for(job, Start)] == ["b"]
    kinds = ["job_submitted", "job_placed", "claim_queued", "move_ordered", "job_moved"]
    assert history(site, job) == [*kinds, "job_placed", "job_started"]
    assert site.notes("move_ordered")[0]["gain_s"] == pytest.approx(3600.0)
    assert site.notes("job_moved")[0]["clusters"] == "a"


def test_it_keeps_its_place_and_does_not_go_back() -> None:
    """Even if what was free is taken when it has left."""
    site, job = waiting()
    open_up(site, "b")
    site.read("b", waiting=3, busy=True)
    leave(site, job)
    record = site.job(job)
    assert record.parts[0].cluster == "b", "not where it came from"
    assert record.refusals == 0
    assert (record.leaving, record.moves) == ("", 1)


@pytest.mark.parametrize(
    ("expected_s", "settings"),
    [
        (MARGIN_S - 1.0, {}),  # too little to be gained
        (3600.0, {"move_margin_s": 0.0}),  # the site does not want it
    ],
)
def test_it_stays(expected_s: float, settings: dict[str, Any]) -> None:
    site, job = waiting(expected_s=expected_s, **settings)
    open_up(site, "b")
    look(site)
    assert not site.orders_for(job, Withdraw)
    assert site.job(job).moves == 0


@pytest.mark.parametrize("is_whole", [False, True])
def test_only_a_job_that_may_be_split_moves_to_two_clusters(is_whole: bool) -> None:
    site, job = waiting(2, {"a": 2, "b": 1, "c": 1}, is_whole=is_whole)
    open_up(site, "b")
    assert not site.orders_for(job, Withdraw)
    open_up(site, "c")
    assert bool(site.orders_for(job, Withdraw)) is not is_whole


def test_an_executor_that_does_not_know_the_order_is_not_sent_it() -> None:
    site, job = waiting()
    site.do(StatementReceived(statement=Hello(cluster="a")))
    open_up(site, "b")
    assert not site.orders_for(job, Withdraw)


def test_one_that_is_granted_meanwhile_keeps_its_nodes() -> None:
    site, job = waiting()
    open_up(site, "b")
    assert site.orders_for(job, Withdraw)
    site.grants(job, "a", "a2")
    site.tell(job, "a", PartState.READY, nodes={"a2": 1})
    assert site.job(job).leaving == ""
    site.tell(job, "a", PartState.RUNNING, nodes={"a2": 1}, started=site.now)
    assert site.job(job).state is JobState.RUNNING
    assert [c for c, _ in site.orders_for(job, Prepare)] == ["a"]
    assert site.notes("move_overtaken")[0]["cluster"] == "a"


def test_it_is_ordered_once_and_again_only_if_it_was_not_done() -> None:
    site, job = waiting()
    open_up(site, "b")
    look(site)
    assert len(site.orders_for(job, Withdraw)) == 1, "it is under way"
    site.tell(job, "a", PartState.WAITING, expected=site.now + 3600.0)
    look(site)
    assert len(site.orders_for(job, Withdraw)) == 2, "it was carried out, and the part waits"
    assert site.job(job).moves == 1
    assert history(site, job).count("move_ordered") == 1


def test_a_restart_loses_neither_the_job_nor_the_count() -> None:
    site, job = waiting()
    open_up(site, "b")
    again = site.restarted(move_margin_s=MARGIN_S)
    assert (again.job(job).leaving, again.job(job).moves) == ("a", 1)
    again.say(job, PartState.REFUSED, reason="withdrawn")
    assert [o.attempt for _, o in again.orders_for(job, Prepare)] == [2]
    assert again.job(job).moves == 1
    assert again.notes("job_moved")[0]["clusters"] == "a"


def test_each_further_move_has_to_gain_twice_as_much() -> None:
    site, job = waiting(sizes={"a": 2, "b": 2, "c": 2})
    open_up(site, "b")
    site.read("b", waiting=3, busy=True)
    leave(site, job)
    (part,) = site.job(job).parts
    site.tell(job, part.cluster, PartState.WAITING, expected=site.now + 2.0 * MARGIN_S - 1.0)
    other = "c" if part.cluster == "b" else "b"
    open_up(site, other)
    look(site)
    assert len(site.orders_for(job, Withdraw)) == 1
    site.tell(job, part.cluster, PartState.WAITING, expected=site.now + 2.0 * MARGIN_S + 1.0)
    look(site)
    assert [c for c, _ in site.orders_for(job, Withdraw)] == ["a", part.cluster]
    assert site.job(job).moves == 2


def test_nodes_that_are_kept_for_others_are_no_place() -> None:
    site, job = waiting()
    site.ask(Reserve(targets=("b",), start=site.now + 50.0, name="r"), operator=True)
    open_up(site, "b")
    assert not site.orders_for(job, Withdraw), "it runs for 60 s"


def test_drained_clusters_are_no_place() -> None:
    site, job = waiting()
    site.ask(Drain(target="b"), operator=True)
    open_up(site, "b")
    assert not site.orders_for(job, Withdraw)


def test_no_more_jobs_move_than_there_is_room_for() -> None:
    site = Crowded({"a": 2, "b": 1}, move_margin_s=MARGIN_S)
    for name in site.sizes:
        site.do(StatementReceived(statement=Hello(cluster=name, abilities=ABILITIES)))
    jobs = [site.submit(1, job={"base_time": RUN_S}) for _ in range(3)]
    waits = [job for job in jobs if site.job(job).parts[0].cluster == "a"]
    assert len(waits) >= 2
    for job in waits:
        site.tell(job, "a", PartState.WAITING, expected=site.now + MARGIN_S + 30.0)
    open_up(site, "b")
    moved = [job for job in jobs if site.orders_for(job, Withdraw)]
    assert moved == waits[:1], "the next would have to wait for its end"


def test_the_part_that_is_granted_last_decides_alone() -> None:
    site = Crowded({"a": 2, "b": 2, "c": 3}, move_margin_s=MARGIN_S)
    for name in site.sizes:
        site.do(StatementReceived(statement=Hello(cluster=name, abilities=ABILITIES)))
    site.ask(Drain(target="c"), operator=True)
    job = site.submit(3)
    assert [part.cluster for part in site.job(job).parts] == ["a", "b"]
    for part in site.job(job).parts:
        later = 3600.0 if not part.was_put_off else 50.0
        site.tell(job, part.cluster, PartState.WAITING, expected=site.now + later)
    (last,) = [part.cluster for part in site.job(job).parts if not part.was_put_off]
    site.ask(Resume(target="c"), operator=True)
    open_up(site, "c")
    assert [c for c, _ in site.orders_for(job, Withdraw)] == [last]
    leave(site, job, last)
    assert [part.cluster for part in site.job(job).parts] == ["c"]
    (other,) = {"a", "b"} - {last}
    assert [c for c, _ in site.orders_for(job, Abort)] == [other]


def test_a_turn_elsewhere_counts_as_long_as_the_last_ones_took() -> None:
    site, job = waiting()
    site.state.learning.waits["b"] = (ClaimWait(seconds=100.0, ahead=0),) * 3
    look(site)
    ((_, order),) = site.orders_for(job, Withdraw)
    assert order.attempt == 1
    assert site.notes("move_ordered")[0]["to"] == "b"
    assert site.notes("move_ordered")[0]["wait_elsewhere_s"] == pytest.approx(400.0)


def expected(site: Crowded, job: str) -> float:
    start, part = expected_start(site.state, site.job(job), site.now)
    assert part.cluster == "a"
    return start - site.now


def test_what_is_expected_of_a_claim_that_waits() -> None:
    site, job = waiting(expected_s=500.0)
    assert expected(site, job) == 500.0, "as its batch system says"
    site.now += 500.0 + MARGIN_S - 1.0
    assert expected(site, job) == 0.0, "overdue by less than the margin: any moment"
    site.now += 2.0
    assert expected(site, job) == pytest.approx(801.0), "nothing is known: as long again"
    site.state.learning.waits["a"] = (ClaimWait(seconds=600.0, ahead=0),) * 3
    ahead = site.job(job).parts[0].ahead
    assert expected(site, job) == pytest.approx(600.0 * (1 + ahead) - 801.0), "as others waited"


def test_what_runs_ends_before_a_job_takes_its_nodes() -> None:
    """A later start elsewhere counts too, if it is still early enough."""
    site, job = waiting(expected_s=9000.0)
    site.read("b", waiting=0, busy=True)
    look(site)
    ((_, _),) = site.orders_for(job, Withdraw)
    assert site.notes("move_ordered")[0]["wait_elsewhere_s"] == pytest.approx(3600.0)


def test_it_may_come_back_where_nobody_waits_any_more() -> None:
    site, job = waiting()
    open_up(site, "b")
    leave_into_full(site, job)
    assert site.job(job).state is JobState.PENDING
    look(site)
    assert len(site.orders_for(job, Prepare)) == 1, "others still go first in a"
    open_up(site, "a")
    look(site)
    assert [c for c, _ in site.orders_for(job, Prepare)] == ["a", "a"]


def leave_into_full(site: Crowded, job: str) -> None:
    """What was free is taken when it has left, and no queue is there to wait in."""
    site.read("b", waiting=0, busy=True)
    leave(site, job)
