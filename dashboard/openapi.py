"""The OpenAPI document, made from the routes: their parameters, answers and docstrings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_type_hints

import msgspec
from starlette.responses import StreamingResponse

import coalloc
from coalloc.dashboard.answers import Change, Fault, Nothing

TEMPLATE = "#/components/schemas/{name}"


@cache
def signature_of(answer: Callable[..., Any]) -> tuple[type[msgspec.Struct], Any]:
    """The types of a route's parameters and of its answer."""
    hints = get_type_hints(answer)
    return hints.get("asked", Nothing), hints["return"]


def document(api: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """The document of these routes."""
    types = [signature_of(answer)[1] for answer in api.values()]
    schemas, components = msgspec.json.schema_components(
        [*(Change if each is StreamingResponse else each for each in types), Fault],
        ref_template=TEMPLATE,
    )
    *of_answers, fault = schemas
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "coalloc dashboard",
            "version": coalloc.__version__,
            "description": "Read-only. Times are seconds since 1970.",
        },
        "paths": {
            path: {"get": _operation(path, answer, schema, fault)}
            for (path, answer), schema in zip(api.items(), of_answers, strict=True)
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(path: str, answer: Callable[..., Any], schema: Any, fault: Any) -> dict[str, Any]:
    asked, returned = signature_of(answer)
    media = "text/event-stream" if returned is StreamingResponse else "application/json"
    failed = {"description": "not answered", "content": {"application/json": {"schema": fault}}}
    return {
        "summary": (answer.__doc__ or "").rstrip("."),
        "parameters": list(_parameters(path, asked)),
        "responses": {
            "200": {"description": "answered", "content": {media: {"schema": schema}}},
            "default": failed,
        },
    }


def _parameters(path: str, asked: type[msgspec.Struct]) -> list[dict[str, Any]]:
    (fields,) = msgspec.json.schema(asked)["$defs"].values()
    found = []
    for name, schema in fields["properties"].items():
        in_path = f"{{{name}}}" in path
        found.append(
            {
                "name": name,
                "in": "path" if in_path else "query",
                "required": in_path,
                "description": schema.pop("description"),
                "schema": schema,
            }
        )
    return found
