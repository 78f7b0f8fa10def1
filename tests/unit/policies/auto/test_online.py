"""`auto` on line: who starts, what a limit on waiting promises, and predicted run times."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.model.history import History
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import NOTES, OVERDUE, Plan
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.values import replace
from coalloc.policies.auto.online import MANY
from coalloc.policies.auto.overdue import FLOOR_S, LONG_S, OVERLOAD
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.orders.run_times import ratios
from coalloc.policies.registry import lookup
from tests.support.planned import planned

DAY = 86_400.0


def machine(name: str, nodes: int) -> Cluster:
    return Cluster(name=name, nodes=tuple(Node(name=f"{name}{n}") for n in range(nodes)))


def job(name: str, procs: int, seconds: float, **fields: float) -> RigidJob:
    return RigidJob(id=name, procs=procs, base_time=seconds, **fields)  # type: ignore[arg-type]


def round_of(snapshot: Snapshot, history: History | None = None, **options: Any) -> Plan:
    return planned("auto", snapshot, Budget(live=True, history=history or History()), **options)


def by_start(plan: Plan) -> list[str]:
    return [p.job for p in sorted(plan.placements, key=lambda p: p.start)]


def start_of(plan: Plan, name: str) -> float:
    return next(p.start for p in plan.placements if p.job == name)


def factor_of(expected_s: float, share: float) -> float:
    """By how much of its expected wait a job is overdue, on a share of the machine."""
    return (1.0 + (expected_s / LONG_S) ** 2) / share


def test_heavy_first_then_in_order_of_arrival() -> None:
    alpha, beta = machine("alpha", 300), machine("beta", 300)
    busy = Running(id="r", nodes={node.name: 1 for node in alpha.nodes}, start=-600.0, end=1_800.0)
    queue = tuple(
        job(str(n), 595, 600.0, submitted=float(n) - 100.0, weight=1e6 if n == 3 else 1.0)
        for n in range(7)
    )
    plan = round_of(Snapshot(clusters=(alpha, beta), queue=queue, running=(busy,)))
    assert by_start(plan) == ["3", "0", "1", "2", "4", "5", "6"]


def test_a_long_queue_begins_with_a_plan_of_its_head() -> None:
    queue = tuple(job(str(n), 1 + n % 3, 10.0 + n % 7, submitted=-1.0) for n in range(MANY + 300))
    for site in ((machine("a", 4),), (machine("a", 4), machine("b", 3))):
        snapshot, told = Snapshot(clusters=site, queue=queue), list[Plan]()
        policy = lookup("auto")
        options = read_options({}, policy.options)
        plan = policy.solve(snapshot, options, Budget(live=True), told.append)
        assert len(told[0].placements) == MANY
        assert not [line for each in (*told, plan) for line in check(snapshot, each).violations]
        assert len(plan.placements) == len(told[1].placements) == len(queue)
        # What starts now of the first order is the same.
        head, whole = (
            {p.job for p in each.placements if p.start == 0.0} for each in (told[0], told[1])
        )
        assert head == whole


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("count", [2, 9, 23])
def test_equal_jobs_start_in_order_of_arrival(live: bool, count: int) -> None:
    queue = tuple(job(str(n), 3, 100.0, submitted=n - 50.0) for n in range(count))
    others = (job("long", 4, 900.0, submitted=-70.0), job("short", 1, 10.0, submitted=-1.0))
    snapshot = Snapshot(clusters=(machine("a", 7),), queue=(others[0], *queue, others[1]))
    policy = lookup("auto")
    options = read_options({}, policy.options)
    plan = policy.solve(snapshot, options, Budget(live=live, work=20_000))
    starts = [start_of(plan, str(n)) for n in range(count)]
    assert starts == sorted(starts)


def test_short_jobs_by_prediction_go_first_though_their_estimates_are_long() -> None:
    queue = (
        job("honest", 4, 3_600.0, submitted=-20.0),
        job("timid", 4, 7_200.0, submitted=-10.0),
    )
    snapshot = Snapshot(clusters=(machine("a", 4),), queue=queue)
    assert by_start(round_of(snapshot)) == ["honest", "timid"]
    history = History(
        pool=(1.0, 0.01), samples=((1.0,), (0.01, 0.01)), of={"honest": 0, "timid": 1}
    )
    plan = round_of(snapshot, history)
    assert by_start(plan) == ["timid", "honest"]
    # What is promised goes by the planned run time.
    assert start_of(plan, "honest") == pytest.approx(7_200.0)


def test_what_has_waited_too_long_is_booked_first_and_kept() -> None:
    wide = job("wide", 10, 600.0, submitted=-DAY - 1.0)
    short = tuple(job(f"s{n}", 5, 60.0 + n, submitted=-float(n)) for n in range(6))
    work = Running(id="r", nodes={f"a{n}": 1 for n in range(5)}, start=-60.0, end=90.0)
    snapshot = Snapshot(clusters=(machine("a", 10),), queue=(wide, *short), running=(work,))
    plan = round_of(snapshot)
    assert start_of(plan, "wide") == pytest.approx(90.0)
    young = replace(wide, submitted=-60.0)
    later = round_of(replace(snapshot, queue=(young, *short)))
    assert start_of(later, "wide") > 90.0
    assert start_of(round_of(snapshot, wait_limit=None), "wide") > 90.0


def test_when_a_job_goes_first_is_expected_once_and_noted() -> None:
    """EASY by arrival would start the wide one in 90 s, and the narrow one behind it."""
    now = 1e9
    queue = (job("wide", 10, 600.0, submitted=now), job("narrow", 4, 900.0, submitted=now))
    short = tuple(job(f"s{n}", 5, 60.0 + n, submitted=now) for n in range(6))
    work = Running(id="r", nodes={f"a{n}": 1 for n in range(5)}, start=now - 60, end=now + 90)
    snapshot = Snapshot(time=now, clusters=(machine("a", 10),), queue=queue, running=(work,))
    snapshot = replace(snapshot, queue=(*queue, *short))
    first = round_of(snapshot)
    due = first.stats[NOTES][OVERDUE]
    assert set(due) == {one.id for one in snapshot.queue} - {"s0"}
    assert due["wide"] == now + FLOOR_S
    assert due["narrow"] - now == pytest.approx(690.0 * factor_of(690.0, 0.4))
    assert start_of(first, "wide") > now + 90.0
    # What has started is in no notes; what waits has those of its first round.
    for later, begins in ((FLOOR_S - 1.0, False), (FLOOR_S + 1.0, True)):
        moved = replace(snapshot, time=now + later, queue=(*queue, *short[1:]))
        moved = replace(moved, running=(replace(work, end=now + later + 90.0),))
        plan = planned("auto", moved, Budget(live=True, notes=first.stats[NOTES]))
        assert (start_of(plan, "wide") - now - later == 90.0) is begins
        assert plan.stats[NOTES][OVERDUE] == due
    assert NOTES not in round_of(snapshot, wait_factor=None).stats
    limited = round_of(snapshot, wait_limit=200.0).stats[NOTES][OVERDUE]
    assert limited["wide"] == now + 200.0
    # EASY would keep it for 690 s.
    assert limited["narrow"] == now + OVERLOAD * 690.0


def test_running_work_is_expected_to_end_as_its_like_did() -> None:
    """The planned end is an hour away; a tenth of that is when it is expected."""
    wide = job("wide", 10, 600.0)
    work = Running(id="r", nodes={"a0": 1}, start=0.0, end=10_000.0)
    snapshot = Snapshot(clusters=(machine("a", 10),), queue=(wide,), running=(work,))
    history = History(pool=(0.1,), samples=((0.1,) * 32,), of={"r": 0})
    due = round_of(snapshot, history).stats[NOTES][OVERDUE]["wide"]
    assert due == pytest.approx(1_000.0 * factor_of(1_000.0, 1.0), rel=0.01)


def test_a_wrong_prediction_does_not_delay_what_is_overdue() -> None:
    wide = job("wide", 10, 600.0, submitted=-DAY - 1.0)
    liar = job("liar", 5, 5_000.0, submitted=-5.0)
    work = Running(id="r", nodes={f"a{n}": 1 for n in range(5)}, start=-60.0, end=90.0)
    snapshot = Snapshot(clusters=(machine("a", 10),), queue=(wide, liar), running=(work,))
    history = History(pool=(0.001,), samples=((0.001,) * 8,), of={"liar": 0})
    plan = round_of(snapshot, history)
    assert start_of(plan, "wide") == pytest.approx(90.0)
    assert start_of(plan, "liar") >= 690.0


@pytest.mark.parametrize(("ratio", "beside"), [(0.01, True), (1.0, False)])
def test_backfilling_beside_the_head_goes_by_predictions(ratio: float, beside: bool) -> None:
    head = job("head", 10, 600.0, submitted=-100.0, weight=1e6)
    other = job("other", 5, 5_000.0, submitted=-5.0)
    work = Running(id="r", nodes={f"a{n}": 1 for n in range(5)}, start=-60.0, end=300.0)
    snapshot = Snapshot(clusters=(machine("a", 10),), queue=(head, other), running=(work,))
    history = History(pool=(1.0,), samples=((ratio,) * 8, (1.0,) * 8), of={"other": 0, "head": 1})
    plan = round_of(snapshot, history)
    assert (start_of(plan, "other") == 0.0) is beside
    # What is told of the head goes by the planned run time.
    assert start_of(plan, "head") == pytest.approx(5_000.0 if beside else 300.0)


def test_what_starts_next_on_another_cluster_takes_no_reservation_from_the_first() -> None:
    clusters = (machine("a", 4), machine("b", 2))
    work = (
        Running(id="ra", nodes={"a0": 1}, start=-60.0, end=300.0),
        Running(id="rb", nodes={"b0": 1, "b1": 1}, start=-60.0, end=90.0),
    )
    queue = (
        job("first", 4, 600.0, submitted=-9.0, weight=1e6),
        job("next", 2, 400.0, submitted=-8.0),
        job("long", 3, 5_000.0, submitted=-7.0),
    )
    snapshot = Snapshot(clusters=clusters, queue=queue, running=work)
    plan = round_of(snapshot, coallocation="forbidden")
    assert {name: start_of(plan, name) for name in ("next", "first", "long")} == {
        "next": 90.0,
        "first": 300.0,
        "long": 900.0,
    }


def test_over_several_clusters_no_prediction_delays_the_head() -> None:
    """The same as on one cluster, with a small one beside: nobody starts by its prediction."""
    head = job("head", 10, 600.0, submitted=-100.0, weight=1e6)
    other = job("other", 5, 5_000.0, submitted=-5.0)
    work = Running(id="r", nodes={f"a{n}": 1 for n in range(5)}, start=-60.0, end=300.0)
    clusters = (machine("a", 10), machine("b", 1))
    snapshot = Snapshot(clusters=clusters, queue=(head, other), running=(work,))
    history = History(pool=(1.0,), samples=((0.01,) * 8, (1.0,) * 8), of={"other": 0, "head": 1})
    plan = round_of(snapshot, history, coallocation="forbidden")
    assert start_of(plan, "head") == pytest.approx(300.0)
    assert start_of(plan, "other") == pytest.approx(900.0)


@pytest.mark.parametrize(
    ("rule", "starts"),
    [
        # the second has the free node of b, and the third is there after it
        ("forbidden", {"first": 300.0, "second": 90.0, "third": 490.0}),
        # only the first has a reservation, on a: the third takes that node now
        ("sooner", {"first": 300.0, "second": 1_000.0, "third": 0.0}),
    ],
)
def test_each_job_has_a_reservation_where_none_may_be_split(
    rule: str, starts: dict[str, float]
) -> None:
    clusters = (machine("a", 4), machine("b", 2))
    work = (
        Running(id="ra", nodes={f"a{n}": 1 for n in range(4)}, start=-60.0, end=300.0),
        Running(id="rb", nodes={"b0": 1}, start=-60.0, end=90.0),
    )
    queue = (
        job("first", 4, 1_200.0, submitted=-9.0, weight=1e6),
        job("second", 2, 400.0, submitted=-8.0, weight=1e3),
        job("third", 1, 1_000.0, submitted=-7.0),
    )
    plan = round_of(Snapshot(clusters=clusters, queue=queue, running=work), coallocation=rule)
    assert {name: start_of(plan, name) for name in starts} == starts


def test_reservations_of_all_do_not_delay_the_first_overdue_job() -> None:
    """It is last by the orders, and its reservation is as if it were alone."""
    clusters = (machine("a", 4), machine("b", 2))
    work = (Running(id="r", nodes={"a0": 1, "a1": 1}, start=-60.0, end=300.0),)
    late = job("late", 4, 9_000.0, submitted=-DAY - 1.0)
    others = tuple(job(f"{n}", 2, 200.0 + n, submitted=-9.0 + n, weight=1e3) for n in range(5))
    snapshot = Snapshot(clusters=clusters, queue=(late, *others), running=work)
    plan = round_of(snapshot, coallocation="forbidden")
    assert start_of(plan, "late") == 300.0
    assert start_of(round_of(snapshot, coallocation="forbidden", wait_limit=None), "late") > 300.0


def test_only_the_first_overdue_job_leaves_the_order() -> None:
    queue = tuple(
        job(name, 4, seconds, submitted=-DAY - since)
        for name, seconds, since in (("first", 9e4, 3.0), ("long", 9e4, 2.0), ("short", 60.0, 1.0))
    )
    plan = round_of(Snapshot(clusters=(machine("a", 4),), queue=queue))
    assert by_start(plan) == ["first", "short", "long"]


def test_nothing_is_compared_where_nothing_has_room() -> None:
    queue = (job("wide", 4, 60.0, submitted=-9.0), job("two", 2, 600.0, submitted=-8.0))
    work = Running(id="r", nodes={f"a{n}": 1 for n in range(3)}, start=-60.0, end=90.0)
    snapshot = Snapshot(clusters=(machine("a", 4),), queue=queue, running=(work,))
    plan = round_of(snapshot)
    assert plan.stats["tried"] == 1
    assert len(plan.placements) == 2
    roomy = replace(snapshot, queue=(*queue, job("one", 1, 900.0, submitted=-7.0)))
    assert round_of(roomy).stats["tried"] > 1


def test_orders_that_are_the_same_are_rolled_once() -> None:
    queue = tuple(job(str(n), 3, 60.0) for n in range(5))
    plan = round_of(Snapshot(clusters=(machine("a", 4),), queue=queue))
    assert plan.stats["tried"] == 1


@pytest.mark.parametrize("rule", ["sooner", "needed"])
def test_jobs_stay_whole_where_the_queue_is_done_sooner_so(rule: str) -> None:
    """To split the first over both half-free clusters fills their links, and the next one waits."""
    clusters = tuple(replace(machine(name, 4), link_gbps=1.0) for name in "ab")
    work = tuple(
        Running(id=f"r{name}", nodes={f"{name}0": 1, f"{name}1": 1}, start=-60.0, end=90.0)
        for name in "ab"
    )
    queue = tuple(job(str(n), 4, 1_000.0, submitted=n - 9.0, proc_gbps=0.4) for n in range(2))
    plan = round_of(Snapshot(clusters=clusters, queue=queue, running=work), coallocation=rule)
    assert [p.start for p in plan.placements] == [90.0, 90.0]
    assert (str(plan.stats["order"]).endswith("whole")) is (rule == "sooner")
    alone = round_of(Snapshot(clusters=clusters, queue=queue[:1], running=work))
    assert alone.placements[0].start == 0.0


def test_what_may_not_start_yet_keeps_nothing_waiting() -> None:
    later = job("later", 4, 10.0, submitted=-2 * DAY, earliest=500.0)
    now = job("now", 4, 400.0, submitted=-1.0)
    plan = round_of(Snapshot(clusters=(machine("a", 4),), queue=(later, now)))
    assert start_of(plan, "now") == 0.0
    assert start_of(plan, "later") == pytest.approx(500.0)


def test_plans_have_objective_bound_and_gap() -> None:
    queue = tuple(job(str(n), 1 + n % 4, 60.0 * (1 + n % 5)) for n in range(12))
    plan = round_of(Snapshot(clusters=(machine("a", 4),), queue=queue))
    assert plan.objective.name == "weighted_completion"
    assert plan.objective.bound is not None
    assert 0.0 < plan.objective.bound <= plan.objective.value


def test_stopped_rounds_have_a_plan() -> None:
    queue = tuple(job(str(n), 3, 60.0 + n) for n in range(5))
    snapshot = Snapshot(clusters=(machine("a", 4),), queue=queue)
    shown: list[Plan] = []
    plan = planned("auto", snapshot, Budget(live=True, stop=lambda: True), shown.append)
    assert plan.status == "time_limit"
    assert len(plan.placements) == len(shown[0].placements) == 5


def test_predicted_ratios() -> None:
    assert ratios(History(), ["a", "b"]).tolist() == [1.0, 1.0]
    history = History(pool=(0.5,), samples=((0.2, 0.4), (3.0,)), of={"a": 0, "b": 1})
    mean = (0.4 + 0.9 * 0.2 + 0.02 * 0.5) / (1.0 + 0.9 + 0.02)
    found = ratios(history, ["a", "b", "new"])
    assert found.tolist() == pytest.approx([mean**0.8, 1.0, 0.5**0.8])
