"""Frames, JSON and types on every socket: each message is taken, or counted and refused."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.core.base.events import Requested, StatementReceived
from coalloc.core.base.messages import Statement, Streamed
from coalloc.daemon.access.access import Access
from coalloc.daemon.access.enrolment import Conversation, Enrolment, Peer
from coalloc.daemon.access.key_table import KeyTable
from coalloc.model.settings import AccessConfig, ClusterConfig, Config, DaemonConfig
from coalloc.wire.codec import COMMANDS, decode_command
from coalloc.wire.curve import new_pair
from coalloc.wire.frames import WireError, decode_any, decode_object, encode
from coalloc.wire.server import Origin, Server
from tests.fuzz.wire_targets import commands, enrolments, questions, statements
from tests.properties.test_wire_bytes import VALUES
from tests.properties.test_workflow_bytes import replaced
from tests.support.core_site import Site


def bodies(frames: Sequence[bytes]) -> st.SearchStrategy[dict[str, Any]]:
    """Good messages with some of their parts replaced by values of any type."""
    changes = st.lists(st.tuples(st.integers(1, 40), VALUES), max_size=3)

    def changed(frame: bytes, places: Sequence[tuple[int, Any]]) -> dict[str, Any]:
        body = decode_any(frame)
        for place, value in places:
            body = replaced(body, place, value)
        return body

    return st.builds(changed, st.sampled_from(frames), changes)


def frames_of(good: Sequence[bytes]) -> st.SearchStrategy[list[bytes]]:
    """Multipart messages: one frame as a rule, and none or several."""
    one = bodies(good).map(encode) | st.binary(max_size=80) | st.sampled_from(good)
    return one.map(lambda frame: [frame]) | st.lists(one, max_size=3)


class Ends:
    """A server without a network: what it hands over, counts, and answers."""

    def __init__(self, folder: str) -> None:
        self.requests: list[Mapping[str, Any]] = []
        self.statements: list[Statement | Streamed] = []
        self.faults: list[tuple[str, str]] = []
        self.answers: list[Mapping[str, Any]] = []
        self.server = Server(
            DaemonConfig(
                endpoint=f"ipc://{folder}/c",
                executor_endpoint=f"ipc://{folder}/e",
                publish_endpoint=f"ipc://{folder}/w",
                max_message_bytes=1 << 20,
            ),
            on_request=self._requested,
            on_statement=lambda statement, _: self.statements.append(statement),
            on_fault=self._faulted,
        )
        self.server._clients.send = self._answered  # type: ignore[method-assign]

    def _requested(self, origin: Origin, body: Mapping[str, Any]) -> None:
        self.requests.append(body)
        if body["type"] in COMMANDS:
            decode_command(body)

    def _faulted(self, where: str, code: str, message: str, first: bool) -> None:
        assert "\n" not in message
        self.faults.append((where, code))

    def _answered(self, frames: Sequence[bytes]) -> bool:
        self.answers.append(decode_any(frames[-1]))
        return True

    def clear(self) -> None:
        for kept in (self.requests, self.statements, self.faults, self.answers):
            kept.clear()


@pytest.fixture(scope="module")
def ends() -> Iterator[Ends]:
    with tempfile.TemporaryDirectory(prefix="co-") as folder:
        ends = Ends(folder)
        yield ends
        ends.server.close()


@given(frames=frames_of([*commands(), *questions()]))
def test_clients(ends: Ends, frames: list[bytes]) -> None:
    """Whatever is no good request is counted once and answered once, under its id if it has one."""
    ends.clear()
    ends.server._from_client([b"peer", *frames])
    assert len(ends.faults) == len(ends.answers) == (0 if is_good(frames) else 1)
    for answer in ends.answers:
        assert (answer["type"], answer["code"]) == ("refused", "bad_request")
        if ends.requests:
            assert answer["id"] == ends.requests[0]["id"]


def is_good(frames: list[bytes]) -> bool:
    """By the document: one frame, an object with a type and an id, and good fields."""
    try:
        (frame,) = frames
        body = decode_object(frame)
        if body["type"] in COMMANDS:
            decode_command(body)
    except (ValueError, WireError):
        return False
    return isinstance(body.get("id"), str) and len(body["id"]) <= 200


@given(frames=frames_of(statements()))
def test_executors(ends: Ends, frames: list[bytes]) -> None:
    """Whatever is no statement is counted, and nobody is answered."""
    ends.clear()
    ends.server._from_executor([b"peer", *frames])
    assert len(ends.faults) + len(ends.statements) == 1
    assert not ends.answers


@given(frames=st.lists(st.binary(max_size=40).map(lambda topic: b"\x01" + topic) | st.binary()))
def test_watchers(ends: Ends, frames: list[bytes]) -> None:
    ends.server._publisher._subscribed(frames)


@settings(max_examples=60)
@given(said=st.lists(bodies([*commands(), *statements()]), max_size=6))
def test_the_core_takes_every_well_formed_message(said: list[dict[str, Any]]) -> None:
    """What decodes changes the core or is refused by it, in whatever order it comes."""
    site = Site({"alpha": 2, "b": 2})
    site.submit(2)
    for body in said:
        try:
            command = decode_command(decode_object(encode(body)))
        except WireError:
            continue
        event = Requested(origin="x", user="u", uid=1, gid=1, operator=True, command=command)
        before = len(site.answers)
        site.do(event)
        assert len(site.answers) == before + 1


@settings(max_examples=60)
@given(frames=st.lists(bodies(statements()), max_size=6))
def test_the_core_takes_every_statement(ends: Ends, frames: list[dict[str, Any]]) -> None:
    ends.clear()
    for body in frames:
        ends.server._from_executor([b"peer", encode(body)])
    site = Site({"b": 2, "beta": 2})
    site.submit(2)
    for statement in ends.statements:
        if not isinstance(statement, Streamed):  # which is not for the core
            site.do(StatementReceived(statement=statement))


@pytest.fixture(scope="module")
def enrolment() -> Iterator[Callable[[bytes], Mapping[str, Any]]]:
    with tempfile.TemporaryDirectory(prefix="co-") as folder:
        silent: Any = structlog.wrap_logger(structlog.ReturnLogger())
        table = KeyTable(Path(folder) / "keys.json")
        access = Access(new_pair(), table, AccessConfig(), silent)
        config = Config(clusters=(ClusterConfig(name="alpha"),))
        enrolment = Enrolment(access, config, on_change=lambda key: None)
        peer = Peer(user="daemon", uid=1, is_admin=True)
        yield lambda line: Conversation(enrolment, peer).answer(line)


@settings(max_examples=60)
@given(line=bodies(enrolments()).map(encode) | st.binary(max_size=80))
def test_enrolment(enrolment: Callable[[bytes], Mapping[str, Any]], line: bytes) -> None:
    """One line, one answer: the daemon's key with what was asked for, or one line why not."""
    answer = json.loads(json.dumps(enrolment(line)))
    assert ("server" in answer) is not ("error" in answer)
    assert "\n" not in answer.get("error", "")
