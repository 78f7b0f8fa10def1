"""``coalloc top`` under Textual's pilot: what is shown, and what the keys do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec import structs

from coalloc.cli.top import command as top_view
from coalloc.cli.top.command import Look, Source, job_lines, output_path, tail
from coalloc.client.client import NoAnswerError
from coalloc.core.base.records import JobRecord, JobState
from coalloc.model.jobs import RigidJob
from coalloc.model.sites.parts import Launch
from coalloc.model.values import replace
from coalloc.wire.answers import ServiceStatus
from coalloc.wire.job_rows import JobDetails, QueueRow
from coalloc.wire.node_rows import ClusterRow, NodeRow

textual = pytest.importorskip("textual")

from textual.pilot import Pilot  # noqa: E402
from textual.widgets import DataTable, Static  # noqa: E402

from coalloc.cli.top.app import Top  # noqa: E402

NASTY = "[red]x[/] \x1b[31m"
NODE = NodeRow(name="a1", state="up", slots=4, free=3, power=1.0, raw_power=1.0, load=0.0)
CLUSTER = ClusterRow(
    cluster="alpha", stale=False, connected=True, drained=False, nodes=(NODE,), age_s=1.0
)
STATUS = ServiceStatus(
    time=1e9, user="ada", epoch=1, rounds=3, paused=False, waiting=1, placed=1, policy="easy"
)
JOBS = (
    QueueRow(
        id="1", name=NASTY, user="ada", state=JobState.RUNNING, procs=1, submitted=9e8, started=9e8
    ),
    QueueRow(id="2", name="b", user="bob", procs=8, submitted=9e8),
    QueueRow(id="3", name="c", user="ada", state=JobState.COMPLETED, procs=2, submitted=9e8),
)
LOOK = Look(status=STATUS, clusters=(CLUSTER,), jobs=JOBS)


class Fake(Source):
    """A daemon that answers at once, or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.found, self.cancelled = folder, LOOK, [""]
        self.is_there = True

    def look(self, *, everything: bool = False) -> Look:
        if not self.is_there:
            raise NoAnswerError("no daemon listens at ipc:///x")
        return self.found

    def job(self, job: str) -> tuple[JobDetails, float]:
        row = next(row for row in JOBS if row.id == job)
        record = JobRecord(id=job, user=row.user, job=RigidJob(id=job, procs=1, base_time=1.0))
        launch = Launch(argv=("sh",), cwd=str(self.folder))
        return JobDetails(**structs.asdict(row), record=record, launch=launch), 1e9

    def cancel(self, job: str) -> tuple[str, ...]:
        self.cancelled.append(job)
        return (job,)


def on_screen(
    source: Source, act: Callable[[Top, Pilot[None]], Awaitable[None]], size: tuple[int, int]
) -> None:
    """Act on a screen of this size that has looked once."""

    async def run() -> None:
        app = Top(source, every_s=3600.0)
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            await act(app, pilot)

    asyncio.run(run())


async def settled(app: Top, pilot: Pilot[None]) -> None:
    """Every question was answered and is shown."""
    await app.workers.wait_for_complete()
    await pilot.pause()


def text_of(app: Top, what: str) -> str:
    return str(app.screen.query_one(what, Static).render())


def ids(app: Top) -> list[str]:
    return [str(key.value) for key in app.query_one("#jobs", DataTable).rows]


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_clusters_and_jobs_are_shown(tmp_path: Path, size: tuple[int, int]) -> None:
    async def act(app: Top, pilot: Pilot[None]) -> None:
        jobs, clusters = (app.query_one(name, DataTable) for name in ("#jobs", "#clusters"))
        assert "1 waiting, 1 placed, by easy" in text_of(app, "#head")
        assert str(clusters.get_cell_at((0, 0))) == "alpha"  # type: ignore[arg-type]
        assert str(jobs.get_cell_at((0, 1))) == "[red]x[/] ?[31m"  # type: ignore[arg-type]
        assert jobs.size.height >= 10

    on_screen(Fake(tmp_path), act, size)


