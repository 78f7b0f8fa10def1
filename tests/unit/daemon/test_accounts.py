"""Accounts and usage: pages, filters, what a site keeps, and a log that can be replayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf import read_swf
from coalloc.adapters.formats.swf_export import ExportedJob, swf_lines
from coalloc.core.base.requests import Cancel, RequestError
from coalloc.daemon.queries import accounts
from coalloc.daemon.store.sqlite import Store
from coalloc.model.platform import Cluster, Node
from coalloc.model.values import replace
from coalloc.simulation.replay import replay
from coalloc.simulation.workload import read_workload
from coalloc.wire.frames import WireError
from coalloc.wire.questions import AccountQuestion, UsageQuestion, read_question
from coalloc.wire.share_answers import AccountRow
from tests.support.core_site import Site
from tests.unit.core.base.test_usage import run


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Store]:
    """Seven jobs of two users on two clusters, which took 50 s each, one after the other."""
    site = Site({"a": 2, "b": 2}, max_age_s=1e9)
    for number in range(7):
        user, clusters = "ann" if number % 2 else "bob", ["a", "b"] if number < 2 else ["a"]
        job = site.submit(3 if number < 2 else 1, user=user, job={"clusters": clusters})
        run(site, job, 50.0, code=int(number == 3))
    store = Store(tmp_path / "coalloc.db")
    store.commit(site.effects)
    yield store
    store.close()


def pages(store: Store, **given: Any) -> list[AccountRow]:
    """All pages of an answer."""
    rows: list[AccountRow] = []
    asked = AccountQuestion(**given)
    answer = accounts.accounts(store, asked, 0.0)
    rows += answer.jobs
    while answer.after:
        answer = accounts.accounts(store, replace(asked, after=answer.after), 0.0)
        rows += answer.jobs
    return rows


@pytest.mark.parametrize("at_once", [1, 2, 3, 2000])
@pytest.mark.parametrize(
    ("asked", "jobs"),
    [
        ({}, "1234567"),
        ({"user": "ann"}, "246"),
        ({"state": "failed"}, "4"),
        ({"since": 1100.0, "until": 1200.0}, "23"),
        ({"project": "none"}, ""),
        ({"job": "4", "user": "ann"}, "4"),
    ],
)
def test_accounts_by_their_end(
    kept: Store,
    asked: dict[str, object],
    jobs: str,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounts, "ROWS_AT_ONCE", at_once)
    assert "".join(row.id for row in pages(kept, **asked)) == jobs


def test_a_job_is_accounted_for_with_all_that_is_of_it(tmp_path: Path) -> None:
    site = Site({"a": 8}, max_age_s=1e9)
    array = site.submit(array=(0, 1))
    flow = site.submit_workflow("t")
    alone = [site.submit() for _ in range(10)]
    for job in (f"{array}_0", f"{array}_1", f"{flow}.1", *alone):
        site.ask(Cancel(job=job))
    store = Store(tmp_path / "coalloc.db")
    store.commit(site.effects)
    named = {job: [row.id for row in pages(store, job=job)] for job in (array, flow, alone[-3])}
    store.close()
    assert named == {
        array: [f"{array}_0", f"{array}_1"],
        flow: [f"{flow}.1", flow],
        alone[-3]: [alone[-3]],
    }
    assert any(job.startswith(array) for job in alone), "and a job whose number begins so"


def test_an_account_has_its_figures(kept: Store) -> None:
    first = pages(kept)[0]
    assert (first.user, first.state, first.procs, first.proc_s) == ("bob", "completed", 3, 150.0)
    assert (first.started, first.ended, first.clusters) == (1000.0, 1050.0, {"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("said", "figures"),
    [({"cpu_s": 40.0, "max_rss_mb": 7.5}, (80.0, 7.5)), ({}, (None, None))],
    ids=["two parts", "not known"],
)
def test_an_account_has_what_its_processes_used(
    said: dict[str, Any], figures: tuple[float | None, float | None], tmp_path: Path
) -> None:
    site = Site({"a": 2, "b": 2})
    run(site, site.submit(3), 50.0, **said)
    store = Store(tmp_path / "coalloc.db")
    try:
        store.commit(site.effects)
        (row,) = pages(store)
    finally:
        store.close()
    assert (row.cpu_s, row.max_rss_mb) == figures


@pytest.mark.parametrize("at_once", [1, 2000])
def test_usage_of_a_day(kept: Store, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "ROWS_AT_ONCE", at_once)
    answer = accounts.usage(kept, UsageQuestion(), 2000.0)
    rows = list(answer.rows)
    while answer.more:
        last = rows[-1]
        after = (last.day, last.project, last.user, last.cluster)
        answer = accounts.usage(kept, UsageQuestion(after=after), 2000.0)
        rows += answer.rows
    shown = {
        (row.user, row.cluster): (row.proc_s, row.coallocated_proc_s, row.jobs) for row in rows
    }
    assert shown == {
        ("ann", "a"): (200.0, 100.0, 3),
        ("ann", "b"): (50.0, 50.0, 0),
        ("bob", "a"): (250.0, 100.0, 4),
        ("bob", "b"): (50.0, 50.0, 0),
    }
    assert {row.day for row in rows} == {"1970-01-01"}
    assert accounts.usage(kept, UsageQuestion(since=1e6), 2e6).rows == ()


@pytest.mark.parametrize(
    "asked", [{"after": "x"}, {"since": "x"}, {"since": True}], ids=["cursor", "text", "flag"]
)
def test_a_wrong_question_is_refused(kept: Store, asked: dict[str, object]) -> None:
    with pytest.raises((RequestError, WireError)):
        accounts.accounts(kept, read_question(asked, AccountQuestion), 0.0)


def test_old_accounts_are_forgotten(kept: Store) -> None:
    assert kept.prune_accounts(1150.0, 1) == 1
    assert kept.prune_accounts(1150.0, 10) == 1  # the third ended at that time
    assert [row.id for row in pages(kept)] == list("34567")
    assert accounts.usage(kept, UsageQuestion(), 2000.0).rows
    kept.prune_accounts(86_400.0 * 2, 10)
    assert not accounts.usage(kept, UsageQuestion(), 2000.0).rows


def test_the_exported_log_is_replayed_as_it_was(tmp_path: Path) -> None:
    jobs = [
        ExportedJob(
            user=user,
            project="p",
            command="x",
            state=state,
            eligible=eligible,
            started=started,
            ended=ended,
            procs=procs,
            requested_s=200.0,
            cpu_s=6.0 * procs if user == "bob" else None,
            max_rss_mb=1.5 if user == "bob" else None,
        )
        for user, state, eligible, started, ended, procs in (
            ("bob", "completed", 1000.25, 1160.25, 1170.75, 2),
            ("ann", "completed", 1000.0, 1000.0, 1160.25, 3),
            ("ann", "cancelled", 1002.0, None, 1500.0, 4),
        )
    ]
    path = tmp_path / "month.swf"
    path.write_text("\n".join(swf_lines(jobs, "here")) + "\n")
    log = read_swf(path)
    assert (log.summary.jobs, log.summary.bad, log.header["UnixStartTime"]) == (3, 0, "1000")
    assert [job.user for job in log.jobs] == [1, 2, 1]
    assert [(job.cpu_s, job.used_kb) for job in log.jobs] == [
        (None, None),
        (6.0, 1536.0),
        (None, None),
    ]
    nodes = tuple(Node(name=f"a{n}") for n in range(4))
    platform = Platform(name="a", clusters=(Cluster(name="a", nodes=nodes),))
    workload = read_workload([path])
    trace = replay(workload, platform, "plain", path="general")
    assert [(1000.0 + s, 1000.0 + e) for s, e in zip(trace.start, trace.end, strict=True)] == [
        (1000.0, 1160.25),
        (1160.25, 1170.75),
    ]
