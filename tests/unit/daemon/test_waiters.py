"""Clients that wait for jobs, and the bound on what they leave behind."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from coalloc.core.base.records import JobRecord
from coalloc.core.base.requests import Refused, RequestError
from coalloc.daemon.queries import waiters as waiters_module
from coalloc.daemon.queries.waiters import TOO_MANY, Waiters
from coalloc.wire.answers import EndedAnswer
from coalloc.wire.server import Origin
from tests.support.core_site import Site


class Asked:
    """Waiters on the jobs of a site, and whom they have answered."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.answers: dict[str, Any] = {}
        self.waiters = Waiters(self._members, self._answered, self._answered)
        self.add = partial(self._add, user="ann")

    def _members(self, job: str) -> list[JobRecord]:
        found = [r for n, r in self.site.state.jobs.items() if n == job or n.startswith(f"{job}_")]
        if not found:
            raise RequestError("not_found", f"there is no job {job}")
        return found

    def _answered(self, origin: Origin, answer: Any) -> None:
        assert origin.request not in self.answers, "answered twice"
        self.answers[origin.request] = answer

    def _add(self, request: str, job: str, *, user: str) -> None:
        self.waiters.add(Origin(peer=b"x", request=request), job, user)


@pytest.fixture
def asked() -> Asked:
    site = Site({"a": 4})
    for _ in range(2):
        site.submit()
    site.submit(array=(1, 2))
    return Asked(site)


def finish(asked: Asked, job: str) -> None:
    asked.site.run(job)
    asked.site.finish(job)
    asked.waiters.ended(job)


def test_a_wait_is_answered_once_its_last_job_has_ended(asked: Asked) -> None:
    asked.add("one", "1")
    asked.add("array", "3")
    finish(asked, "3_1")
    assert asked.answers == {}
    finish(asked, "3_2")
    finish(asked, "1")
    assert [row.id for row in asked.answers["array"].jobs] == ["3_1", "3_2"]
    assert asked.answers["one"].jobs[0].state == "completed"
    asked.add("late", "1")
    assert isinstance(asked.answers["late"], EndedAnswer)


def test_no_such_job_is_refused(asked: Asked) -> None:
    with pytest.raises(RequestError):
        asked.add("one", "77")


def test_the_oldest_waits_of_one_user_give_way(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiters_module, "MOST_MEMBERS", 3)
    asked.add("of another", "1", user="bob")
    for request, job in (("a", "1"), ("b", "3"), ("c", "2"), ("d", "2")):
        asked.add(request, job)
    assert asked.answers == {"a": TOO_MANY, "b": TOO_MANY}
    assert isinstance(asked.answers["a"], Refused)
    for job in ("1", "2", "3_1", "3_2"):
        finish(asked, job)
    assert set(asked.answers) == {"a", "b", "c", "d", "of another"}
    assert isinstance(asked.answers["d"], EndedAnswer)


def test_nothing_is_kept_of_waits_that_were_answered(asked: Asked) -> None:
    for number in range(5):
        asked.add(str(number), "1")
    finish(asked, "1")
    assert len(asked.answers) == 5
    assert not any((asked.waiters._waits, asked.waiters._named, asked.waiters._waiting))
