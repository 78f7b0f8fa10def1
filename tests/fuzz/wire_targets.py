"""What comes over the daemon's sockets and the executors': frames, and what the core does then."""

from __future__ import annotations

import atexit
import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import structlog

from coalloc.core.base.events import Caller, Requested, StatementReceived, Ticked
from coalloc.core.base.messages import Stream, Streamed
from coalloc.core.base.requests import Refused, RequestError
from coalloc.core.executor.effects import ClaimPart, MessageReceived, SendStatement
from coalloc.core.executor.machine import ExecutorCore, ExecutorState
from coalloc.daemon.access import enrolment as enrol
from coalloc.daemon.access.access import Access
from coalloc.daemon.access.key_table import KeyTable
from coalloc.daemon.queries.answers import ANSWERS, Sources, answered, array_of
from coalloc.daemon.queries.waiters import Waiters
from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.store.schema import LASTING, carry_out, migrate
from coalloc.daemon.store.sqlite import Store
from coalloc.executor.actions import spec_of
from coalloc.model.settings import AccessConfig, ClusterConfig, Config
from coalloc.wire.answers import Health
from coalloc.wire.codec import (
    COMMANDS,
    FROM_EXECUTOR,
    ORDERS,
    decode_command,
    decode_for_executor,
    decode_from_executor,
    encode_message,
)
from coalloc.wire.curve import KeyPair, new_pair
from coalloc.wire.frames import WireError, decode_any, decode_object, encode
from coalloc.wire.server import Origin
from tests.fuzz.target import Target
from tests.support.core_site import Site

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "PROTOCOL.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```json (\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
TYPES = (
    *COMMANDS,
    *ANSWERS,
    *FROM_EXECUTOR,
    *ORDERS,
    "welcome",
    "ping",
    "wait",
    "why",
    "test_submit",
)
WORDS = tuple(f'"type":"{name}"'.encode() for name in TYPES)
MOST_LINES = 40
ASKER = Origin(peer=b"x", request="1")


def examples(*kinds: str) -> list[bytes]:
    """The examples of docs/PROTOCOL.md of these kinds, each in one line."""
    return [encode(json.loads(text)) for kind, text in EXAMPLES if not kinds or kind in kinds]


def _submits() -> list[bytes]:
    job = {"kind": "rigid", "procs": 2, "base_time": 60.0}
    amdahl = {"model": "amdahl", "time": 90.0, "parallel_fraction": 0.9}
    moldable = {"kind": "moldable", "min_procs": 1, "max_procs": 4, "speedup": amdahl}
    launch = {"argv": ["true"], "cwd": "/tmp", "env": {"PATH": "/bin"}}
    bodies: list[dict[str, Any]] = [
        {"type": "submit", "token": "a", "job": job, "launch": launch},
        {"type": "submit", "token": "b", "job": moldable, "launch": launch, "needs": []},
        {"type": "submit", "token": "c", "job": job, "launch": launch, "array": [1, 2, 5]},
        {
            "type": "submit_workflow",
            "token": "d",
            "job": {
                "kind": "workflow",
                "tasks": [{"id": "a", "work": 5.0}, {"id": "b", "work": 6.0, "max_procs": 2}],
                "edges": [{"from": "a", "to": "b", "gb": 0.5}],
            },
            "launch": {**launch, "argv": ["run", "{task}"]},
            "retries": 1,
        },
    ]
    return [encode({"id": "1", **body}) for body in bodies]


def questions() -> list[bytes]:
    """One request of each type that changes nothing."""
    bodies: list[dict[str, Any]] = [
        {"type": "queue", "all": True, "user": "ann", "after": "1", "limit": 2},
        {"type": "events", "since": 3, "limit": 10, "job": "1"},
        *({"type": kind, "job": job} for kind in ("show", "why", "wait") for job in ("1", "3.1")),
        *({"type": kind} for kind in ("nodes", "plan", "snapshot", "status")),
    ]
    return [encode({"id": "1", **body}) for body in bodies]


def commands() -> list[bytes]:
    """Requests that change something, from the document and of our own."""
    known = examples("client")
    rest = [
        {"type": kind, "job": job} for kind in ("hold", "release", "cancel") for job in ("1", "3")
    ]
    return [*known, *_submits(), *(encode({"id": "1", **body}) for body in rest)]


def statements() -> list[bytes]:
    """What an executor says."""
    return [body.replace(b'"beta"', b'"b"') for body in examples("from_executor")]


@cache
def _table() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, Path("memory"))
    return connection


def _core(content: bytes) -> None:
    """Every line as a request and as a statement, before a core of its own, and on to the store.

    A line that is neither is passed over, as the daemon does.
    """
    site = Site({"a": 2, "b": 2})
    site.submit(2)
    site.submit_workflow("x y", "x>y")
    for line in content.split(b"\n")[:MOST_LINES]:
        site.now += 0.5
        for read in (_request, _statement):
            try:
                event = read(line)
            except WireError:
                continue
            site.do(event)
    site.now += 100.0
    site.do(Ticked())
    connection = _table()
    connection.execute("BEGIN")
    try:
        for effect in site.effects:
            if type(effect) in LASTING:
                carry_out(connection, type(effect), [effect])
    finally:
        connection.execute("ROLLBACK")


def _request(line: bytes) -> Requested:
    command = decode_command(decode_object(line))
    return Requested(origin="x", user="ann", uid=1, gid=1, operator=True, command=command)


