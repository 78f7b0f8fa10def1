"""Words about the fields of a class, or the members of an enumeration: the string below each.

What is made from a class (JSON Schemas, tables of the documents, help texts) takes them from
here, so that they stand once, beside the field.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise


@cache
def field_words(form: type) -> Mapping[str, str]:
    """Words by the name of the field, on one line each; those of inherited fields come first.

    A field without a string below it has no entry.
    """
    words: dict[str, str] = {}
    for one in reversed(form.__mro__):
        words |= _by_class(one.__module__).get(one.__qualname__, {})
    return words


@cache
def _by_class(module: str) -> Mapping[str, Mapping[str, str]]:
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return {}
    return dict(_classes(ast.parse(source), ""))


def _classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.ClassDef):
            yield f"{prefix}{one.name}", dict(_fields(one.body))
            yield from _classes(one, f"{prefix}{one.name}.")


def _fields(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.split())
