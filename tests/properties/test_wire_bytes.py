"""Frames of any bytes, and messages of any content."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.core.base import messages, requests
from coalloc.core.base.messages import Numbered
from coalloc.model.sites.batch_options import BatchOptions
from coalloc.model.sites.parts import Launch, PartReport, PartState
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.wire import codec
from coalloc.wire.frames import WireError, decode_object, encode

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
COUNTS = st.dictionaries(TEXT, st.integers(1, 64), max_size=3)
TIMES = st.floats(0, 2e9)
NUMBERS = st.integers(0, 2**53)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
LAUNCHES = st.builds(
    Launch,
    argv=st.lists(TEXT, max_size=3).map(tuple),
    script=TEXT,
    env=st.dictionaries(TEXT, TEXT, max_size=3),
    cwd=TEXT,
    stdout=TEXT,
    stderr=TEXT,
)
PARTS = st.builds(
    PartReport,
    job=TEXT,
    attempt=NUMBERS,
    part=NUMBERS,
    state=st.sampled_from(PartState),
    exit_code=st.none() | st.integers(0, 255),
    started=st.none() | TIMES,
    ended=st.none() | TIMES,
    reason=TEXT,
    detail=TEXT,
)
ORDERS = st.one_of(
    st.builds(
        messages.Prepare,
        job=TEXT,
        attempt=NUMBERS,
        part=NUMBERS,
        nodes=COUNTS,
        all_nodes=COUNTS,
        first_rank=NUMBERS,
        size=NUMBERS,
        uid=st.integers(-1, 2**31),
        gid=st.integers(-1, 2**31),
        lease_s=TIMES,
        name=TEXT,
        time_limit=st.none() | TIMES,
        array_index=st.none() | NUMBERS,
        rendezvous=TEXT,
        launch=st.none() | LAUNCHES,
    ),
    st.builds(messages.Start, job=TEXT, attempt=NUMBERS),
    st.builds(messages.Abort, job=TEXT, attempt=NUMBERS, reason=TEXT),
    st.builds(messages.Forget, job=TEXT, attempt=NUMBERS),
)
STATEMENTS = st.one_of(
    st.builds(
        messages.Hello,
        cluster=TEXT,
        store=TEXT,
        last_seq=NUMBERS,
        parts=st.lists(PARTS, max_size=2).map(tuple),
    ),
    st.builds(
        messages.Report,
        cluster=TEXT,
        last_seq=NUMBERS,
        parts=st.lists(PARTS, max_size=2).map(tuple),
    ),
    st.builds(
        messages.Read,
        cluster=TEXT,
        reading=st.none()
        | st.builds(
            ClusterReading,
            cluster=TEXT,
            nodes=st.lists(
                st.builds(
                    NodeReading,
                    name=TEXT,
                    power=st.floats(0.01, 1),
                    slots=NUMBERS,
                    features=st.lists(TEXT, max_size=2).map(tuple),
                    memory_mb=st.none() | NUMBERS,
                    load=st.floats(0, 1),
                ),
                max_size=2,
            ).map(tuple),
            running=st.just(()),
            waiting=NUMBERS,
        ),
        error=TEXT,
    ),
    st.builds(messages.Goodbye, cluster=TEXT),
    st.builds(messages.Started, cluster=TEXT),
)
DECODERS = (
    decode_object,
    codec.decode_for_executor,
    codec.decode_from_executor,
    lambda frame: codec.decode_command(decode_object(frame)),
)


@pytest.mark.parametrize("decode", DECODERS)
@given(frame=st.binary(max_size=60))
def test_any_bytes_raise_only_wire_errors(decode: Any, frame: bytes) -> None:
    with suppress(WireError):
        decode(frame)


TAGS = sorted({*codec.ORDERS, *codec.TO_EXECUTOR, *codec.FROM_EXECUTOR, *codec.COMMANDS})
FIELDS = ("job", "attempt", "cluster", "epoch", "seq", "token", "launch", "parts", "last_seq")


@pytest.mark.parametrize("decode", DECODERS)
@given(tag=st.sampled_from(TAGS), body=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6))
def test_any_fields_raise_only_wire_errors(decode: Any, tag: str, body: dict[str, Any]) -> None:
    with suppress(WireError):
        decode(encode({**body, "type": tag}))


@given(order=ORDERS, epoch=NUMBERS, seq=NUMBERS)
def test_orders_round_trip(order: messages.Order, epoch: int, seq: int) -> None:
    numbered = Numbered(epoch=epoch, seq=seq, order=order)
    assert codec.decode_for_executor(codec.encode_message(numbered)) == numbered
    # as kept in the outbox
    assert codec.decode_order(decode_object(codec.encode_order(order))) == order


@given(statement=STATEMENTS)
def test_statements_round_trip(statement: messages.Statement) -> None:
    assert codec.decode_from_executor(codec.encode_message(statement)) == statement


@given(
    submit=st.builds(
        requests.Submit,
        token=TEXT,
        job=st.dictionaries(TEXT, st.integers(0, 9) | TEXT, max_size=3),
        launch=LAUNCHES,
        name=TEXT,
        needs=st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple),
        array=st.lists(NUMBERS, max_size=3).map(tuple),
        hold=st.booleans(),
        hold_infeasible=st.booleans(),
        batch=st.builds(BatchOptions, account=TEXT, qos=TEXT),
    )
)
def test_submits_round_trip(submit: requests.Submit) -> None:
    frame = codec.encode_message(submit)
    assert codec.decode_command(decode_object(frame)) == submit
