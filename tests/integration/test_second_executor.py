"""Who speaks for a cluster: one executor at a time, and what becomes of jobs when it is new."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from coalloc.core.base.messages import Goodbye, Hello, Ping, Read, TurnedAway
from coalloc.core.clusters.presence import SECOND
from coalloc.wire.codec import decode_for_executor, encode_message
from tests.support.live_site import Running


@pytest.fixture
def site(root: Path) -> Iterator[Running]:
    site = Running(root, clusters={"alpha": 2})
    yield site
    site.stop()


def test_a_second_executor_is_turned_away_while_the_first_is_connected(site: Running) -> None:
    site.start()
    with zmq.Context() as context, context.socket(zmq.DEALER) as second:
        second.linger = 0
        second.rcvtimeo = 60_000
        second.connect(f"ipc://{site.root}/run/executors.sock")
        second.send(encode_message(Hello(cluster="alpha", identity="second")))
        assert decode_for_executor(second.recv()) == TurnedAway(why=SECOND)
        for said in (Read(cluster="alpha", error="none"), Goodbye(cluster="alpha")):
            second.send(encode_message(said))
            asked = decode_for_executor(second.recv())
            assert isinstance(asked, Ping)
            assert not asked.known, "it is asked who it is"
        assert site.wait(site.submit(["true"]))["state"] == "completed"
        assert second.poll(0) == 0, "orders go to the first"
    dropped = [line["fault"] for line in site.lines("message_dropped")]
    assert dropped == ["second_executor"]
    assert not site.lines("executor_disconnected")


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
