"""Who speaks for a cluster: one executor at a time, and what becomes of jobs when it is new."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coalloc.core.messages import Goodbye, Hello, Ping, Read
from coalloc.wire.codec import encode_message
from tests.integration.test_wire_server import Body, Site, answer, until
from tests.integration.test_wire_server import serve as serve  # a fixture
from tests.support.live_site import Running

FIRST = Hello(cluster="alpha", identity="first")
SECOND = Hello(cluster="alpha", identity="second")
READ = Read(cluster="alpha", error="none")


@pytest.fixture
def site(root: Path) -> Iterator[Running]:
    site = Running(root, clusters={"alpha": 2})
    yield site
    site.stop()


def test_a_second_executor_is_turned_away_until_the_first_is_forgotten(
    serve: Callable[[Body], None],
) -> None:
    async def body(site: Site) -> None:
        first, second = site.executor(), site.executor()
        await first.send(encode_message(FIRST))
        await until(lambda: site.statements == [FIRST])
        await second.send(encode_message(SECOND))
        assert (await answer(second))["type"] == "turned_away"
        for said in (READ, Goodbye(cluster="alpha")):
            await second.send(encode_message(said))
            assert await answer(second) == {"type": "ping", "epoch": 0, "known": False, "wanted": 0}
        assert site.logged == [("executor", "second_executor")]
        assert site.server.tell("alpha", Ping(epoch=4))
        assert (await answer(first))["epoch"] == 4, "orders go to the first"
        assert site.statements == [FIRST]
        site.server.forget("alpha")
        await second.send(encode_message(SECOND))
        await until(lambda: site.statements == [FIRST, SECOND])
        assert site.server.tell("alpha", Ping(epoch=5))
        assert (await answer(second))["epoch"] == 5

    serve(body)


def test_the_same_executor_on_a_new_connection_takes_over_at_once(
    serve: Callable[[Body], None],
) -> None:
    async def body(site: Site) -> None:
        former, later = site.executor(), site.executor()
        await former.send(encode_message(FIRST))
        await until(lambda: len(site.statements) == 1)
        await later.send(encode_message(READ))
        assert (await answer(later))["known"] is False, "it is asked who it is"
        await later.send(encode_message(FIRST))
        await later.send(encode_message(READ))
        await until(lambda: site.statements == [FIRST, FIRST, READ])
        assert site.server.tell("alpha", Ping(epoch=4))
        assert (await answer(later))["epoch"] == 4

    serve(body)


def test_one_state_folder_serves_one_executor(site: Running) -> None:
    site.start()
    first = site.processes.pop("alpha")
    site.start_executor("alpha")
    assert site.kill_when_ended("alpha") == 1
    said = (site.root / "alpha.log").read_text().splitlines()[-1]
    assert said.startswith("coalloc-executor: error: ")
    assert said.endswith("another executor uses this folder")
    site.processes["alpha"] = first
    assert site.wait(site.submit(["true"]))["state"] == "completed"


@pytest.mark.slow
def test_jobs_of_an_executor_that_has_lost_its_state_end_as_lost(site: Running) -> None:
    site.start()
    mark = site.work / "started"
    argv = ["sh", "-c", f"echo once >> {mark}; exec sleep 600"]
    job = site.submit(argv)
    site.until(lambda: site.job(job)["state"] == "running")
    site.kill("alpha")
    # beside the new one: the end of the test finds the job's processes there
    states = site.root / "state" / "executors"
    (states / "alpha").rename(states / "gone")
    site.start_executor("alpha")
    ended = site.wait(job)
    assert ended["state"] == "lost"
    assert "lost its state" in ended["detail"]
    assert site.lines("executor_state_lost")[0]["jobs"] == job
    assert site.wait(site.submit(["true"]))["state"] == "completed"
    assert mark.read_text() == "once\n", "it was not started again"
