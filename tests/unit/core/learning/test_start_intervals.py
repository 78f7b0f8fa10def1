"""Intervals of expected starts: what they hold of the starts, and how they follow a change."""

from __future__ import annotations

import pytest

from coalloc.core.base.accuracy import ALL, start_accuracy
from coalloc.core.base.effects import DropPromises, DropStartError, SavePromises, SaveStartError
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, Hold, Update
from coalloc.core.base.start_intervals import (
    ENOUGH,
    FIRST,
    KEPT,
    LATER,
    LEAST_LEAD_S,
    MISSES,
    Calibration,
    StartError,
    between,
    lead_class,
)
from coalloc.core.learning import promises
from coalloc.model.plan import Placement, Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from tests.support.core_site import HOUR, Site, first_fit


def promising(snapshot: Snapshot) -> Plan:
    """First fit; what does not fit is planned for two hours later."""
    plan = first_fit(snapshot)
    node = next(node.name for _, node in snapshot.nodes())
    later = tuple(
        Placement(
            job=deferred.job,
            start=snapshot.time + 2 * HOUR,
            end=snapshot.time + 3 * HOUR,
            nodes={node: 1},
        )
        for deferred in plan.deferred
    )
    return replace(plan, placements=(*plan.placements, *later), deferred=())


class Promising(Site):
    """A site whose rounds give each waiting job a start in two hours."""

    plan_of = staticmethod(promising)


@pytest.fixture
def site() -> Promising:
    """One node, which a job of the first submit has."""
    site = Promising({"a": 1})
    site.run(site.submit())
    return site


def errors(late: list[float], *, lead_s: float = HOUR, kind: str = FIRST) -> Calibration:
    """What was learnt of starts of as many users' jobs that were so late, seconds."""
    made = Calibration()
    for n, seconds in enumerate(late):
        made.learn(made.promise(lead_s, 0.0, kind), lead_s + seconds, f"u{n}")
    return made


def test_without_enough_starts_there_is_no_interval() -> None:
    assert errors([1.0] * (ENOUGH - 1)).interval(HOUR, 0.0, FIRST) is None
    assert errors([1.0] * ENOUGH).interval(HOUR, 0.0, FIRST) == (HOUR, HOUR + 1)
    assert errors([1.0] * ENOUGH).interval(HOUR, 0.0, LATER) is None


def test_an_interval_is_as_long_as_the_lead_time_is() -> None:
    made = errors([60.0 * n for n in range(-30, 31)])
    near = made.interval(HOUR, 0.0, FIRST)
    far = made.interval(2 * HOUR, 0.0, FIRST)
    assert near is not None
    assert far is not None
    assert far.late - far.early == pytest.approx(2 * (near.late - near.early), abs=8)


def test_an_interval_never_begins_before_now_nor_before_the_job_may_start() -> None:
    made = errors([-HOUR] * ENOUGH)
    assert made.interval(2 * HOUR, 4000.0, FIRST) == (4000.0, 2 * HOUR)
    assert made.interval(2 * HOUR, 1000.0, FIRST, not_before=HOUR + 100.0) == (3700.0, 2 * HOUR)


def test_a_burst_of_one_user_is_one_sample() -> None:
    """A thousand short jobs that started at once say nothing of others' starts."""
    made = errors([60.0 * n for n in range(ENOUGH)])
    before = made.interval(HOUR, 0.0, FIRST)
    for n in range(1000):
        _, forgotten = made.learn(made.promise(HOUR, 0.0, FIRST), HOUR / 1000 * n, "burst")
        assert (forgotten is None) == (n == 0)
    kept = made.newest()
    assert len(kept) == ENOUGH + 1
    assert [error.late_s for error in kept if error.held is not None] == [HOUR / 1000 * 999 - HOUR]
    after = made.interval(HOUR, 0.0, FIRST)
    assert before is not None
    assert after is not None
    assert after.late == before.late
    assert made == Calibration.of(kept)


def test_what_is_shown_holds_the_expected_start_and_comes_from_such_starts() -> None:
    early = errors([-0.9 * HOUR] * ENOUGH)
    assert early.interval(HOUR, 0.0, FIRST) == (0.1 * HOUR, HOUR)
    assert early.interval(2 * HOUR, 0.0, FIRST) == (0.2 * HOUR, 2 * HOUR)
    assert early.interval(20 * HOUR, 0.0, FIRST) is None  # not of what is far ahead


def test_an_interval_is_not_shown_while_those_like_it_do_not_hold() -> None:
    made = errors([1.0] * ENOUGH)
    for n in range(3):
        assert made.interval(HOUR, 0.0, FIRST) is not None
        made.learn(made.promise(HOUR, 0.0, FIRST), HOUR * (2.0 + 4.0 * n), f"missed{n}")
    assert made.interval(HOUR, 0.0, FIRST) is None
    for n in range(ENOUGH):
        assert made.promise(HOUR, 0.0, FIRST).late is not None
        made.learn(made.promise(HOUR, 0.0, FIRST), HOUR, f"held{n}")
    assert made.interval(HOUR, 0.0, FIRST) is not None


