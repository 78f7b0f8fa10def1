"""Clusters that come and go with the configuration."""

from __future__ import annotations

from coalloc.core.base.effects import SendOrder, SendWelcome
from coalloc.core.base.events import Reconfigured, StatementReceived
from coalloc.core.base.messages import Abort, Hello, Read, Start
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, Done, Drain, Refused, Resume, Submit
from coalloc.core.coordinator import StoredState
from coalloc.model.settings import ClusterConfig
from coalloc.model.sites.parts import Launch, PartState
from coalloc.model.values import replace
from tests.support.core_site import Site, reading

LAUNCH = Launch(argv=("work",))


def configure(site: Site, *names: str) -> None:
    """Reload with these clusters; their executors are heard of again."""
    clusters = tuple(ClusterConfig(name=name) for name in names)
    site.do(Reconfigured(settings=replace(site.settings, clusters=clusters)))
    for name in names:
        last = site.state.clusters[name].next_seq - 1
        site.do(
            StatementReceived(statement=Hello(cluster=name, store=site.state.store, last_seq=last))
        )
        site.do(
            StatementReceived(statement=Read(cluster=name, reading=reading(name, site.sizes[name])))
        )


def is_drained(site: Site, cluster: str) -> bool:
    return site.state.clusters[cluster].drained


def run_wide(site: Site) -> None:
    """A job on both clusters, to its end."""
    job = site.submit(3)
    site.run(job)
    site.finish(job)


def test_a_cluster_that_returns_goes_on_counting_its_orders() -> None:
    """An executor takes a number that it has seen for an order carried out."""
    site = Site()
    run_wide(site)
    seen = site.state.clusters["b"].next_seq
    assert seen > 1
    configure(site, "a")
    assert list(site.state.clusters) == ["a"]
    configure(site, "a", "b")
    run_wide(site)
    numbers = [e.seq for e in site.effects if isinstance(e, SendOrder) and e.cluster == "b"]
    assert numbers == list(range(1, site.state.clusters["b"].next_seq))


def test_a_cluster_goes_on_counting_where_it_was_away_during_a_restart() -> None:
    past = StoredState(seqs={"a": 5, "b": 9}, unacked={"b": 7}, store="s")
    site = Site({"a": 1}, remembered=past)
    site.sizes["b"] = 1
    configure(site, "a", "b")
    assert (site.state.clusters["b"].next_seq, site.state.clusters["b"].acked_seq) == (9, 8)
    greeted = [e.base_seq for e in site.effects if isinstance(e, SendWelcome) and e.cluster == "b"]
    assert greeted[-1] == 9


def test_a_cluster_with_jobs_on_it_stays_until_they_have_ended_and_takes_no_more() -> None:
    site = Site()
    full, job = site.submit(2), site.submit(1)
    site.run(full)
    site.run(job)
    site.finish(full)
    configure(site, "a")
    assert is_drained(site, "b")
    answer = site.ask(
        Submit(token="x", job={"kind": "rigid", "procs": 1, "clusters": ["b"]}, launch=LAUNCH)
    )
    assert isinstance(answer, Refused)
    assert answer.message == "job.clusters: there is no cluster 'b'"
    wide = Submit(token="y", job={"kind": "rigid", "procs": 3}, launch=LAUNCH)
    answer = site.ask(wide)
    assert isinstance(answer, Refused)
    assert answer.message == "needs 3 processes; 2 slots exist"
    site.ask(Resume(target="b"), operator=True)
    assert is_drained(site, "b"), "nobody but the configuration brings it back"
    site.finish(job)
    assert site.job(job).state is JobState.COMPLETED
    configure(site, "a", "b")
    assert not is_drained(site, "b")
    assert isinstance(site.ask(wide), Done)


def test_a_job_on_a_cluster_that_left_while_the_daemon_was_down_can_be_cancelled() -> None:
    site = Site()
    job = site.submit(3)
    site.run(job)
    site.sizes = {"a": 2}
    again = site.restarted()
    assert list(again.state.clusters) == ["a", "b"]
    assert isinstance(again.ask(Cancel(job=job)), Done)
    assert {cluster for cluster, _ in again.orders_for(job, Abort)} == {"a", "b"}


def test_a_drained_cluster_returns_drained() -> None:
    site = Site()
    site.ask(Drain(target="b"), operator=True)
    configure(site, "a")
    configure(site, "a", "b")
    assert is_drained(site, "b")


def test_a_cluster_that_is_not_configured_is_named_once() -> None:
    site = Site()
    for _ in range(3):
        site.do(StatementReceived(statement=Hello(cluster="c")))
    assert site.notes("unknown_cluster_spoke") == [{"cluster": "c"}]


def test_an_executor_that_is_ahead_of_a_restored_store_is_followed() -> None:
    """A number below its own it takes for an order that it has carried out."""
    site = Site()
    job = site.submit(3)
    site.say(job, PartState.READY)
    before = site.state.clusters["b"].next_seq
    site.do(StatementReceived(statement=Hello(cluster="b", store=site.state.store, last_seq=40)))
    assert site.notes("order_numbers_skipped") == [{"cluster": "b", "first": before, "last": 40}]
    assert [seq for cluster, seq, _ in site.orders if cluster == "b" and seq > 40] == [41]
    assert len(site.orders_for(job, Start)) == 3, "that of b is repeated"
    site.do(StatementReceived(statement=Hello(cluster="b", store=site.state.store, last_seq=41)))
    assert len(site.notes("order_numbers_skipped")) == 1
    site.say(job, PartState.RUNNING, started=site.now)
    site.finish(job)
    assert site.job(job).state is JobState.COMPLETED
