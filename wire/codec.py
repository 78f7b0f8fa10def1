"""Messages as JSON frames and back (docs/PROTOCOL.md outranks this file).

A frame is one JSON object with a ``type``. Unknown fields are ignored; an unknown type, or
anything that is not such an object, raises `WireError`, which the caller counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from coalloc.core.base import messages, requests
from coalloc.core.base.messages import Hello, Numbered, Order, Report, Statement, Streamed, Welcome
from coalloc.model.sites.parts import OF_THE_EXECUTOR
from coalloc.wire.frames import PROTOCOL, WireError, decode_object, encode


def _by_type(union: Any) -> dict[str, type[Any]]:
    """Classes of a union by the ``type`` of their messages: the name, as in ``submit_workflow``."""
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower(): cls for cls in get_args(union)}


ORDERS = _by_type(Order)
ToExecutor = messages.Welcome | messages.Ping | messages.TurnedAway | messages.Stream
TO_EXECUTOR = _by_type(ToExecutor)
FROM_EXECUTOR = _by_type(Statement | Streamed)
COMMANDS = _by_type(requests.Command)
_TAGS = {
    cls: tag
    for table in (ORDERS, TO_EXECUTOR, FROM_EXECUTOR, COMMANDS)
    for tag, cls in table.items()
}


def _decoded(body: Mapping[str, Any], classes: Mapping[str, type[Any]], what: str) -> Any:
    cls = classes.get(body.get("type", ""))
    if cls is None:
        raise WireError("unknown_type", f"type: unknown {what} {str(body.get('type'))[:40]!r}")
    try:
        return msgspec.convert(body, cls)
    except msgspec.ValidationError as error:
        raise WireError("bad_field", readable(str(error))) from error


def readable(message: str) -> str:
    """Msgspec's 'Expected `int`, got `str` - at `$.part`' as 'part: expected int, got str'."""
    what, _, where = message.partition(" - at ")
    where = where.strip("`").removeprefix("$").removeprefix(".")
    what = what.replace("`", "")
    what = what[:1].lower() + what[1:]
    return f"{where}: {what}" if where else what


def tagged(message: Any) -> dict[str, Any]:
    """A message's fields with its type."""
    body = {"type": _TAGS[type(message)], **msgspec.to_builtins(message)}
    if isinstance(message, Hello | Report):
        body["parts"] = [
            {name: value for name, value in part.items() if name not in OF_THE_EXECUTOR}
            for part in body["parts"]
        ]
    return body


def encode_message(message: Any) -> bytes:
    """A message to or from an executor, or a command, as a frame."""
    if isinstance(message, Numbered):
        return encode({**tagged(message.order), "epoch": message.epoch, "seq": message.seq})
    if isinstance(message, Hello | Welcome):
        return encode({"protocol": PROTOCOL, **tagged(message)})
    return encode(tagged(message))


def encode_order(order: Order) -> bytes:
    """An order as it is kept in the outbox."""
    return encode(tagged(order))


def decode_order(body: Mapping[str, Any]) -> Order:
    """An order from the outbox or the wire."""
    order: Order = _decoded(body, ORDERS, "order")
    return order


def decode_for_executor(frame: bytes) -> Numbered | ToExecutor:
    """Decode a message to an executor."""
    body = decode_object(frame)
    if body["type"] in TO_EXECUTOR:
        heard: ToExecutor = _decoded(body, TO_EXECUTOR, "message")
        return heard
    order = decode_order(body)
    seq, epoch = body.get("seq"), body.get("epoch")
    if not isinstance(seq, int) or not isinstance(epoch, int):
        raise WireError("bad_field", "seq, epoch: expected whole numbers")
    return Numbered(epoch=epoch, seq=seq, order=order)


def decode_from_executor(frame: bytes) -> Statement | Streamed:
    """Decode an executor's message to the daemon."""
    statement: Statement | Streamed = _decoded(decode_object(frame), FROM_EXECUTOR, "statement")
    return statement


def decode_command(body: Mapping[str, Any]) -> requests.Command:
    """A client's command, from a decoded request."""
    command: requests.Command = _decoded(body, COMMANDS, "request")
    return command
