"""The Python client against a daemon that is absent, silent, refusing or babbling."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc import Client
from coalloc.client import base, endpoint, job_requests
from coalloc.client import events as client_events
from coalloc.client.client import NoAnswerError, RefusedError
from coalloc.client.submission import change, submission, workflow_submission
from coalloc.model.jobs import Task, WorkflowJob
from coalloc.model.shape import Shape
from coalloc.runtime.user import user_name
from coalloc.wire.curve import CurveClient, KeyPair
from tests.support.fake_daemon import LIMIT_S, FakeDaemon, Stream


@pytest.fixture
def client(daemon: FakeDaemon) -> Iterator[Client]:
    with Client(
        daemon.endpoint, timeout_s=LIMIT_S, publish_endpoint=daemon.publish_endpoint
    ) as connected:
        yield connected


@pytest.fixture
def hasty(daemon: FakeDaemon) -> Iterator[Client]:
    """For what stays unanswered."""
    with Client(daemon.endpoint, timeout_s=0.3) as connected:
        yield connected


def test_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PATIENCE_S", 0.05)
    with Client(f"ipc://{tmp_path}/absent") as client, pytest.raises(NoAnswerError) as caught:
        client.queue()
    assert (
        str(caught.value) == f"no daemon listens at ipc://{tmp_path}/absent; is coallocd running?"
    )


def test_a_socket_that_nobody_serves_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    monkeypatch.setattr(base, "PATIENCE_S", 0.05)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    with Client(f"ipc://{tmp_path}/s") as client, pytest.raises(NoAnswerError, match="no daemon"):
        client.queue()


def test_silence_is_an_error_in_time(daemon: FakeDaemon, hasty: Client) -> None:
    daemon.respond = lambda body: None
    with pytest.raises(NoAnswerError, match=r"no answer from .* within 0\.3 s"):
        hasty.status()


def test_a_refusal_has_code_and_message(daemon: FakeDaemon, client: Client) -> None:
    daemon.respond = lambda body: {"type": "refused", "code": "not_found", "message": "no job 9"}
    with pytest.raises(RefusedError, match="no job 9") as caught:
        client.show("9")
    assert caught.value.code == "not_found"
    assert client.Refused is RefusedError


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([b"\xff\x00"], "not JSON"),
        ([b""], "not JSON"),
        ([b"[]"], "not a JSON object"),
        ([b"{}"], "type: is missing"),
        ([b'{"type": "done", "protocol": 9}'], "protocol: 9"),
        ([b"{}", b"{}"], "expected 1 frame, got 2"),
        ({"type": "queue", "jobs": [{"id": 5}]}, "cannot be understood"),
    ],
)
def test_garbage_is_an_error(daemon: FakeDaemon, client: Client, answer: Any, words: str) -> None:
    daemon.respond = lambda body: answer
    with pytest.raises(NoAnswerError, match=words):
        client.queue()


def test_an_answer_of_another_request_is_not_taken(daemon: FakeDaemon, hasty: Client) -> None:
    daemon.respond = lambda body: [b'{"id": "someone", "type": "queue", "jobs": []}']
    with pytest.raises(NoAnswerError, match="no answer"):
        hasty.queue()


def test_requests_carry_the_version_and_their_own_id(daemon: FakeDaemon, client: Client) -> None:
    client.round_now()
    client.drain("alpha", "new switch")
    first, second = daemon.heard
    assert first["protocol"] == second["protocol"] == 1
    assert first["id"] != second["id"]
    assert (second["type"], second["target"], second["reason"]) == ("drain", "alpha", "new switch")


def test_a_submit_without_an_answer_is_sent_again_with_its_token(daemon: FakeDaemon) -> None:
    daemon.respond = lambda body: (
        {"type": "done", "job": "4", "jobs": ["4"], "again": True}
        if len(daemon.heard) > 1
        else None
    )
    with Client(daemon.endpoint, timeout_s=2.0) as client:  # the second is answered in time
        done = client.submit(["true"], procs=2)
    first, second = daemon.heard
    assert first["token"] == second["token"] == done.token
    assert first["id"] != second["id"]
    assert (done.job, done.again) == ("4", True)


def test_a_submit_that_stays_unanswered_is_an_error(daemon: FakeDaemon, hasty: Client) -> None:
    daemon.respond = lambda body: None
    with pytest.raises(NoAnswerError):
        hasty.submit(["true"], token="mine")
    assert [body["token"] for body in daemon.heard_all(2)] == ["mine", "mine"]


def test_submit_many_keeps_the_order_and_yields_refusals(
    daemon: FakeDaemon, client: Client
) -> None:
    def respond(body: dict[str, Any]) -> dict[str, Any]:
        name = body["name"]
        if name == "5":
            return {"type": "refused", "code": "infeasible", "message": "too large"}
        return {"type": "done", "job": name, "jobs": [name], "again": False}

    daemon.respond = respond
    bodies = (submission(["true"], name=str(number)) for number in range(2500))
    outcomes = list(client.submit_many(bodies))
    assert isinstance(outcomes[5], RefusedError)
    jobs = [o.job for o in outcomes if not isinstance(o, RefusedError)]
    assert jobs == [str(number) for number in range(2500) if number != 5]


def status(epoch: int) -> dict[str, Any]:
    return {
        "type": "status",
        "time": 0.0,
        "user": "ada",
        "epoch": epoch,
        "rounds": 0,
        "paused": False,
        "waiting": 0,
        "placed": 0,
    }


def test_wait_is_asked_again_of_a_daemon_that_was_restarted(
    daemon: FakeDaemon, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_requests, "LOOK_EVERY_S", 0.02)

    def respond(body: dict[str, Any]) -> dict[str, Any] | None:
        waits = [b for b in daemon.heard if b["type"] == "wait"]
        if body["type"] == "status":
            return status(2 if waits else 1)
        # the first daemon takes the question with it
        if len(waits) < 2:
            return None
        return {"type": "ended", "jobs": [{"id": "3", "state": "completed", "exit_code": 0}]}

    daemon.respond = respond
    (ended,) = client.wait("3")
    assert (ended.state, ended.exit_code) == ("completed", 0)
    assert [b["type"] for b in daemon.heard].count("wait") == 2


def test_wait_gives_up_in_time(daemon: FakeDaemon, client: Client) -> None:
    daemon.respond = lambda body: status(1) if body["type"] == "status" else None
    with pytest.raises(TimeoutError, match=r"job 3 has not ended within 0\.05 s"):
        client.wait("3", timeout=0.05)


def test_wait_for_a_job_that_does_not_exist(daemon: FakeDaemon, client: Client) -> None:
    refused = {"type": "refused", "code": "not_found", "message": "there is no job 3"}
    daemon.respond = lambda body: status(1) if body["type"] == "status" else refused
    with pytest.raises(RefusedError, match="there is no job 3"):
        client.wait("3")


@pytest.fixture
def stream(daemon: FakeDaemon) -> Iterator[Stream]:
    stream = Stream(daemon, 3)
    yield stream
    stream.close()


def test_stored_events_come_in_pages(
    daemon: FakeDaemon, client: Client, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_events, "PAGE", 2)
    assert [event.seq for event in client.events()] == [1, 2, 3]
    assert [event.seq for event in client.events(1)] == [2, 3]
    assert [event.seq for event in client.events(job="1")] == [1, 3]
    assert list(client.events(None)) == []


def test_followed_events_have_no_gap(
    client: Client, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_events, "QUIET_S", 0.2)
    following = client.events(1, follow=True)
    greeter = threading.Thread(target=stream.greet)
    greeter.start()
    assert [next(following).seq for _ in range(2)] == [2, 3]  # what was stored before
    greeter.join()
    stream.happen()
    assert next(following).seq == 4
    stream.happen(lost=True)
    stream.happen()
    assert [next(following).seq for _ in range(2)] == [5, 6]  # the gap is filled from the store
    stream.happen(lost=True)
    assert next(following).seq == 7  # the end was lost: asked for after a silence
    stream.happen()
    assert next(following).seq == 8
    following.close()


@pytest.mark.parametrize("away_s", [0.0, LIMIT_S])
def test_events_go_on_when_a_daemon_answers_again(
    daemon: FakeDaemon, stream: Stream, away_s: float
) -> None:
    answers = daemon.respond
    daemon.respond = lambda body: answers(body) if len(daemon.heard) > 2 else None
    greeter = threading.Thread(target=stream.greet)
    greeter.start()
    with Client(daemon.endpoint, 0.1, publish_endpoint=daemon.publish_endpoint) as client:
        following = client.events(0, follow=True, away_s=away_s)
        if away_s:
            assert [next(following).seq for _ in range(2)] == [1, 2]
        else:
            with pytest.raises(NoAnswerError):
                next(following)
        following.close()
    greeter.join()


def test_events_are_asked_for_where_users_are_told_apart(
    client: Client, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is published to a user's key: what is new comes in pages."""
    monkeypatch.setattr(client_events, "POLL_S", 0.01)
    assert client.last_event() == 3
    client.security = CurveClient(pair=KeyPair(public="", secret=""), server="")
    following = client.events(1, follow=True, job="1")
    assert next(following).seq == 3
    for _ in range(4):
        stream.happen(lost=True)
    assert [next(following).seq for _ in range(2)] == [5, 7]
    assert list(client.events(1, follow=True, stopped=lambda: True)) == []
    following.close()


