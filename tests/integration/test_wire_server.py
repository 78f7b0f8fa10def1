"""The daemon's sockets against hostile peers: counted, answered or dropped, and it goes on."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from coalloc.core.base.messages import Ping, Read, Statement, Streamed
from coalloc.model.settings import DaemonConfig
from coalloc.wire.codec import encode_message
from coalloc.wire.frames import encode
from coalloc.wire.server import ExecutorPeer, Origin, Server

LIMIT_S = 60.0
MAX_BYTES = 1 << 20


class Site:
    """A server that echoes requests and keeps what it heard."""

    def __init__(self, root: Path) -> None:
        self.config = DaemonConfig(
            endpoint=f"ipc://{root}/c",
            executor_endpoint=f"ipc://{root}/e",
            publish_endpoint=f"ipc://{root}/w",
            max_message_bytes=MAX_BYTES,
        )
        self.logged: list[tuple[str, str]] = []
        self.counted: list[tuple[str, str]] = []
        self.statements: list[Statement | Streamed] = []
        self.peers: list[ExecutorPeer] = []
        self.server = Server(
            self.config,
            on_request=self._request,
            on_statement=self._statement,
            on_fault=self._fault,
        )
        self.context = zmq.asyncio.Context()
        self.sockets: list[zmq.asyncio.Socket] = []

    def _request(self, origin: Origin, body: Mapping[str, Any]) -> None:
        self.server.answer(origin, {"type": "echo", "said": body["type"]})

    def _statement(self, statement: Statement | Streamed, peer: ExecutorPeer) -> None:
        self.statements.append(statement)
        self.peers.append(peer)

    def _fault(self, where: str, code: str, message: str, first: bool) -> None:
        self.counted.append((where, code))
        if first:
            self.logged.append((where, code))

    def connect(self, kind: int, endpoint: str) -> zmq.asyncio.Socket:
        socket = self.context.socket(kind)
        self.sockets.append(socket)
        socket.setsockopt(zmq.LINGER, 0)
        if kind == zmq.SUB:
            socket.setsockopt(zmq.SUBSCRIBE, b"event.")
        socket.connect(endpoint)
        return socket

    def close(self) -> None:
        for socket in self.sockets:
            socket.close()
        self.context.term()
        self.server.close()

    def client(self) -> zmq.asyncio.Socket:
        return self.connect(zmq.DEALER, self.config.endpoint)

    def executor(self) -> zmq.asyncio.Socket:
        return self.connect(zmq.DEALER, self.config.executor_endpoint)


Body = Callable[[Site], Coroutine[Any, Any, None]]


@pytest.fixture
def serve() -> Iterator[Callable[[Body], None]]:
    """Run a test's coroutine beside a server."""
    with tempfile.TemporaryDirectory(prefix="co-wire-") as root:

        async def run(body: Body) -> None:
            site = Site(Path(root))
            site.server.open(asyncio.get_running_loop())
            try:
                await asyncio.wait_for(body(site), LIMIT_S)
            finally:
                site.close()

        yield lambda body: asyncio.run(run(body))


async def answer(socket: zmq.asyncio.Socket) -> dict[str, Any]:
    frames = await socket.recv_multipart()
    assert len(frames) == 1
    body: dict[str, Any] = json.loads(frames[0])
    return body


async def is_served(site: Site) -> None:
    """A well-behaved client gets its answer."""
    socket = site.client()
    await socket.send(encode({"type": "status", "id": "good"}))
    assert await answer(socket) == {"id": "good", "type": "echo", "said": "status"}


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


HOSTILE = [
    pytest.param([b""], "bad_json", "", id="empty frame"),
    pytest.param([b"hello"], "bad_json", "", id="no JSON"),
    pytest.param([b'{"type": "queue", "id": "1"'], "bad_json", "", id="cut off"),
    pytest.param([b'{"type": "\xc3\x28", "id": "1"}'], "bad_json", "", id="invalid UTF-8"),
    pytest.param([b"\xff\xfe\x00\x80" * 50], "bad_json", "", id="binary"),
    pytest.param([b"[" * 100_000], "bad_json", "", id="deep list"),
    pytest.param([b'{"a":' * 100_000], "bad_json", "", id="deep object"),
    pytest.param([b"[1, 2]"], "bad_shape", "", id="no object"),
    pytest.param([b'{"id": "1"}'], "bad_shape", "", id="no type"),
    pytest.param([b'{"type": "queue"}'], "bad_shape", "", id="no id"),
    pytest.param([b'{"type": "queue", "id": 5}'], "bad_shape", "", id="id no text"),
    pytest.param([encode({"type": "queue", "id": "x" * 201})], "bad_shape", "", id="endless id"),
    pytest.param([b'{"type": "queue", "id": "1"}', b"more"], "bad_frames", "", id="frame too many"),
    pytest.param([b""] * 50, "bad_frames", "", id="many empty frames"),
    pytest.param(
        [b'{"type": "queue", "id": "1", "protocol": 7}'], "bad_version", "", id="other version"
    ),
]


