"""Tables of fields in docs/PROTOCOL.md, from the classes of its messages.

A table stands between ``<!-- fields: CLASS -->`` and ``<!-- end -->``; with ``CLASS except OTHER``
the fields of another class are left out, since they are told elsewhere. Words are the strings below
the fields. The head of the first column stays as it is, since it says whose fields these are. The
table of the kinds of events is between ``<!-- kinds: events -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from coalloc.model.event_kinds import EventKind
from coalloc.model.formats.words import field_words
from coalloc.model.sites.parts import OF_THE_EXECUTOR

MODULES = (
    "coalloc.wire.share_answers",
    *(f"coalloc.wire.{name}_rows" for name in ("job", "node")),
    *(f"coalloc.wire.{name}" for name in ("answers", "questions")),
    *(
        f"coalloc.core.base.{name}"
        for name in ("accuracy", "projects", "requests", "messages", "records")
    ),
    *(
        f"coalloc.model.sites.{name}"
        for name in ("parts", "reading", "site_rules", "staging", "streams")
    ),
    "coalloc.model.snapshot",
)
"""Homes of the classes that the page names; each name has one."""
NOT_SENT: Mapping[str, frozenset[str]] = {
    "Submitted": frozenset({"token"}),  # the client adds it
    "PartReport": frozenset(OF_THE_EXECUTOR),
}
MARKED = re.compile(r"(<!-- fields: (\w+)(?: except (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)
KINDS = re.compile(r"(<!-- kinds: events -->\n).*?(<!-- end -->)", re.DOTALL)
FIRST = re.compile(r"^\| (.+?) \| Kind", re.MULTILINE)
ONE = {str: "text", int: "integer", float: "number", bool: "flag"}
MANY = {str: "text", int: "integers", float: "numbers", bool: "flags"}
OBJECTS = frozenset({"object", "object or null", "list of objects"})
"""Kinds that have a table of their own below, unless something else is said of them."""


def with_fields(text: str) -> str:
    """The page with all its tables as the classes are."""

    def fill(found: re.Match[str]) -> str:
        hidden = NOT_SENT.get(found[2], frozenset())
        if found[3]:
            hidden |= set(message(found[3]).__struct_fields__)
        first = FIRST.search(found[0])
        head = f"| {first[1] if first else 'Field'} | Kind | Meaning |"
        lines = ["", head, "|---|---|---|", *rows(message(found[2]), hidden), "", found[4]]
        return found[1] + "\n".join(lines)

    return KINDS.sub(rf"\1\n{_kinds()}\n\n\2", MARKED.sub(fill, text))


def _kinds() -> str:
    words = field_words(EventKind)
    lines = [f"| `{kind.value}` | {words[kind.name].removesuffix('.')} |" for kind in EventKind]
    return "\n".join(["| Kind | Fields |", "|---|---|", *lines]).replace("\\", r"\\")


def message(name: str) -> type[msgspec.Struct]:
    """The class of this name.

    Raises
    ------
    LookupError
    """
    for module in MODULES:
        found = vars(import_module(module)).get(name)
        if isinstance(found, type) and found.__module__ == module:
            return found
    raise LookupError(f"no message is called {name}")


def rows(form: type[msgspec.Struct], hidden: frozenset[str] = frozenset()) -> Iterator[str]:
    """A line for each field that is sent."""
    hints, words = get_type_hints(form, include_extras=True), field_words(form)
    for field in msgspec.structs.fields(form):
        if field.name in hidden:
            continue
        kind = kind_of(hints[field.name])
        if not field.required:
            kind += f", default {_default(field)}"
        said = words.get(field.name, "Below" if kind.partition(",")[0] in OBJECTS else "")
        said = said.replace("``", "`").replace("|", "\\|")
        yield f"| `{field.encode_name}` | {kind} | {said.removesuffix('.')} |"


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    plain = {} if isinstance(value, msgspec.Struct) else msgspec.to_builtins(value)
    return json.dumps(plain).removesuffix(".0")


def kind_of(hint: Any) -> str:
    """The kind of a field, in the page's words."""
    origin, kinds = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return kind_of(kinds[0])
    if origin in (Union, UnionType):
        some = {kind_of(kind) for kind in kinds if kind is not NoneType}
        text = some.pop() if len(some) == 1 else "object"
        return f"{text} or null" if NoneType in kinds else text
    if origin is Literal:
        return "text"
    if origin is tuple:
        return _list_of(kinds[0])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"object of {MANY[kinds[1]]}" if kinds[1] in MANY else "object"
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return "text"
    return ONE.get(hint, "object")


def _list_of(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return "list of pairs"
    return f"list of {MANY[kind]}" if kind in MANY else "list of objects"
