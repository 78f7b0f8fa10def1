"""YAML as plain lists, objects and texts: no tags, no aliases, no guesses at types.

Every scalar stays the text that the file has (``0010`` and ``no`` are names here), an empty plain
one, ``~`` and ``null`` are None. Aliases are refused: a few lines of them can stand for more than
any memory holds.
"""

from __future__ import annotations

from typing import Any

import yaml

from coalloc.model.errors import InputError

LARGEST_DEPTH = 100
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def decode_yaml(text: str) -> Any:
    """Decode one YAML document. Raises `InputError` with the line."""
    stack: list[list[Any] | dict[str, Any]] = []
    keys: list[str | None] = []
    top: list[Any] = []
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            where = f"line {event.start_mark.line + 1}" if event.start_mark else ""
            match event:
                case yaml.AliasEvent():
                    raise InputError(where, "YAML aliases are refused")
                case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                    inner: list[Any] | dict[str, Any] = (
                        [] if isinstance(event, yaml.SequenceStartEvent) else {}
                    )
                    _put(inner, stack, keys, top, where)
                    stack.append(inner)
                    keys.append(None)
                    if len(stack) > LARGEST_DEPTH:
                        raise InputError(where, "is nested too deeply")
                case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                    stack.pop()
                    keys.pop()
                case yaml.ScalarEvent():
                    plain = event.style is None and event.value in ("", "~", "null")
                    _put(None if plain else event.value, stack, keys, top, where)
                case _:
                    pass
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}" if mark is not None else ""
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "is no YAML"
        raise InputError(place, f"is no YAML: {what}") from error
    if len(top) != 1:
        raise InputError("", f"holds {len(top)} YAML documents, not one")
    return top[0]


def _put(
    value: Any,
    stack: list[list[Any] | dict[str, Any]],
    keys: list[str | None],
    top: list[Any],
    where: str,
) -> None:
    if not stack:
        top.append(value)
        return
    outer = stack[-1]
    if isinstance(outer, list):
        outer.append(value)
    elif keys[-1] is None:
        if not isinstance(value, str):
            raise InputError(where, "a key is not a text")
        if value in outer:
            raise InputError(where, f"key {value!r} appears twice in an object")
        keys[-1] = value
    else:
        outer[keys[-1]] = value
        keys[-1] = None
