"""The web server, by real requests: answers and their schemas, headers, details withheld."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator

import jsonschema
import pytest

from coalloc.dashboard.access import COOKIE, Settings
from coalloc.dashboard.api import API, HEADERS, page_files
from tests.support.dashboard_site import Answers, Served, ended_job, fill, served

TOKEN = "f00d" * 8
HOSTILE = "</script><img src=x onerror=alert(1)>\"'`\u202e\n"
MAX_PAGE_BYTES = 150_000
QUERIES = {"/api/v1/timeline": "?live=1", "/api/v1/waits": "?by=user"}


@pytest.fixture(scope="module")
def site() -> Iterator[Served]:
    """One that is open, with hostile names in it."""
    with served() as running:
        running.change(lambda known: fill(known, name=HOSTILE))
        yield running


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    """One that wants a token, or the name of a user from this machine."""
    settings = Settings(host="127.0.0.1", port=0, token=TOKEN)
    with served(settings) as running:
        running.change(fill)
        yield running


def schema_of(document: dict[str, object], path: str) -> dict[str, object]:
    """The schema of a path's answer, with what it refers to."""
    paths = document["paths"]
    assert isinstance(paths, dict)
    schema = paths[path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    return {**schema, "components": document["components"]}


@pytest.mark.parametrize("path", [path for path in API if not path.endswith("/events")])
def test_answers_are_as_the_document_says(site: Served, path: str) -> None:
    document = site.json("/openapi.json")
    assert document["openapi"] == "3.1.0"
    answer = site.json(path.replace("{job}", "2") + QUERIES.get(path, ""))
    jsonschema.validate(answer, schema_of(document, path))


def test_the_document_has_every_path_and_its_parameters(site: Served) -> None:
    paths = site.json("/openapi.json")["paths"]
    assert set(paths) == set(API)
    assert all(path["get"]["summary"] for path in paths.values())
    (job,) = paths["/api/v1/jobs/{job}/why"]["get"]["parameters"]
    assert (job["name"], job["in"], job["required"]) == ("job", "path", True)
    limit = next(p for p in paths["/api/v1/jobs"]["get"]["parameters"] if p["name"] == "limit")
    assert limit["schema"] == {"type": "integer", "minimum": 0, "maximum": 1000, "default": 100}
    events = paths["/api/v1/events"]["get"]["responses"]["200"]["content"]
    assert list(events) == ["text/event-stream"]


@pytest.mark.parametrize("path", ["/", "/app.js", "/api/v1/status", "/login", "/nowhere"])
def test_every_answer_has_the_security_headers(site: Served, path: str) -> None:
    _, headers, _ = site.get(path)
    for name, value in HEADERS.items():
        assert headers[name.lower()] == value
    assert "unsafe" not in headers["content-security-policy"]
    assert "server" not in headers


def test_nothing_can_be_changed(site: Served) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert site.get("/api/v1/jobs", method=method)[0] == 405


def test_a_hostile_name_comes_as_json_only(site: Served) -> None:
    status, headers, body = site.get("/api/v1/jobs")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert headers["x-content-type-options"] == "nosniff"
    names = {row["name"] for row in json.loads(body)["jobs"]}
    assert HOSTILE in names


def test_the_page_is_small_and_asks_no_foreign_host() -> None:
    files = page_files()
    assert sum(map(len, files.values())) <= MAX_PAGE_BYTES
    for name, body in files.items():
        text = body.decode()
        foreign = set(re.findall(r"https?://[^\"'\s)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not foreign, name
        # what turns a text into a program or into markup
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text), (
            name
        )
        assert not re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=|javascript:", text), name


def test_every_module_of_the_page_is_there() -> None:
    files = page_files()
    for body in files.values():
        for name in re.findall(
            r"""from "\./([\w.]+)";|(?:href|src)="([\w.]+\.\w+)\"""", body.decode()
        ):
            assert (name[0] or name[1]) in files


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/jobs/404", 404),
        ("/api/v1/jobs/a%20b", 400),
        ("/api/v1/jobs?limit=9999999", 400),
        ("/api/v1/jobs?limit=-1", 400),
        ("/api/v1/timeline?since=x", 400),
        ("/api/v1/waits?by=mood", 400),
        ("/api/v1/nowhere", 404),
        ("/..%2f..%2fetc/passwd", 404),
    ],
)
def test_bad_requests_are_told_as_such(guarded: Served, path: str, status: int) -> None:
    found, _, body = guarded.get(path, {"Authorization": f"Bearer {TOKEN}"})
    assert (found, list(json.loads(body))) == (status, ["error"])