@pytest.mark.parametrize(("frames", "code", "request_id"), HOSTILE)
def test_a_hostile_client_is_refused_and_the_next_one_served(
    serve: Callable[[Body], None], frames: list[bytes], code: str, request_id: str
) -> None:
    async def body(site: Site) -> None:
        hostile = site.client()
        for _ in range(3):
            await hostile.send_multipart(frames)
            refused = await answer(hostile)
            assert refused["type"] == "refused"
            assert refused["code"] == "bad_request"
            assert refused["id"] == request_id
            assert refused["message"]
        assert site.server.faults[f"client_{code}"] == 3
        # counted each time, to be logged once
        assert site.counted == [("client", code)] * 3
        assert site.logged == [("client", code)]
        # its connection stays open
        await hostile.send(encode({"type": "nodes", "id": "2"}))
        assert (await answer(hostile))["said"] == "nodes"
        await is_served(site)

    serve(body)


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        pytest.param([b""], "bad_json", id="empty frame"),
        pytest.param([b"[" * 100_000], "bad_json", id="deep list"),
        pytest.param([b'{"type": "hello", "cluster": "\xff"}'], "bad_json", id="invalid UTF-8"),
        pytest.param([b'{"type": "obey"}'], "unknown_type", id="unknown type"),
        pytest.param([b'{"type": "hello"}'], "bad_field", id="no cluster"),
        pytest.param([b'{"type": "hello", "cluster": 1}'], "bad_field", id="cluster no text"),
        pytest.param([b'{"type": "goodbye", "cluster": "a"}', b""], "bad_frames", id="frame more"),
    ],
)
def test_a_hostile_executor_is_dropped_and_the_next_one_heard(
    serve: Callable[[Body], None], frames: list[bytes], code: str
) -> None:
    async def body(site: Site) -> None:
        hostile, good = site.executor(), site.executor()
        await hostile.send_multipart(frames)
        await until(lambda: site.server.faults[f"executor_{code}"] == 1)
        assert not site.statements
        await good.send(encode_message(Read(cluster="alpha", error="none")))
        await until(lambda: site.statements == [Read(cluster="alpha", error="none")])
        assert site.server.tell("alpha", site.peers[-1], Ping(epoch=4))
        ping = {"type": "ping", "epoch": 4, "known": True, "wanted": 0, "stages": [], "read": False}
        assert await answer(good) == ping
        await is_served(site)

    serve(body)


def test_a_frame_above_the_limit_ends_its_connection_only(
    serve: Callable[[Body], None],
) -> None:
    async def body(site: Site) -> None:
        beside = site.client()
        await beside.send(encode({"type": "queue", "id": "1"}))
        await answer(beside)
        hostile = site.client()
        monitor = hostile.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        site.sockets.insert(0, monitor)
        await hostile.send(b"x" * (100 << 20))
        await monitor.recv_multipart()
        assert not site.server.faults
        await beside.send(encode({"type": "plan", "id": "2"}))
        assert (await answer(beside))["said"] == "plan"
        await is_served(site)

    serve(body)


def test_a_frame_below_the_limit_is_read(serve: Callable[[Body], None]) -> None:
    async def body(site: Site) -> None:
        socket = site.client()
        await socket.send(encode({"type": "submit", "id": "1", "pad": "x" * (MAX_BYTES - 100)}))
        assert (await answer(socket))["said"] == "submit"

    serve(body)


def test_a_request_of_too_many_values_is_refused_under_its_id(
    serve: Callable[[Body], None],
) -> None:
    """To read millions of empty lists would keep everybody waiting for seconds."""

    async def body(site: Site) -> None:
        socket = site.client()
        many = encode({"type": "submit", "job": [[]] * 260_000, "id": "7"})
        assert len(many) < MAX_BYTES
        await socket.send(many)
        refused = await answer(socket)
        assert (refused["id"], refused["code"]) == ("7", "bad_request")
        assert "more than 250000 values" in refused["message"]
        await socket.send(many.replace(b'"7"', b"7"))
        assert (await answer(socket))["id"] == ""
        assert site.server.faults["client_too_many_values"] == 2
        await socket.send(encode({"type": "submit", "pad": "x," * 260_000, "id": "8"}))
        assert (await answer(socket))["id"] == "8"

    serve(body)


