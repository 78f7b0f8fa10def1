"""Options of policies: how they are declared, and how they are read.

A policy declares its options as a class below `Options`. Each field has its kind, its range
(``Annotated[kind, Meta(ge=...)]``) and its default, and a string below it says what it means. What
several classes have in common is a type with a ``description``. Command line, JSON, schema and the
lists of ``coalloc policies`` are read from there.

``Meta(extra=...)`` may have ``synonyms``, other words for choices, and ``check``, a function of a
text and its place that raises InputError where the text is not of the form it should have.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from math import isfinite
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct, inspect

from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown
from coalloc.model.formats.structs import faults, key_text
from coalloc.model.formats.words import field_words

LARGEST = 1e18
"""No number is larger."""
NAMES = "__annotations__"
"""Where a class keeps the names that it declares itself."""

Objective = Annotated[
    Literal["makespan", "weighted_completion"],
    Meta(description="What the plan reports as its objective."),
]
PowerStep = Annotated[
    float,
    Meta(
        ge=0,
        le=1,
        description="Powers are rounded down to this step before nodes are grouped; 0 keeps them "
        "exact.",
    ),
]
Coallocation = Annotated[
    Literal["sooner", "needed", "forbidden"],
    Meta(
        description="When a job is split: where it ends sooner (or: allowed), where no cluster "
        "could hold it (or: preferred-single), or never.",
        extra={"synonyms": {"allowed": "sooner", "preferred-single": "needed"}},
    ),
]
WorkflowLinks = Annotated[
    Literal["booked", "idle"],
    Meta(
        description="Tasks that are split book their links, or find them idle, as in published "
        "mappings; where plans are started, they always book them.",
    ),
]
CoallocateMoldable = Annotated[
    bool, Meta(description="Split moldable jobs that name no proc_gbps, too.")
]
GuardAfter = Annotated[
    Annotated[int, Meta(ge=0)] | None,
    Meta(
        description="Jobs passed over this often are booked first, the others around them; 0 or "
        "null is off.",
    ),
]


class Options(Struct, frozen=True, kw_only=True):
    """Base of every declaration of options."""


class CommonOptions(Options, frozen=True, kw_only=True):
    """Options of every policy on the kernel."""

    objective: Objective = "makespan"
    power_step: PowerStep = 0.0
    coallocation: Coallocation = "sooner"
    coallocate_moldable: CoallocateMoldable = False
    guard_after: GuardAfter = None


class Option(Struct, frozen=True, kw_only=True):
    """One option, as its class declares it."""

    name: str
    default: Any
    doc: str
    kind: inspect.Type
    """Without null."""
    nullable: bool
    choices: tuple[str, ...]
    """In the order of the declaration; empty: any value of the kind."""
    synonyms: Mapping[str, str]
    check: Callable[[str, str], None] | None
    schema: Mapping[str, Any]
    """JSON Schema."""

    def read(self, value: Any, where: str) -> Any:
        """Return the value if it is as declared; else raises `InputError`."""
        if value is None and self.nullable:
            return None
        value = _usual(value, self.kind)
        if self.choices:
            if not isinstance(value, str):
                raise InputError(where, f"{shown(value)} is not a text")
            value = self.synonyms.get(value, value)
            if value not in self.choices:
                raise InputError(where, f"{shown(value)} is not one of {', '.join(self.choices)}")
            return value
        for path, what in faults(value, self.kind):
            raise InputError(where + key_text(path), what)
        if self.check is not None:
            self.check(value, where)
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int | float) and abs(number) > LARGEST:
                raise InputError(where, f"{shown(number)} is above {LARGEST:g}")
        match self.kind:
            case inspect.FloatType():
                return float(value)
            case inspect.VarTupleType():
                return tuple(map(float, value))
            case _:
                return value


def _usual(value: Any, kind: inspect.Type) -> Any:
    """A value in the form that decoders give it: whole numbers without a point, lists."""
    if isinstance(kind, inspect.IntType) and isinstance(value, float) and isfinite(value):
        return int(value) if value.is_integer() else value
    return list(value) if isinstance(value, tuple) else value


@cache
def options_of(form: type[Options]) -> Mapping[str, Option]:
    """The options that a class declares, by name; those of its bases come first."""
    hints = get_type_hints(form, include_extras=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(form)}
    declared = [name for one in reversed(form.__mro__) for name in one.__dict__.get(NAMES, ())]
    words = field_words(form)
    return {
        name: _option(name, hints[name], defaults[name], words.get(name, ""))
        for name in dict.fromkeys(declared)
    }


def _option(name: str, hint: Any, default: Any, words: str) -> Option:
    told, extra = inspect.type_info(hint), dict[str, Any]()
    if isinstance(told, inspect.Metadata):
        extra, told = told.extra or {}, told.type
    kind = told
    if isinstance(told, inspect.UnionType):
        kind = next(one for one in told.types if not isinstance(one, inspect.NoneType))
    schema = {"description": words, **msgspec.json.schema(hint)}
    choices = _choices(hint) if isinstance(kind, inspect.LiteralType) else ()
    return Option(
        name=name,
        default=default,
        doc=schema["description"],
        kind=kind,
        nullable=isinstance(told, inspect.UnionType),
        choices=choices,
        synonyms=extra.get("synonyms", {}),
        check=extra.get("check"),
        schema={"type": "string", **schema, "enum": list(choices)} if choices else schema,
    )


def _choices(hint: Any) -> tuple[str, ...]:
    """In the order of their declaration; msgspec sorts them."""
    return get_args(get_args(hint)[0] if get_origin(hint) is Annotated else hint)


def defaults_of(form: type[Options]) -> dict[str, Any]:
    """Every option with its default."""
    return {name: option.default for name, option in options_of(form).items()}


def read_options(given: Mapping[str, Any], form: type[Options]) -> dict[str, Any]:
    """Complete a mapping of options with the defaults.

    Raises `InputError`: ``options.skip: 3 is not true or false``, or the names that exist if one is
    unknown.
    """
    out = defaults_of(form)
    for name, value in given.items():
        out[name] = _known(name, form, "options").read(value, f"options.{name}")
    return out


def read_known(given: Mapping[str, Any], form: type[Options]) -> dict[str, Any]:
    """The same; what the policy does not have is left out."""
    known = options_of(form)
    return read_options({name: value for name, value in given.items() if name in known}, form)


def parse_options(
    texts: Iterable[str], form: type[Options], where: str = "--set"
) -> dict[str, Any]:
    """Read ``name=value`` texts; the result holds only what was named.

    Values are JSON; a text needs no quotes. Raises `InputError`.
    """
    out: dict[str, Any] = {}
    for text in texts:
        name, equals, raw = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise InputError(where, f"{shown(text)} is not of the form name=value")
        option = _known(name, form, where)
        out[name] = option.read(_value(raw, option), f"{where} {name}")
    return out


def _value(raw: str, option: Option) -> Any:
    is_text = isinstance(option.kind, inspect.StrType | inspect.LiteralType)
    if is_text and not raw.startswith('"'):
        return raw
    if isinstance(option.kind, inspect.FloatType):
        try:
            return float(raw)  # takes .5 as well, which JSON does not
        except ValueError:
            pass
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def _known(name: str, form: type[Options], where: str) -> Option:
    known = options_of(form)
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        raise InputError(f"{where} {name}", f"unknown option; this policy has {names}")
    return known[name]
