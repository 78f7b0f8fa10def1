"""The routes of the dashboard: the page's files, the REST interface, its document, and the way in.

Security headers are the same on every answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache as once
from importlib.resources import files
from inspect import isawaitable, signature
from typing import Any, get_type_hints
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import coalloc
from coalloc.dashboard import views
from coalloc.dashboard.access import COOKIE, Denied, Gate, Viewer
from coalloc.dashboard.answers import Change, Fault, Job, JobAsked, JobWhy, Nothing
from coalloc.dashboard.known import Known
from coalloc.dashboard.questions import BusyError, Questions
from coalloc.dashboard.stream import Hub
from coalloc.wire.answers import Event
from coalloc.wire.client import NoAnswerError, RefusedError

MAX_FORM_BYTES = 4_096
COOKIE_S = 30 * 86_400
FILES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
DENIED_PAGE = "login.html"

Answering = Callable[..., Any]
"""From those of `site`, `known`, `asked` and `viewer` that it takes to one of
`coalloc.dashboard.answers`, or a response; some are awaited."""


class DashboardSite(Struct, frozen=True, kw_only=True):
    """Sources from which the routes answer."""

    known: Known
    hub: Hub
    questions: Questions
    gate: Gate


CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
"""Nothing inline, nothing from elsewhere; a text that was meant for a page cannot become one."""
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class SecurityHeaders:
    """Adds the headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def application(site: DashboardSite) -> SecurityHeaders:
    """The dashboard as an ASGI application."""
    answers = {**API, "/openapi.json": _document}
    routes = [Route(path, _api(site, answer), methods=["GET"]) for path, answer in answers.items()]
    routes += [
        Route("/login", _login(site), methods=["GET", "POST"]),
        Route("/", _file(site, "index.html"), methods=["GET"]),
    ]
    # The page of the way in needs its style sheet and its icon before anybody is let in.
    routes += [
        Route(
            f"/{name}", _file(site, name, is_open=name.endswith((".css", ".svg"))), methods=["GET"]
        )
        for name in page_files()
        if name != DENIED_PAGE
    ]
    handlers: dict[Any, Any] = {404: _not_found}
    return SecurityHeaders(Starlette(routes=routes, exception_handlers=handlers))


@once
def page_files() -> Mapping[str, bytes]:
    """The files of the page."""
    folder = files("coalloc.dashboard") / "data"
    return {
        entry.name: entry.read_bytes()
        for entry in folder.iterdir()
        if any(entry.name.endswith(end) for end in FILES)
    }


# The way in


def _viewer(site: DashboardSite, request: Request) -> Viewer | Denied:
    peer = request.client.host if request.client else ""
    return site.gate.viewer(peer, request.headers)


def _denied(denied: Denied) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if denied.status == 401 else {}
    return _json(Fault(error=denied.message), denied.status, headers)


def _file(site: DashboardSite, name: str, *, is_open: bool = False) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        viewer = _viewer(site, request)
        if isinstance(viewer, Denied) and not is_open:
            if name != "index.html" or viewer.status != 401:
                return _denied(viewer)
            return Response(page_files()[DENIED_PAGE], 401, media_type=FILES[".html"])
        return Response(page_files()[name], media_type=FILES[name[name.rindex(".") :]])

    return endpoint


def _login(site: DashboardSite) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        given = request.query_params.get("token", "")
        if request.method == "POST":
            given = await _form_token(request)
        if not site.gate.is_token(given.strip()):
            status = 401 if given or request.method == "POST" else 200
            return Response(page_files()[DENIED_PAGE], status, media_type=FILES[".html"])
        response = RedirectResponse("/", 303)
        peer = request.client.host if request.client else ""
        response.set_cookie(
            COOKIE,
            site.gate.cookie,
            max_age=COOKIE_S,
            httponly=True,
            samesite="strict",
            secure=site.gate.is_encrypted(peer, request.headers),
        )
        return response

    return endpoint


async def _form_token(request: Request) -> str:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            return ""
    return parse_qs(body.decode("latin-1")).get("token", [""])[0]