def test_details_are_for_the_owner(site: Served) -> None:
    job = site.json("/api/v1/jobs/3")
    assert (job["row"]["id"], job["details"], job["output"]) == ("3", None, "")
    assert "owner" in job["withheld"]
    assert [event["kind"] for event in job["events"]] == ["job_submitted"]
    token = {"Authorization": f"Bearer {site.server.run_token}"}
    job = json.loads(site.get("/api/v1/jobs/3", token)[2])
    assert job["output"] == "/home/ann/out-3.txt"
    assert job["details"]["launch"]["argv"] == ["./secret", "input"]


def test_a_job_that_only_the_store_knows_is_withheld_from_strangers(site: Served) -> None:
    status, _, body = site.get("/api/v1/jobs/77")
    assert status == 403
    assert b"secret" not in body


def test_a_token_is_wanted(guarded: Served) -> None:
    for path in (*(path.replace("{job}", "2") for path in API), "/app.js", "/api/v1/events"):
        status, headers, body = guarded.get(path)
        assert (status, headers["www-authenticate"]) == (401, "Bearer"), path
        assert b"bob" not in body
    status, _, body = guarded.get("/")
    assert (status, b'name="token"' in body) == (401, True)


def test_the_token_opens_the_page_once_and_for_all(guarded: Served) -> None:
    status, headers, _ = guarded.get("/login", method="POST", body=f"token={TOKEN}")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert TOKEN not in cookie
    for word in ("HttpOnly", "SameSite=strict"):
        assert word in cookie
    value = cookie.partition(";")[0]
    assert value.startswith(COOKIE)
    assert guarded.get("/api/v1/status", {"Cookie": value})[0] == 200
    for body in ("token=wrong", "", "token=" + "x" * 10_000):
        assert guarded.get("/login", method="POST", body=body)[0] == 401
    assert guarded.get("/login?token=wrong")[0] == 401


def test_another_name_of_this_machine_is_not_answered(site: Served) -> None:
    status, _, body = site.get("/api/v1/jobs", {"Host": "evil.example"})
    assert (status, b"bob" in body) == (403, False)


def test_watchers_are_told_of_changes() -> None:
    with served() as running:
        running.change(fill)
        connection = http.client.HTTPConnection("127.0.0.1", running.server.port, timeout=20)
        connection.request("GET", "/api/v1/events")
        answer = connection.getresponse()
        assert answer.getheader("content-type", "").startswith("text/event-stream")

        def told() -> dict[str, object]:
            while not (line := answer.readline().decode()).startswith("data: "):
                assert line
            change: dict[str, object] = json.loads(line.removeprefix("data: "))
            return change

        before = told()
        running.change(lambda known: known.take_accounts([ended_job("2")]))
        after = told()
        assert (before["revision"], after["revision"]) == (1, 2)
        running.change(lambda known: known.unanswered("away"))
        assert told()["reachable"] is False
        connection.close()


def test_one_question_of_many_browsers_is_asked_once() -> None:
    answers = Answers()
    with served(answers=answers) as running:
        running.change(fill)
        for _ in range(5):
            assert running.json("/api/v1/jobs/3/why")["why"]["detail"] == "does not fit now"
    assert answers.asked == [("why", "3")]
