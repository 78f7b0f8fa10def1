"""A frame of the wire: one JSON object with a ``type`` (docs/PROTOCOL.md outranks this file).

What clients need of the codec, without the messages of executors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

PROTOCOL = 1
"""Version of docs/PROTOCOL.md; a frame that names another one is refused."""


LONGEST_ID = 200
MAX_REQUEST_BYTES = 16 << 20
"""Of a client's message, unless the daemon's configuration says otherwise."""


class WireError(ValueError):
    """A frame that is not a message; `code` says which kind of fault, for counting."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _RequestHead(msgspec.Struct):
    id: str = ""


_encoder = msgspec.json.Encoder()
_head_decoder = msgspec.json.Decoder(_RequestHead)
_decoder = msgspec.json.Decoder()


def encode(body: Any) -> bytes:
    """Any plain value or dataclass as JSON."""
    return _encoder.encode(body)


def encode_answer(request: str, answer: Any) -> bytes:
    """An answer with the id of its request in front; `answer` has at least a ``type``."""
    return b'{"id":' + _encoder.encode(request) + b"," + _encoder.encode(answer)[1:]


def decode_object(frame: bytes) -> dict[str, Any]:
    """One JSON object with a text ``type``; else ``bad_json``, ``bad_shape`` or ``bad_version``."""
    body = decode_any(frame)
    if not isinstance(body.get("type"), str):
        raise WireError("bad_shape", "type: is missing")
    version = body.get("protocol", PROTOCOL)
    if version != PROTOCOL:
        shown = str(version)[:20]
        raise WireError("bad_version", f"protocol: {shown} is not spoken here, only {PROTOCOL}")
    return body


def check_values(frame: bytes, most: int) -> None:
    """Refuse what would take long to read and much to keep, before any of it is read.

    Commas and brackets are counted, each of which may begin a value; those in texts count too.
    """
    if len(frame) > most and frame.count(b",") + frame.count(b"[") + frame.count(b"{") > most:
        raise WireError("too_many_values", f"more than {most} values in one message")


def check_texts(frame: bytes, body: Any) -> None:
    """Refuse a NUL character, which no argument, variable or path can hold.

    The body is only looked through where its frame names that character.
    """
    if b"\\u0000" not in frame:
        return
    left = [("", body)]
    while left:
        where, value = left.pop()
        if isinstance(value, Mapping):
            left += ((f"{where}.{key}".lstrip("."), part) for key, part in value.items())
            left += ((f"{where}: a name", key) for key in value)
        elif isinstance(value, list):
            left += ((f"{where}[{place}]", part) for place, part in enumerate(value))
        elif isinstance(value, str) and "\0" in value:
            shown = where.replace("\0", "\\0")
            raise WireError("bad_field", f"{shown}: holds a NUL character")


def id_of(frame: bytes) -> str:
    """The id of a request of which nothing else is read; empty where there is none."""
    try:
        found = _head_decoder.decode(frame).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return found if len(found) <= LONGEST_ID else ""


def decode_any(frame: bytes) -> dict[str, Any]:
    """One JSON object; else ``bad_json`` or ``bad_shape``."""
    try:
        body = _decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError("bad_json", f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise WireError("bad_shape", "not a JSON object")
    return body
