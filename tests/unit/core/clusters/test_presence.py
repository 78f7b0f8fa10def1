"""An executor that has lost its state, and a second one that speaks for the same cluster."""

from __future__ import annotations

import pytest

from coalloc.core.base.effects import (
    AskHello,
    DropOrders,
    SaveMeta,
    SendWelcome,
    Solve,
    TurnAway,
    Wake,
)
from coalloc.core.base.events import CoreEvent, Disconnected, Requested, StatementReceived, Ticked
from coalloc.core.base.messages import Goodbye, Hello, Prepare, Read, Report, Start
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Drain, RoundNow
from coalloc.core.base.state_tables import LastNumbers, Presence
from coalloc.core.clusters.presence import GATHERING_S, MARK, SECOND, TAKEOVER_S
from coalloc.core.coordinator import Coordinator, StoredState
from coalloc.daemon.queries.job_views import cluster_rows
from coalloc.model.settings import TriggerConfig
from coalloc.model.sites.parts import PartReport, PartState
from coalloc.model.values import replace
from tests.support.core_site import Site, reading


def hello(site: Site, cluster: str, identity: str, *parts: PartReport, peer: object = None) -> bool:
    """An executor says hello; whether it was welcomed."""
    said = Hello(cluster=cluster, identity=identity, store=site.state.store, parts=parts)
    effects = site.do(StatementReceived(statement=said, peer=peer))
    return any(isinstance(effect, SendWelcome) for effect in effects)


def known(**sizes: int) -> Site:
    site = Site(sizes or {"a": 2, "b": 2})
    for name in site.sizes:
        assert hello(site, name, f"first-{name}")
    return site


def running(site: Site, procs: int = 1) -> str:
    job = site.submit(procs)
    site.run(job)
    assert site.job(job).state is JobState.RUNNING
    return job


def test_what_a_new_state_does_not_know_is_lost_with_the_former() -> None:
    site = known(a=2)
    job, other = running(site), running(site)
    site.do(Disconnected(cluster="a"))
    site.now += TAKEOVER_S
    part = PartReport(job=other, attempt=1, part=0, state=PartState.RUNNING, started=site.now)
    assert hello(site, "a", "second", part)
    assert site.job(job).state is JobState.LOST
    assert "lost its state" in site.job(job).detail
    assert site.job(other).state is JobState.RUNNING, "the launcher has found it again"
    assert site.notes("executor_state_lost") == [{"cluster": "a", "jobs": job}]
    assert SaveMeta(key=f"{MARK}a", value="second") in site.effects


def test_the_version_and_the_clock_of_an_executor_are_known() -> None:
    site = Site({"a": 2, "b": 2})
    site.do(StatementReceived(statement=Hello(cluster="a", version="0.2.0")))
    site.do(StatementReceived(statement=Read(cluster="a", error="late", sent=site.now - 90.0)))
    rows = {row.cluster: row for row in cluster_rows(site.state, site.now)}
    assert (rows["a"].version, rows["a"].clock_ahead_s) == ("0.2.0", -90.0)
    assert (rows["b"].version, rows["b"].clock_ahead_s) == ("", None)
    for late_s in (2.0, 0.25, 30.0):
        site.do(StatementReceived(statement=Read(cluster="b", sent=site.now - late_s)))
    (row,) = (row for row in cluster_rows(site.state, site.now) if row.cluster == "b")
    assert row.clock_ahead_s == -0.25, "one message was quick"


def test_a_job_that_had_not_started_waits_again() -> None:
    site = known(a=2)
    job = site.submit()
    site.do(Disconnected(cluster="a"))
    site.now += TAKEOVER_S
    assert hello(site, "a", "second")
    assert site.job(job).state is JobState.PENDING
    # its former attempt is not started by anybody
    late = PartReport(job=job, attempt=1, part=0, state=PartState.READY)
    site.report("a", late)
    assert site.job(job).state is JobState.PENDING


def test_orders_of_the_former_are_not_carried_out_by_the_next() -> None:
    site = known(a=2)
    job = site.submit()
    last = site.state.clusters["a"].next_seq - 1
    assert site.state.clusters["a"].acked_seq < last, "nobody has confirmed the preparation"
    site.do(Disconnected(cluster="a"))
    site.now += TAKEOVER_S
    assert hello(site, "a", "second")
    assert DropOrders(cluster="a", through_seq=last) in site.effects
    assert SendWelcome(cluster="a", base_seq=last + 1) in site.effects
    assert site.job(job).is_waiting


