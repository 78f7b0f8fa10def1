"""The routes of the dashboard: the page's files, the REST interface, and the way in."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache as once
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from coalloc.dashboard import views
from coalloc.dashboard.access import COOKIE, Denied, Gate, Viewer
from coalloc.dashboard.answers import Fault, Job, JobWhy
from coalloc.dashboard.cache import Cache
from coalloc.dashboard.headers import SecurityHeaders
from coalloc.dashboard.openapi import document
from coalloc.dashboard.questions import BusyError, Questions
from coalloc.dashboard.stream import Hub, TooManyError
from coalloc.wire.client import NoAnswerError, RefusedError

MAX_FORM_BYTES = 4_096
COOKIE_S = 30 * 86_400
JOB_ID = re.compile(r"[0-9A-Za-z_.-]{1,200}")
FILES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
DENIED_PAGE = "login.html"

Answering = Callable[["Site", Request, Viewer], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Sources from which the routes answer."""

    cache: Cache
    hub: Hub
    questions: Questions
    gate: Gate


class BadRequestError(Exception):
    """A parameter is wrong."""


def application(site: Site) -> SecurityHeaders:
    """The dashboard as an ASGI application."""
    routes = [Route(path, _api(site, answer), methods=["GET"]) for path, answer in API.items()]
    routes += [
        Route("/api/v1/events", _events(site), methods=["GET"]),
        Route("/openapi.json", _api(site, _openapi), methods=["GET"]),
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


def _viewer(site: Site, request: Request) -> Viewer | Denied:
    peer = request.client.host if request.client else ""
    return site.gate.viewer(peer, request.headers)


def _denied(denied: Denied) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if denied.status == 401 else {}
    return _json(Fault(error=denied.message), denied.status, headers)


def _file(site: Site, name: str, *, is_open: bool = False) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        viewer = _viewer(site, request)
        if isinstance(viewer, Denied) and not is_open:
            if name != "index.html" or viewer.status != 401:
                return _denied(viewer)
            return Response(page_files()[DENIED_PAGE], 401, media_type=FILES[".html"])
        return Response(page_files()[name], media_type=FILES[name[name.rindex(".") :]])

    return endpoint


def _login(site: Site) -> Callable[[Request], Any]:
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


def _api(site: Site, answer: Answering) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        viewer = _viewer(site, request)
        if isinstance(viewer, Denied):
            return _denied(viewer)
        try:
            return _json(await answer(site, request, viewer))
        except BadRequestError as error:
            return _json(Fault(error=str(error)), 400)
        except RefusedError as error:
            return _json(Fault(error=error.message), REFUSALS.get(error.code, 502))
        except NoAnswerError as error:
            return _json(Fault(error=f"the daemon does not answer: {error}"), 503)
        except BusyError:
            return _json(Fault(error="too many questions at once; ask again in a moment"), 503)

    return endpoint


REFUSALS: Mapping[str, int] = {"not_found": 404, "not_allowed": 403, "bad_request": 400}


async def _status(site: Site, request: Request, viewer: Viewer) -> Any:
    return views.status(site.cache, viewer)


async def _clusters(site: Site, request: Request, viewer: Viewer) -> Any:
    return views.clusters(site.cache)


async def _nodes(site: Site, request: Request, viewer: Viewer) -> Any:
    return views.nodes(site.cache)


async def _jobs(site: Site, request: Request, viewer: Viewer) -> Any:
    limit, offset = _whole(request, "limit", 100, 1_000), _whole(request, "offset", 0, 1 << 31)
    return views.jobs(site.cache, request.query_params, limit, offset)


async def _job(site: Site, request: Request, viewer: Viewer) -> Any:
    """A row for all; details for those who may see them."""
    job = _job_id(request)
    row = site.cache.rows.get(job)
    details, withheld = None, ""
    if row is None or viewer.sees(row.user):
        try:
            details = await site.questions.show(job)
        except (RefusedError, NoAnswerError) as error:
            if row is None:
                raise
            withheld = str(error)
    if row is None and details is not None and not viewer.sees(details.user):
        raise RefusedError("not_allowed", f"job {job} belongs to {details.user}")
    if details is None and not withheld:
        withheld = "shown to the job's owner and to operators"
    return Job(
        row=row,
        details=details,
        withheld=withheld,
        output="" if details is None else views.output_path(details),
        events=tuple(event for event in site.cache.events if event.job == job),
        time=site.cache.heard or 0.0,
    )


async def _why(site: Site, request: Request, viewer: Viewer) -> Any:
    return JobWhy(why=await site.questions.why(_job_id(request)), time=site.cache.heard or 0.0)


async def _plan(site: Site, request: Request, viewer: Viewer) -> Any:
    return views.plan(site.cache)


async def _rounds(site: Site, request: Request, viewer: Viewer) -> Any:
    return views.rounds(site.cache)


async def _waits(site: Site, request: Request, viewer: Viewer) -> Any:
    by = request.query_params.get("by", "cluster")
    if by not in views.GROUP_OF:
        raise BadRequestError(f"by: is none of {', '.join(views.GROUP_OF)}")
    return views.waits(site.cache, by)


async def _timeline(site: Site, request: Request, viewer: Viewer) -> Any:
    since = _whole(request, "since", 0, 1 << 53)
    limit = max(1, _whole(request, "limit", views.ROWS, views.ROWS))
    return views.timeline(site.cache, since, limit, live=request.query_params.get("live") == "1")


async def _openapi(site: Site, request: Request, viewer: Viewer) -> Any:
    return document()


API: Mapping[str, Answering] = {
    "/api/v1/status": _status,
    "/api/v1/clusters": _clusters,
    "/api/v1/nodes": _nodes,
    "/api/v1/jobs": _jobs,
    "/api/v1/jobs/{job}": _job,
    "/api/v1/jobs/{job}/why": _why,
    "/api/v1/plan": _plan,
    "/api/v1/rounds": _rounds,
    "/api/v1/waits": _waits,
    "/api/v1/timeline": _timeline,
}


def _events(site: Site) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        viewer = _viewer(site, request)
        if isinstance(viewer, Denied):
            return _denied(viewer)
        text = request.headers.get("last-event-id") or request.query_params.get("since", "")
        try:
            stream = site.hub.watch(int(text) if text.isascii() and text.isdigit() else None)
        except TooManyError:
            return _json(Fault(error="too many watchers"), 503)
        return StreamingResponse(stream, media_type="text/event-stream")

    return endpoint


async def _not_found(request: Request, error: Exception) -> Response:
    return _json(Fault(error="there is no such page"), 404)


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = msgspec.json.encode(value)
    return Response(body, status, dict(headers or {}), media_type="application/json")


def _whole(request: Request, key: str, default: int, most: int) -> int:
    text = request.query_params.get(key, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 16 or int(text) > most:
        raise BadRequestError(f"{key}: is not a whole number from 0 to {most}")
    return int(text)


def _job_id(request: Request) -> str:
    job = str(request.path_params["job"])
    if not JOB_ID.fullmatch(job):
        raise BadRequestError("job: is no job's id")
    return job