def test_what_comes_while_a_socket_rests_is_read_afterwards(
    serve: Callable[[Body], None],
) -> None:
    async def body(site: Site) -> None:
        socket = site.client()
        await socket.send(encode({"type": "queue", "id": "1"}))
        await answer(socket)
        port = site.server._clients
        read = port.on_frames
        during: list[bool] = []

        def note(frames: list[bytes]) -> None:
            during.append(port._resting is not None)
            read(frames)

        port.on_frames = note
        for number in range(2, 50):
            port.rest()
            await socket.send(encode({"type": "queue", "id": str(number)}))
        heard = [(await answer(socket))["id"] for _ in range(2, 50)]
        assert heard == [str(number) for number in range(2, 50)]
        assert during == [False] * 48

    serve(body)


def test_a_client_that_goes_before_its_answer_is_not_waited_for(
    serve: Callable[[Body], None],
) -> None:
    async def body(site: Site) -> None:
        site.server.answer(Origin(peer=b"\x00gone", request="1"), {"type": "done"})
        assert site.server.faults["answer_undeliverable"] == 1
        await is_served(site)

    serve(body)


def test_pipelined_requests_are_all_answered(serve: Callable[[Body], None]) -> None:
    async def body(site: Site) -> None:
        socket = site.client()
        # more than one turn of the loop takes in
        for number in range(5000):
            await socket.send(encode({"type": "queue", "id": str(number)}))
        ids = [(await answer(socket))["id"] for _ in range(5000)]
        assert ids == [str(number) for number in range(5000)]

    serve(body)


def test_a_watcher_is_greeted_with_the_place_in_the_stream(
    serve: Callable[[Body], None],
) -> None:
    async def body(site: Site) -> None:
        site.server.publish("event.job_ended.1", {"seq": 1})
        site.server.publish("round", {"round": 1})
        socket = site.connect(zmq.SUB, site.config.publish_endpoint)
        topic, frame = await socket.recv_multipart()
        assert topic == b"event."
        assert json.loads(frame) == {"watch_seq": 2, "welcome": True, "protocol": 1}
        site.server.publish("round", {"round": 2})
        site.server.publish("event.job_ended.2", {"seq": 2})
        topic, frame = await socket.recv_multipart()
        assert topic == b"event.job_ended.2"
        assert json.loads(frame) == {"watch_seq": 4, "seq": 2}

    serve(body)


def test_a_watcher_that_sends_garbage_is_ignored(serve: Callable[[Body], None]) -> None:
    async def body(site: Site) -> None:
        socket = site.connect(zmq.XSUB, site.config.publish_endpoint)
        await socket.send(b"")
        await socket.send(b"\x07garbage")
        await socket.send_multipart([b"a", b"b"])
        await socket.send(b"\x01round")
        assert (await socket.recv_multipart())[0] == b"round"
        await is_served(site)

    serve(body)


def test_sockets_whose_files_are_gone_listen_again(serve: Callable[[Body], None]) -> None:
    """Who is connected stays so; who comes later is served like before."""

    async def body(site: Site) -> None:
        early = site.client()
        watching = site.connect(zmq.SUB, site.config.publish_endpoint)
        await is_served(site)
        assert json.loads((await watching.recv_multipart())[1])["welcome"]
        ports = site.server.listeners
        assert [port.name for port in ports] == ["clients", "executors", "watchers"]
        for port in ports:
            assert port.path is not None
            assert port.is_there()
            port.path.unlink()
            assert not port.is_there()
            port.restore()
            assert port.is_there()
            assert port.path.stat().st_mode & 0o777 == 0o600
        await is_served(site)
        await early.send(encode({"type": "status", "id": "early"}))
        assert (await answer(early))["id"] == "early"
        later = site.connect(zmq.SUB, site.config.publish_endpoint)
        assert json.loads((await later.recv_multipart())[1])["welcome"]
        await watching.recv_multipart()  # the same greeting, which reaches all
        site.server.publish("event.job_ended.1", {"seq": 1})
        for socket in (watching, later):
            assert json.loads((await socket.recv_multipart())[1])["seq"] == 1
        executor = site.executor()
        await executor.send(encode_message(Read(cluster="alpha", error="x")))
        await until(lambda: bool(site.statements))

    serve(body)