def test_a_stranger_confirms_no_orders() -> None:
    site = known(a=2)
    site.submit()
    before = site.state.clusters["a"].acked_seq
    site.do(Disconnected(cluster="a"))
    site.do(StatementReceived(statement=Report(cluster="a", last_seq=before + 1)))
    assert site.state.clusters["a"].acked_seq == before


def test_a_start_that_a_part_still_waits_for_is_told_again() -> None:
    site = known(a=2)
    job = site.submit()
    part = PartReport(job=job, attempt=1, part=0, state=PartState.READY)
    site.report("a", part)
    assert site.job(job).state is JobState.STARTING
    site.do(Disconnected(cluster="a"))
    site.now += TAKEOVER_S
    last = site.state.clusters["a"].next_seq
    assert hello(site, "a", "second", part)
    assert site.state.clusters["a"].next_seq == last + 1
    assert site.orders_for(job, Start)[-1][0] == "a"


def test_the_same_state_loses_nothing() -> None:
    site = known(a=2)
    job = running(site)
    for event in (Disconnected(cluster="a"), StatementReceived(statement=Goodbye(cluster="a"))):
        site.do(event)
        site.now += TAKEOVER_S
        assert hello(site, "a", "first-a")
        assert site.job(job).state is JobState.RUNNING
    assert not site.notes("executor_state_lost")


def test_a_second_executor_is_not_welcomed_while_the_first_may_be_there() -> None:
    site = known(a=2)
    job = running(site)
    assert not hello(site, "a", "second")
    assert not hello(site, "a", "second")
    assert len(site.notes("second_executor_waits")) == 1
    site.do(Disconnected(cluster="a"))
    site.now += TAKEOVER_S / 2
    assert not hello(site, "a", "second")
    assert hello(site, "a", "first-a"), "it was only cut off"
    assert site.job(job).state is JobState.RUNNING
    site.submit()
    assert {cluster for cluster, _ in site.orders_for("2", Prepare)} == {"a"}


def test_after_a_restart_the_first_one_has_time_to_come_back() -> None:
    before = known(a=2)
    job = running(before)
    past = before.saved()[job]
    site = before.restarted()
    assert site.job(job) == past
    site.state.clusters["a"].identity = "first-a"
    site.state.clusters["a"].connected = False
    site.state.clusters["a"].heard_at = None
    assert not hello(site, "a", "second")
    site.now += TAKEOVER_S / 2
    assert not hello(site, "a", "second")
    site.now += TAKEOVER_S / 2
    assert hello(site, "a", "second")
    assert site.job(job).state is JobState.LOST


def test_a_clock_that_was_set_back_keeps_nobody_out() -> None:
    site = known(a=2)
    site.do(Disconnected(cluster="a"))
    site.now -= 3600.0
    assert hello(site, "a", "second")


def test_another_connection_is_not_believed_and_asked_who_it_is() -> None:
    site = Site({"a": 2})
    assert hello(site, "a", "first", peer=1)
    before = site.state.clusters["a"].read_at
    site.now += 1.0
    for said in (Read(cluster="a", error="none"), Goodbye(cluster="a")):
        effects = site.do(StatementReceived(statement=said, peer=2))
        assert AskHello(cluster="a", peer=2) in effects
    cluster = site.state.clusters["a"]
    assert (cluster.connected, cluster.peer, cluster.read_at) == (True, 1, before)


def test_a_cluster_that_cannot_be_read_is_not_planned_on_until_it_is() -> None:
    returned = TriggerConfig(kind="cluster_returned")
    site = Site({"a": 2}, trigger=(TriggerConfig(kind="queue_length"), returned))
    runs = site.submit(1)
    site.run(runs)
    site.do(StatementReceived(statement=Read(cluster="a", error="squeue: slurmctld is down")))
    job = site.submit(1)
    assert site.job(job).state is JobState.PENDING
    assert site.job(runs).state is JobState.RUNNING
    site.wait(1.0)
    assert site.job(job).state is JobState.PREPARING


def test_the_same_executor_on_a_new_connection_takes_over_at_once() -> None:
    site = Site({"a": 2})
    assert hello(site, "a", "first", peer=1)
    assert hello(site, "a", "first", peer=2)
    effects = site.do(StatementReceived(statement=Report(cluster="a", last_seq=0), peer=1))
    assert AskHello(cluster="a", peer=1) in effects
    effects = site.do(StatementReceived(statement=Report(cluster="a", last_seq=0), peer=2))
    assert not [effect for effect in effects if isinstance(effect, AskHello)]
    assert site.state.clusters["a"].peer == 2


