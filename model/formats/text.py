"""JSON text of a file or a message: decoded with one-line errors."""

from __future__ import annotations

import json
from typing import Any

from coalloc.model.errors import InputError


def decode_json(data: bytes | str, where: str = "") -> Any:
    """Decode JSON text; a key that appears twice in one object is refused.

    Bytes are UTF-8, with or without a byte order mark; `where` names the file in the error.
    """
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise InputError(where, f"byte {error.start} is not UTF-8") from error
    try:
        return json.loads(text, object_pairs_hook=_object)
    except InputError as error:
        raise InputError(where, error.what) from None
    except json.JSONDecodeError as error:
        raise InputError(
            where, f"line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    except RecursionError:
        raise InputError(where, "is nested too deeply") from None
    except ValueError as error:
        raise InputError(where, "holds a number with too many digits") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InputError("", f"key {key!r} appears twice in an object")
            seen.add(key)
    return out