def test_keys_sort_filter_and_keep_the_chosen_job(tmp_path: Path) -> None:
    source = Fake(tmp_path)

    async def act(app: Top, pilot: Pilot[None]) -> None:
        assert ids(app) == ["1", "2", "3"]
        await pilot.press("down")
        assert app.chosen() == "2"
        await pilot.press("s", "s")
        assert ids(app) == ["2", "3", "1"]
        assert app.chosen() == "2"
        assert "by procs" in text_of(app, "#note")
        await pilot.press("slash", *"bob", "enter")
        assert ids(app) == ["2"]
        await pilot.press("escape")
        assert len(ids(app)) == 3
        source.found = replace(LOOK, jobs=JOBS[:1])
        app.look()
        await settled(app, pilot)
        assert ids(app) == ["1"]

    on_screen(source, act, (80, 24))


def test_a_job_is_opened_and_its_output_followed(tmp_path: Path) -> None:
    (tmp_path / "coalloc-1.out").write_text("first\n[bold]\x1b]0;bad\x07\n")

    async def act(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await settled(app, pilot)
        assert "JobScreen" in str(app.screen)
        assert "Job 1" in text_of(app, "#text")
        await pilot.press("o")
        await settled(app, pilot)
        assert text_of(app, "#text") == "first\n[bold]?]0;bad?"
        assert "coalloc-1.out" in text_of(app, "#head")
        await pilot.press("escape")
        assert len(app.screen_stack) == 1
        await pilot.press("down", "o")
        await settled(app, pilot)
        assert "No such file" in text_of(app, "#text")

    on_screen(Fake(tmp_path), act, (80, 24))


def test_a_job_is_cancelled_only_after_a_yes(tmp_path: Path) -> None:
    source = Fake(tmp_path)

    async def act(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("down", "c")
        assert len(app.screen_stack) == 2
        await pilot.press("n")
        await settled(app, pilot)
        assert source.cancelled == [""]
        await pilot.press("c", "y")
        await settled(app, pilot)
        assert source.cancelled == ["", "2"]
        await pilot.press("down", "c")
        assert len(app.screen_stack) == 1, "it has ended already"

    on_screen(source, act, (80, 24))


def test_a_daemon_that_goes_is_said_and_the_last_look_stays(tmp_path: Path) -> None:
    source = Fake(tmp_path)

    async def act(app: Top, pilot: Pilot[None]) -> None:
        source.is_there = False
        app.look()
        await settled(app, pilot)
        assert "NOT NOW: no daemon listens" in text_of(app, "#head")
        assert len(ids(app)) == 3
        source.is_there = True
        app.look()
        await settled(app, pilot)
        assert "by easy" in text_of(app, "#head")

    on_screen(source, act, (80, 24))


def test_of_many_jobs_the_first_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_view, "MOST_LINES", 2)
    lines, count = job_lines(LOOK)
    assert ([job for job, _ in lines], count) == (["1", "2"], 3)
    assert [job for job, _ in job_lines(LOOK, words="ADA comp")[0]] == ["3"]


def test_where_the_output_lies(tmp_path: Path) -> None:
    job, _ = Fake(tmp_path).job("2")
    assert output_path(job) == tmp_path / "coalloc-2.out"
    named = structs.replace(job, launch=Launch(argv=("sh",), cwd="/w", stdout="o/%j-%r-%%j"))
    assert output_path(named) == Path("/w/o/2-0-%j")
    assert output_path(structs.replace(job, launch=Launch(argv=()))) is None


def test_the_end_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out"
    path.write_text("1234\n5678\n9\n")
    monkeypatch.setattr(top_view, "TAIL_BYTES", 5)
    assert tail(path) == "9"
    with pytest.raises(OSError, match="no regular file"):
        tail(Path("/dev/null"))