def test_a_second_executor_is_turned_away_only_while_the_first_is_connected() -> None:
    site = Site({"a": 2})
    assert hello(site, "a", "first", peer=1)
    assert not hello(site, "a", "second", peer=2)
    assert site.effects[-1] == TurnAway(cluster="a", peer=2, why=SECOND)
    site.do(Disconnected(cluster="a"))
    assert site.state.clusters["a"].peer is None
    assert not hello(site, "a", "second", peer=2)
    assert not isinstance(site.effects[-1], TurnAway), "it waits, and says hello again"


def test_an_executor_that_was_given_up_is_asked_to_say_hello() -> None:
    site = Site({"a": 2})
    assert hello(site, "a", "first", peer=1)
    site.do(Disconnected(cluster="a"))
    effects = site.do(StatementReceived(statement=Report(cluster="a", last_seq=0), peer=1))
    assert AskHello(cluster="a", peer=1) in effects
    assert not site.state.clusters["a"].connected
    assert hello(site, "a", "first", peer=1)


class Restarted:
    """A daemon that has just started again, with a job that waits."""

    def __init__(self, **identities: str) -> None:
        site = Site({"a": 2, "b": 2}, trigger=())
        job = site.submit(4)
        self.core = Coordinator(
            site.settings,
            StoredState(
                jobs=[site.saved()[job]],
                presence=Presence(identities=identities),
                last=LastNumbers(round=4),
            ),
        )
        self.now = site.now

    def solves(self, *events: CoreEvent) -> list[str]:
        """The rounds that begin after these events: the clusters whose nodes they may use."""
        effects = [effect for event in events for effect in self.core.handle(event, self.now)]
        self.wakes = [effect.at for effect in effects if isinstance(effect, Wake)]
        return [
            "".join(cluster.name for cluster in effect.snapshot.clusters if not cluster.stale)
            for effect in effects
            if isinstance(effect, Solve)
        ]

    def speaks(self, cluster: str) -> list[str]:
        return self.solves(
            StatementReceived(statement=Hello(cluster=cluster, identity=f"of-{cluster}")),
            StatementReceived(statement=Read(cluster=cluster, reading=reading(cluster, 2))),
        )


def test_after_a_start_rounds_wait_for_the_clusters_that_were_here_before() -> None:
    daemon = Restarted(a="of-a", b="of-b")
    assert not daemon.speaks("a"), "it would get all the jobs"
    assert daemon.wakes[-1] == daemon.now + GATHERING_S
    daemon.now += GATHERING_S / 2.0
    assert daemon.speaks("b") == ["ab"]


def test_rounds_do_not_wait_long_for_a_cluster_that_stays_away() -> None:
    daemon = Restarted(a="of-a", b="of-b")
    assert not daemon.speaks("a")
    daemon.now += GATHERING_S
    assert daemon.solves(Ticked()) == ["a"]


@pytest.mark.parametrize("away", ["never here", "drained", "operator asks"])
def test_rounds_do_not_wait_for_a_cluster_that_is_not_expected(away: str) -> None:
    daemon = Restarted(a="of-a", **({} if away == "never here" else {"b": "of-b"}))
    asked = Requested(origin="client", user="root", uid=0, gid=0, operator=True, command=RoundNow())
    if away == "drained":
        daemon.solves(replace(asked, command=Drain(target="b", reason="rack")))
    if away == "operator asks":
        assert not daemon.speaks("a")
        assert daemon.solves(asked) == ["a"]
    else:
        assert daemon.speaks("a") == ["a"]


def test_a_claim_that_was_taken_back_meanwhile_is_not_unknown() -> None:
    """Its job ran elsewhere, and is forgotten, while its executor heard nothing."""
    site = Site({"a": 1, "b": 1}, keep_ended=0)
    job = site.submit()
    (first,) = site.job(job).parts
    heard = site.state.clusters[first.cluster].next_seq - 1
    site.do(Disconnected(cluster=first.cluster))
    site.wait(site.state.settings.start.prepare_timeout_s + 1.0)
    site.wait(60.0)
    assert site.job(job).parts[0].cluster != first.cluster
    site.run(job)
    site.finish(job)
    assert job not in site.state.jobs
    late = PartReport(job=job, attempt=1, part=0, state=PartState.READY)
    site.do(
        StatementReceived(statement=Report(cluster=first.cluster, last_seq=heard, parts=(late,)))
    )
    assert not site.notes("unknown_part_found")