def test_a_greeting_after_a_restart_asks_for_what_was_missed(
    client: Client, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_events, "QUIET_S", 10.0)
    following = client.events(3, follow=True)
    greeter = threading.Thread(target=stream.greet)
    greeter.start()
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.append(next(following).seq))
    reader.start()
    greeter.join()
    stream.happen(lost=True)
    stream.socket.send_multipart([b"event.", b'{"watch_seq": 0, "welcome": true}'])
    reader.join(LIMIT_S)
    assert found == [4]
    following.close()


def test_an_option_that_does_not_exist_is_refused_here() -> None:
    with pytest.raises(TypeError, match="unknown option 'ntasks'"):
        submission(["true"], ntasks=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="argv: a sequence is wanted"):
        submission("true")
    with pytest.raises(ValueError, match="argv: is empty"):
        submission([])
    with pytest.raises(ValueError, match="only one of them"):
        submission(["true"], speedup={"model": "amdahl"}, times={1: 2.0})


def test_what_is_asked_of_nodes_is_a_shape() -> None:
    said: dict[str, Any] = {"cpus_per_proc": 2, "per_node": {"nvme": 1}}
    gres = {"cpus_per_proc": 2, "per_node": {"gpu": 3}}
    assert submission(["x"], shape=said)["job"]["shape"] == said
    assert submission(["x"], shape=Shape(**said), gres="gpu:3")["job"]["shape"] == gres
    assert "shape" not in submission(["x"])["job"]
    assert change("7", gres="")["fields"] == {"shape": {"per_node": {}}}
    task = Task(id="t", work=1.0)
    flow = WorkflowJob(id="", submitted=0.0, tasks=(task,), shape=Shape(**said))
    body = workflow_submission(flow, {"t": ["x"]}, gres="gpu:3")
    assert body["job"]["shape"] == gres


def test_the_client_finds_its_daemon_in_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "coallocd.toml"
    path.write_text(f'[daemon]\nruntime_dir = "{tmp_path}/run"\nstate_dir = "{tmp_path}/state"\n')
    monkeypatch.setenv("COALLOC_CONFIG", str(path))
    with Client() as client:
        assert client.endpoint == f"ipc://{tmp_path}/run/coalloc.sock"


def test_whose_daemon_it_is_that_lets_nobody_in(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    assert "serves one user" in endpoint._kept_out(folder / "coalloc.sock")
    assert user_name() in endpoint._kept_out(folder / "coalloc.sock")
    folder.chmod(0o711)
    assert endpoint._kept_out(folder / "coalloc.sock") == ""
    (folder / "coalloc.sock").touch(0o600)
    assert "serves one user" in endpoint._kept_out(folder / "coalloc.sock")