def _statement(line: bytes) -> StatementReceived:
    statement = decode_from_executor(line)
    if isinstance(statement, Streamed):
        raise WireError("unknown_type", "it is not for the core")
    return StatementReceived(statement=statement)


@cache
def _sources() -> Sources:
    """A queue with a job of each kind, one that runs and one that has ended, and their store."""
    folder = Path(tempfile.mkdtemp(prefix="co-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    site = Site({"a": 2, "b": 2})
    ended = site.submit(2)
    site.run(ended)
    site.finish(ended)
    site.run(site.submit(3))
    site.submit_workflow("x y", "x>y")
    site.submit(array=(1, 2), user="bob")
    store = Store(folder / "coalloc.db")
    store.commit(site.effects)
    caller = Caller(user="ann", uid=1, gid=1, operator=True)
    return Sources(state=site.state, store=store, caller=caller, health=Health)


def _question(content: bytes) -> None:
    sources = _sources()
    body = decode_object(content)
    if body["type"] == "wait":
        waiters = Waiters(partial(array_of, sources), _swallow, _swallow)
        waiters.add(ASKER, str(body.get("job") or ""), "ann")
    elif body["type"] in ANSWERS:
        encode(answered(sources, body, 2000.0))


def _swallow(origin: Origin, answer: Any) -> None:
    if not isinstance(answer, Refused):
        encode(answer)


@cache
def _enrolment() -> enrol.Enrolment:
    folder = Path(tempfile.mkdtemp(prefix="co-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pair = KeyPair(public="0" * 40, secret="1" * 40)
    silent: Any = structlog.wrap_logger(structlog.ReturnLogger())
    access = Access(pair, KeyTable(folder / "keys.json"), AccessConfig(), silent)
    config = Config(clusters=(ClusterConfig(name="alpha"),))
    return enrol.Enrolment(access, config, on_change=lambda key: None, clock=lambda: 5.0)


def _enrol(content: bytes) -> None:
    enrolment = _enrolment()
    for admin in (False, True):
        peer = enrol.Peer(user="daemon", uid=1, is_admin=admin)
        conversation = enrol.Conversation(enrolment, peer)
        for line in content.split(b"\n")[:MOST_LINES]:
            json.dumps(conversation.answer(line)).encode()


def enrolments() -> list[bytes]:
    """Lines that the enrolment socket understands."""
    key = new_pair().public
    bodies: list[dict[str, Any]] = [
        {"verb": "authorize", "key": key, "user": "daemon", "role": "submit", "clusters": []},
        {"verb": "authorize", "key": key, "role": "executor", "clusters": ["alpha"]},
        {"verb": "authorize", "key": key, "proves": True},
        {"proof": "00" * 32},
        {"verb": "revoke", "key": key[:12]},
        {"verb": "list"},
    ]
    return [json.dumps(body).encode() + b"\n" for body in bodies]


def _executor(content: bytes) -> None:
    """Every line as the daemon's, before an executor's core."""
    core = ExecutorCore(ExecutorState(cluster="b"))
    for number, line in enumerate(content.split(b"\n")[:MOST_LINES]):
        try:
            message = decode_for_executor(line)
        except WireError:
            continue
        if isinstance(message, Stream):  # it is not for the core
            continue
        for effect in core.handle(MessageReceived(message=message), 10.0 + number):
            if isinstance(effect, ClaimPart):
                spec_of(effect.order, "b", core.state.epoch)
            elif isinstance(effect, SendStatement):
                encode_message(effect.statement)


def _orders() -> Sequence[bytes]:
    told = examples("to_executor")
    welcome = encode(
        {"type": "welcome", "store": "s", "epoch": 3, "base_seq": 118, "lease_s": 60.0}
    )
    return [*told, b"\n".join([welcome, *told])]


def _conversation() -> list[bytes]:
    """Statements and requests one by one, and as one conversation."""
    parts = [{"job": "1", "attempt": 1, "part": 0, "state": state} for state in _STATES]
    reports = [encode({"type": "report", "cluster": "a", "last_seq": 1, "parts": parts})]
    lines = [*commands(), *statements(), *reports]
    return [*lines, b"\n".join(lines)]


_STATES = ("preparing", "ready", "running", "finished", "refused", "lost")


TARGETS: dict[str, Target] = {
    "frame": Target(
        run=decode_any,
        allowed=(WireError,),
        seeds=lambda: [*examples(), *commands()],
        words=WORDS,
    ),
    "statement": Target(
        run=decode_from_executor, allowed=(WireError,), seeds=statements, words=WORDS
    ),
    "order": Target(run=decode_for_executor, allowed=(WireError,), seeds=_orders, words=WORDS),
    "command": Target(
        run=lambda content: decode_command(decode_object(content)),
        allowed=(WireError,),
        seeds=commands,
        words=WORDS,
    ),
    "core": Target(run=_core, allowed=(), seeds=_conversation, words=WORDS),
    "executor": Target(run=_executor, allowed=(), seeds=_orders, words=WORDS),
    "question": Target(
        run=_question,
        allowed=(WireError, RequestError, StoreError),
        seeds=questions,
        words=WORDS,
    ),
    "enrolment": Target(run=_enrol, allowed=(), seeds=enrolments, words=(b'"alpha"', b"list")),
}