@pytest.mark.parametrize(
    ("alpha", "ends"),
    [
        pytest.param(0.2, (1.0, 9.0), id="a tenth on each side"),
        pytest.param(0.0, (1.0, 9.0), id="all that is known"),
        pytest.param(0.6, (3.0, 7.0), id="narrower"),
        pytest.param(-0.1, (-3.0, 13.0), id="twice as wide as what is known"),
    ],
)
def test_the_ends_are_quantiles(alpha: float, ends: tuple[float, float]) -> None:
    assert between(map(float, range(9, 0, -1)), alpha) == ends


def test_the_share_that_holds_is_kept_though_the_site_changes() -> None:
    """Errors grow tenfold halfway: no table of old errors would do."""
    made, held = Calibration(), []
    for n in range(4000):
        size = 0.05 if n < 2000 else 0.5
        lead_s = LEAST_LEAD_S * 2.0 ** (n % 7)
        # No draw: the golden ratio spreads the errors evenly over [-size, size].
        error = (2.0 * ((n * 0.6180339887) % 1.0) - 1.0) * size
        learnt, _ = made.learn(made.promise(lead_s, 0.0, FIRST), lead_s * (1.0 + error), f"u{n}")
        held.append(learnt.held)
    known = [one for one in held if one is not None]
    assert sum(known) / len(known) == pytest.approx(1.0 - MISSES, abs=0.01)
    after = held[2000:]
    assert sum(map(bool, after)) / len(after) == pytest.approx(1.0 - MISSES, abs=0.02)


def test_the_newest_errors_of_each_class_are_kept_and_give_the_same_again() -> None:
    made = Calibration()
    written: dict[int, StartError] = {}
    for n in range(KEPT + 30):
        learnt, forgotten = made.learn(made.promise(HOUR, 0.0, FIRST), HOUR + n, f"u{n}")
        written[learnt.number] = learnt
        if forgotten is not None:
            del written[forgotten.number]
    assert sorted(written) == list(range(31, KEPT + 31))
    again = Calibration.of(written.values())
    assert again == made
    assert again.interval(HOUR, 0.0, FIRST) == made.interval(HOUR, 0.0, FIRST) is not None


def test_classes_double() -> None:
    assert [lead_class(s) for s in (0.0, 60.0, 119.0, 120.0, 240.0)] == [0, 0, 0, 1, 2]


def test_a_start_is_promised_once_and_again_when_it_is_half_as_far(site: Promising) -> None:
    job = site.submit()
    first = site.state.learning.promises[job]
    assert [(p.kind, p.expected - p.made) for p in first] == [(FIRST, 2 * HOUR)]
    written = [e for e in site.effects if isinstance(e, SavePromises)]
    site.submit()  # Another round, with the same lead time.
    assert site.state.learning.promises[job] == first
    assert [e for e in site.effects if isinstance(e, SavePromises) and e.job == job] == written
    promises.keep(site.state, {job: site.now + HOUR}, site.now)
    assert [p.kind for p in site.state.learning.promises[job]] == [FIRST, LATER]


def test_a_start_is_held_against_what_was_promised(site: Promising) -> None:
    job = site.submit()
    promised = site.state.learning.promises[job][0]
    site.wait(HOUR)
    site.finish("1")
    site.run(job)
    learnt = [e.error for e in site.effects if isinstance(e, SaveStartError)]
    assert [error.late_s for error in learnt] == [site.now - promised.expected]
    assert learnt[0].held is None
    assert job not in site.state.learning.promises
    assert DropPromises(job=job) in site.effects
    assert site.state.learning.calibration.last == 1
    assert not [e for e in site.effects if isinstance(e, DropStartError)]


@pytest.mark.parametrize("command", [Cancel, Hold, Update])
def test_what_its_user_stops_or_changes_teaches_nothing(
    site: Promising, command: type[Cancel | Hold | Update]
) -> None:
    job = site.submit()
    assert job in site.state.learning.promises
    site.ask(Update(job=job, name="other") if command is Update else command(job=job))
    if command is Update:  # Its new promise is a first one.
        assert [p.kind for p in site.state.learning.promises[job]] == [FIRST]
    else:
        assert job not in site.state.learning.promises
        assert site.job(job).state in {JobState.CANCELLED, JobState.HELD}
    assert DropPromises(job=job) in site.effects
    assert not [e for e in site.effects if isinstance(e, SaveStartError)]


def test_a_round_that_says_nothing_new_writes_nothing(site: Promising) -> None:
    job = site.submit()
    many = dict.fromkeys([job], site.now + 2 * HOUR)
    before = len(site.state.out)
    for _ in range(3):
        promises.keep(site.state, many, site.now)
    assert len(site.state.out) == before


def test_accuracy_is_told_by_kind_and_lead_time() -> None:
    made, learnt = Calibration(), []
    for n in range(40):
        for lead_s in (300.0, 2 * HOUR):
            promise = made.promise(lead_s, 0.0, FIRST)
            learnt.append(made.learn(promise, lead_s + n % 10, f"u{n}")[0])
    rows = {row.lead: row for row in start_accuracy(learnt)}
    assert list(rows) == [ALL, "up to 10 min", "up to 6 h"]
    assert (rows[ALL].starts, rows["up to 6 h"].starts) == (80, 40)
    assert rows[ALL].intervals == 2 * (40 - ENOUGH)
    assert rows[ALL].error_s == 4.5
    assert rows[ALL].error_width_s == 9.0
    held = rows[ALL].held
    assert held is not None
    assert held > 0.8
    assert start_accuracy([]) == ()