# The REST interface


def _api(site: DashboardSite, answer: Answering) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        viewer = _viewer(site, request)
        if isinstance(viewer, Denied):
            return _denied(viewer)
        try:
            given = {"site": site, "known": site.known, "viewer": viewer}
            given["asked"] = _asked(request, answer)
            found = answer(**{name: given[name] for name in signature(answer).parameters})
            found = await found if isawaitable(found) else found
            return found if isinstance(found, Response) else _json(found)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$.")
            return _json(Fault(error=f"{where.rstrip('`')}: {what}"), 400)
        except RefusedError as error:
            return _json(Fault(error=error.message), REFUSALS.get(error.code, 502))
        except NoAnswerError as error:
            return _json(Fault(error=f"the daemon does not answer: {error}"), 503)
        except BusyError as error:
            return _json(Fault(error=str(error)), 503)

    return endpoint


REFUSALS: Mapping[str, int] = {"not_found": 404, "not_allowed": 403, "bad_request": 400}


def _asked(request: Request, answer: Answering) -> Any:
    """The parameters of a request; those that are empty or unknown count as left out."""
    given = {key: text for key, text in request.query_params.items() if text}
    form, _ = signature_of(answer)
    return msgspec.convert({**given, **request.path_params}, form, strict=False)


async def _job(site: DashboardSite, asked: JobAsked, viewer: Viewer) -> Job:
    """One job: a row for all, details for those who may see them."""
    row = site.known.row(asked.job)
    details, withheld = None, "shown to the job's owner and to operators"
    if row is None or viewer.sees(row.user):
        try:
            details, withheld = await site.questions.show(asked.job), ""
        except (RefusedError, NoAnswerError) as error:
            if row is None:
                raise
            withheld = str(error)
    if row is None and details is not None and not viewer.sees(details.user):
        raise RefusedError("not_allowed", f"job {asked.job} belongs to {details.user}")
    events: tuple[Event, ...] = ()
    with suppress(RefusedError, NoAnswerError):
        events = await site.questions.events(asked.job)
    return Job(
        row=row,
        details=details,
        withheld=withheld,
        output="" if details is None else views.output_path(details),
        events=events,
        time=site.known.heard or 0.0,
    )


async def _why(site: DashboardSite, asked: JobAsked) -> JobWhy:
    """The reason why a job waits; may take some seconds."""
    return JobWhy(why=await site.questions.why(asked.job), time=site.known.heard or 0.0)


async def _events(site: DashboardSite) -> StreamingResponse:
    """Server-sent events: `change` (a Change) when something is to be fetched anew."""
    return StreamingResponse(site.hub.watch(), media_type="text/event-stream")


API: Mapping[str, Answering] = {
    "/api/v1/status": views.status,
    "/api/v1/clusters": views.clusters,
    "/api/v1/nodes": views.nodes,
    "/api/v1/jobs": views.jobs,
    "/api/v1/jobs/{job}": _job,
    "/api/v1/jobs/{job}/why": _why,
    "/api/v1/plan": views.plan,
    "/api/v1/rounds": views.rounds,
    "/api/v1/waits": views.waits,
    "/api/v1/timeline": views.timeline,
    "/api/v1/events": _events,
}


# The OpenAPI document, made from the routes: their parameters, answers and docstrings

TEMPLATE = "#/components/schemas/{name}"


@once
def signature_of(answer: Answering) -> tuple[type[msgspec.Struct], Any]:
    """The types of a route's parameters and of its answer."""
    hints = get_type_hints(answer)
    return hints.get("asked", Nothing), hints["return"]


def document(api: Mapping[str, Answering]) -> dict[str, Any]:
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


def _operation(path: str, answer: Answering, schema: Any, fault: Any) -> dict[str, Any]:
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


def _document() -> Response:
    return _json(document(API))


async def _not_found(request: Request, error: Exception) -> Response:
    return _json(Fault(error="there is no such page"), 404)


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = msgspec.json.encode(value)
    return Response(body, status, dict(headers or {}), media_type="application/json")
