"""Functions that run as jobs: how one is named, and what goes to its job and comes back.

A function travels by name, ``module:qualified.name``; arguments and results travel as JSON, to a
worker, or in files of a folder that the cluster shares. Nothing is pickled, so what cannot be named
or written as JSON is refused where it is submitted.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from coalloc.client.main_guard import importing

MAIN = "__main__"
MAIN_THERE = "__coalloc_main__"
"""What ``__main__`` is called in a job, so that what stands under its ``if`` is not run."""
RESULT = "{stem}.result-{rank}.json"
RAISABLE: Mapping[str, type[Exception]] = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception)
}


class NotCallableThereError(TypeError):
    """A function or a value cannot go to a job, or a result cannot come back from it."""


class CallError(Exception):
    """A function that ran as a job raised what has no equal here; or the cause of what has.

    `kind` is the name of the exception's class, `trace` the traceback in the job.
    """

    def __init__(self, kind: str, message: str, trace: str = "") -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind, self.trace = kind, trace


class CallOutcome(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Outcome of one call: a value, or an exception's class, message and traceback."""

    value: Any = None
    kind: str = ""
    message: str = ""
    trace: str = ""
    arguments: tuple[Any, ...] = ()

    @property
    def failed(self) -> bool:
        return bool(self.kind)

    def exception(self) -> Exception:
        """The built-in exception of that name where there is one, with a `CallError` as cause."""
        remote = CallError(self.kind, self.message, self.trace)
        try:
            error: Exception = RAISABLE[self.kind](*self.arguments)
        except (KeyError, TypeError, ValueError):
            error = remote
        else:
            error.__cause__ = remote
        if self.trace:
            error.add_note(self.trace.rstrip())
        return error


def function_name(function: Callable[..., Any]) -> tuple[str, str]:
    """The name by which a job finds a function, and the file of ``__main__`` if it is there.

    Refused is what a job would not find: a lambda, a closure, a method of an object, a partial.
    """
    module = getattr(function, "__module__", None) or ""
    qualified = getattr(function, "__qualname__", "")
    shown = f"{module}.{qualified}" if qualified else repr(function)
    if "<lambda>" in qualified or "<locals>" in qualified:
        raise NotCallableThereError(
            f"{shown} cannot be named in another process; define it at the top of a module"
        )
    if _found(sys.modules.get(module), qualified) is not function:
        raise NotCallableThereError(
            f"{shown} is not what a job would find under that name; only functions at the top of a "
            "module, or of a class there, can be submitted"
        )
    if module != MAIN:
        return f"{module}:{qualified}", ""
    path = getattr(sys.modules[MAIN], "__file__", None)
    if not path or not os.path.isfile(path):
        raise NotCallableThereError(
            f"{shown} was typed in, and no job can read it; put it into a module"
        )
    return f"{module}:{qualified}", os.path.abspath(path)


def _found(module: object, qualified: str) -> object:
    try:
        return reduce(getattr, qualified.split("."), module)
    except AttributeError:
        return None


def as_json(value: Any, where: str) -> Any:
    """A value that JSON returns equal, but for tuples, which come back as lists."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [as_json(item, f"{where}[{i}]") for i, item in enumerate(value)]
        case dict():
            for key in value:
                if not isinstance(key, str):
                    raise NotCallableThereError(f"{where}: key {key!r} is not a text")
            return {key: as_json(item, f"{where}[{key!r}]") for key, item in value.items()}
    raise NotCallableThereError(
        f"{where}: {type(value).__name__} is not JSON; pass texts, numbers, lists and dicts, "
        "or the path of a file"
    )


def calls_text(
    function: Callable[..., Any],
    calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
) -> tuple[str, str]:
    """The function's name, and what a job is given: the function and its calls, as JSON."""
    name, main = function_name(function)
    listed = [
        [
            [as_json(value, f"argument {i + 1} of {name}") for i, value in enumerate(arguments)],
            {key: as_json(value, f"argument {key} of {name}") for key, value in keywords.items()},
        ]
        for arguments, keywords in calls
    ]
    folders = [os.path.abspath(folder) for folder in sys.path]
    body = {"function": name, "main": main, "path": folders, "calls": listed}
    return name, json.dumps(body)


def load_function(body: Mapping[str, Any]) -> Callable[..., Any]:
    """The function that `calls_text` named; an error where its file submits jobs when imported."""
    sys.path[:] = body["path"]
    return _loaded(body["function"], body["main"])


@cache
def _loaded(name: str, main: str) -> Callable[..., Any]:
    module, _, qualified = name.partition(":")
    if module == MAIN:
        with importing(main):
            found = runpy.run_path(main, run_name=MAIN_THERE)
        first, _, rest = qualified.partition(".")
        function = _found(found[first], rest) if rest else found[first]
    else:
        with importing(module):
            function = _found(importlib.import_module(module), qualified)
    if not callable(function):
        raise NotCallableThereError(f"there is no function {name}")
    named: Callable[..., Any] = function
    return named


def outcomes_text(outcomes: Sequence[CallOutcome]) -> str:
    """The result file of a job."""
    return json.dumps({"outcomes": msgspec.to_builtins(outcomes)})


def read_outcomes(path: Path) -> list[CallOutcome]:
    """Result file of a job; raises `OSError`, or `ValueError` where it is none."""
    try:
        return outcomes_in(path.read_text(encoding="utf-8"))
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        raise ValueError(f"{path}: holds no results of calls") from error


def outcomes_in(text: str) -> list[CallOutcome]:
    """Read what `outcomes_text` wrote."""
    return msgspec.convert(json.loads(text)["outcomes"], list[CallOutcome])
