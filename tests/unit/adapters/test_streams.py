"""Streams between a runner and a reader that comes and goes."""

from __future__ import annotations

import os
import pwd
import random
import select
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.runner.batch.barrier import NodeWrapper
from coalloc.adapters.runner.batch.relay import StreamRelay
from coalloc.adapters.runner.rank import opened_as
from coalloc.adapters.runner.streams import CHUNK, CREDIT, Buffer, Input, Streams, Tail
from coalloc.client.streams import Reading
from coalloc.wire.answers import StreamAnswer


def test_whatever_is_read_again_nothing_is_lost_or_said_twice() -> None:
    draw = random.Random(1)
    for _ in range(50):
        buffer, reading = Buffer(), Reading()
        text, said, heard = draw.randbytes(3 * CREDIT // 2), 0, b""
        late: list[StreamAnswer] = []
        while len(heard) < len(text):
            room = min(buffer.room, draw.randrange(2 * CHUNK))
            buffer.kept += text[said : said + room]
            said = min(len(text), said + room)
            assert 0 <= buffer.room <= CREDIT
            place, data = buffer.read(reading.at(0).get("o", 0))
            assert len(data) <= CHUNK
            chunk = ("o", place, b64encode(data).decode())
            late.append(StreamAnswer(state="running", attempt=1, parts=1, chunks=(chunk,)))
            if draw.random() < 0.3:  # an answer is lost, or comes after a newer one
                continue
            for answer in draw.sample(late, len(late)):
                for _, lost, new in reading.take(0, answer):
                    assert not lost or answer is not late[-1]
                    heard += new if not lost else b""
            late.clear()
        assert heard == text


def test_input_that_comes_again_is_taken_once() -> None:
    given = Input()
    assert given.offer(0, b"abc") == 3
    assert given.offer(0, b"abcde") == 5
    assert given.offer(5, b"") == 5
    assert bytes(given.left) == b"abcde"
    assert given.offer(5, b"x" * CREDIT) == CREDIT, "what there is no room for is not taken"


def test_a_full_buffer_is_not_watched_until_it_is_read() -> None:
    told: list[dict[str, Any]] = []
    streams = Streams(told.append, lambda signum: None, "pipes")
    streams.open(None)
    assert streams.ends is not None
    out = os.dup(streams.ends[1])
    poller = select.poll()
    streams.watch(poller)
    os.set_blocking(out, False)
    sent = 0
    while ready := poller.poll(0) or sent < CREDIT:
        sent += os.write(out, b"x" * CHUNK) if sent < CREDIT else 0
        for fd, _ in ready if isinstance(ready, list) else poller.poll(0):
            assert streams.take(fd)
    at = 0
    os.close(out)
    while not (told and told[-1].get("ended")):
        streams.wish({"number": 1, "at": {"o": at}})
        streams.end(is_cut=False)
        if chunks := told[-1]["chunks"]:
            ((_, place, text),) = chunks
            assert place == at
            at += len(text) // 4 * 3 - text.count("=")
    assert at == sent
    assert streams.end(is_cut=False)


def test_files_are_read_from_their_end(tmp_path: Path) -> None:
    path = tmp_path / "out"
    tail = Tail(lambda: os.open(path, os.O_RDONLY))
    assert tail.read(-4) == (0, b"")
    path.write_bytes(b"0123456789")
    assert tail.read(-4) == (6, b"6789")
    assert tail.read(6) == (6, b"6789")
    assert tail.read(10) == (10, b"")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has others' files")
def test_a_file_is_opened_with_its_users_rights(tmp_path: Path) -> None:
    nobody, path = pwd.getpwnam("nobody"), Path(f"/tmp/co-{os.getpid()}-out")
    path.write_text("secret")
    try:
        path.chmod(0o600)
        with pytest.raises(PermissionError):
            opened_as(nobody.pw_uid, nobody, str(path))
        assert os.geteuid() == 0
        os.chown(path, nobody.pw_uid, -1)
        os.close(opened_as(nobody.pw_uid, nobody, str(path)))
    finally:
        path.unlink()


class Nodes:
    """A barrier of two nodes that never answer by themselves."""

    def __init__(self) -> None:
        spec: Any = {"ranks": [], "stream": "pipes"}
        self.nodes = {name: NodeWrapper(spec) for name in "ab"}
        self.told: list[str] = []
        self.on_word: dict[str, Any] = {}

    def tell(self, node: NodeWrapper, *words: str) -> None:
        self.told.append(next(name for name, each in self.nodes.items() if each is node))


def test_no_node_waits_for_another(tmp_path: Path) -> None:
    barrier: Any = Nodes()
    said: list[dict[str, Any]] = []
    relay: Any = StreamRelay(str(tmp_path), barrier)
    relay.link.say = said.append
    relay.wish({"number": 1, "at": {}})
    assert barrier.told == ["a", "b"]
    a, b = barrier.nodes.values()
    barrier.on_word["stream"](a, '{"number": 1, "chunks": [["o", 0, "YQ=="]], "ended": false}')
    barrier.on_word["stream"](b, '{"number": 1, "chunks": [["o", 0, "Yg=="]], "ended": false}')
    relay.wish({"number": 2, "at": {"o0": 1}})
    assert [each["chunks"] for each in said] == [[["o0", 0, "YQ=="]], [["o1", 0, "Yg=="]]]
    relay.wish({"number": 3, "at": {"o0": 1, "o1": 1}})
    for node in (a, b):
        barrier.on_word["stream"](node, '{"number": 3, "chunks": [], "ended": true}')
    assert [each["ended"] for each in said] == [False, False, True]
