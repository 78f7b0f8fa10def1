"""A configuration as TOML text: what ``coallocd --check-config`` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from coalloc.runtime.config.schema import Config


def toml_text(config: Config) -> str:
    """The configuration as it would be used, every key written out; it reads back equal."""
    return "\n".join(_table(config, "")).strip() + "\n"


def _table(table: Struct, name: str) -> Iterator[str]:
    later: list[tuple[str, Any]] = []
    for key in table.__struct_fields__:
        value = getattr(table, key)
        place = f"{name}.{key}" if name else key
        if isinstance(value, Struct) or (value and _is_tables(value)):
            later.append((place, value))
        elif value is not None:
            yield f"{key} = {_value(value)}"
    for place, value in later:
        if isinstance(value, Struct):
            yield from ("", f"[{place}]", *_table(value, place))
        else:
            for item in value:
                yield from ("", f"[[{place}]]", *_table(item, place))


def _is_tables(value: Any) -> bool:
    return isinstance(value, tuple) and isinstance(value[0], Struct)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{json.dumps(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's; DEL is the one character that only JSON leaves bare
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value) if isinstance(value, int | float) else f"{value.isoformat()}"
