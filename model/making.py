"""Frozen values made in numbers: a full queue is a hundred thousand of them at a start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

T = TypeVar("T")


def maker(cls: type[T]) -> Callable[[Mapping[str, Any]], T]:
    """Return a maker of a frozen dataclass with slots, twice as fast as its ``__init__``.

    That looks each field up by its name, which for 35 fields is most of the work.

    Parameters
    ----------
    cls : type
        Without ``__post_init__``; its default factories give values that nobody changes.

    Returns
    -------
    callable
        Takes the fields by name; raises TypeError where one is missing or none of the class.
    """
    declared = fields(cls)  # type: ignore[arg-type]
    template: dict[str, Any] = {}
    for field in declared:
        factory = field.default_factory
        template[field.name] = field.default if factory is MISSING else factory()
    required = {name for name, value in template.items() if value is MISSING}
    put = [getattr(cls, field.name).__set__ for field in declared]
    new = object.__new__

    def make(given: Mapping[str, Any]) -> T:
        values = {**template, **given}
        if len(values) != len(put) or not required <= given.keys():
            wrong = sorted({*given.keys() - template.keys(), *required - given.keys()})
            raise TypeError(f"{cls.__name__}: missing or unknown fields: {', '.join(wrong)}")
        made: T = new(cls)
        for assign, value in zip(put, values.values(), strict=True):
            assign(made, value)
        return made

    return make
