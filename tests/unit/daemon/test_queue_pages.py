"""A long queue is answered page by page, and the client makes one list of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from coalloc.client.client import Client
from coalloc.core.base.events import Caller
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, RequestError
from coalloc.core.base.state_tables import Outlook
from coalloc.core.jobs import arrays
from coalloc.daemon.queries import answers
from coalloc.daemon.queries.answers import Sources, answered
from coalloc.daemon.store.sqlite import Store
from coalloc.model.formats.nodeset import fold_in_order
from coalloc.wire.answers import Health
from coalloc.wire.client import AnswerFrame
from coalloc.wire.frames import encode_answer
from tests.support.core_site import Site

ANN = Caller(user="ann", uid=1, gid=1, operator=False)


class Local(Client):
    """A client whose questions are answered in this process."""

    def __init__(self, site: Site) -> None:
        super().__init__("ipc:///nowhere")
        self.site = site
        self.asked: list[Mapping[str, Any]] = []
        self.between: Any = lambda: None

    def _answered(self, body: Mapping[str, Any], timeout_s: float | None = None) -> AnswerFrame:
        if self.asked:
            self.between()
        self.asked.append(body)
        store: Store = None  # type: ignore[assignment]
        sources = Sources(state=self.site.state, store=store, caller=ANN, health=Health)
        answer = answered(sources, body, self.site.now)
        return AnswerFrame("1", None, encode_answer("1", answer))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(answers, "ROWS_AT_ONCE", 3)
    site = Site(solving=False)
    for _ in range(4):
        site.submit()
    monkeypatch.setattr(arrays, "WINDOW", 2)
    site.submit(array="0,2,5-9")
    site.submit(user="bob")
    return site


IDS = ["1", "2", "3", "4", "5_[5-9]", "5_0", "5_2", "6"]


def test_pages_make_the_whole_queue(site: Site) -> None:
    client = Local(site)
    assert [row.id for row in client.queue()] == IDS
    assert [fields.get("after") for fields in client.asked] == [None, "3", "5_0"]
    assert [row.id for row in client.queue(user="bob")] == ["6"]
    assert client.whole_queue().more is False


def test_a_last_page_that_is_full_has_nothing_behind_it(site: Site) -> None:
    client = Local(site)
    assert client.ask("queue", after="5_[5-9]")["more"] is False
    assert [row["id"] for row in client.ask("queue", after="5_[5-9]")["jobs"]] == IDS[5:]
    page = client.ask("queue", limit=1)
    assert ([row["id"] for row in page["jobs"]], page["more"]) == (["1"], True)
    assert len(client.ask("queue", limit=100)["jobs"]) == 3


def test_jobs_that_end_between_two_pages_are_not_missed_or_doubled(site: Site) -> None:
    client = Local(site)
    client.between = lambda: site.ask(Cancel(job="3")) if "3" in site.state.waiting else None
    assert [row.id for row in client.queue()] == IDS  # 3 was sent before it ended
    assert site.state.jobs["3"].state is JobState.CANCELLED
    client = Local(site)
    assert [row.id for row in client.queue()] == [i for i in IDS if i != "3"]
    assert [row.id for row in client.queue(everything=True)] == IDS


def test_a_page_behind_a_job_that_is_forgotten(site: Site) -> None:
    client = Local(site)
    client.between = lambda: site.state.remove("3")
    assert [row.id for row in client.queue()] == IDS
    assert [r["id"] for r in client.ask("queue", after="3")["jobs"]] == ["4", "5_[5-9]", "5_0"]


@pytest.mark.parametrize("after", ["x", "1_", "1_2_3", "-1", "9" * 30])
def test_what_is_no_id_is_refused(site: Site, after: str) -> None:
    with pytest.raises(RequestError, match="after: is no job's id"):
        Local(site).ask("queue", after=after)


def test_reasons_fold_nodes_and_arrays() -> None:
    site = Site({"alpha": 4, "beta": 4})
    blocker = site.submit(8)
    site.run(blocker)
    array = site.submit(array=tuple(range(300)))
    done = [f"{array}_{index}" for index in range(150)]
    for member in done:
        site.ask(Cancel(job=member))
    child = site.submit(needs=(("afterany", array), ("afterok", f"{array}_200")))
    later = site.submit(job={"earliest": site.now + 3600.0})
    reasons = {row.id: (row.reason, row.detail) for row in Local(site).queue()}
    waits = f"waits for afterany:{array} (150 of 300 left), afterok:{array}_200"
    assert reasons[child] == ("dependency", waits)
    assert reasons[later][0] == "begin_time"
    assert reasons[later][1].startswith("may not start before ")
    site.state.findings.outlook[f"{array}_299"] = Outlook(
        start=site.now + 5.0, nodes={f"alpha{n}": 1 for n in (1, 2, 3)} | {"beta1": 1}
    )
    rows = {row.id: row.detail for row in Local(site).queue()}
    assert rows[f"{array}_299"] == "planned to start on alpha[1-3],beta1"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a1"], "a1"),
        (["a1", "a2", "a3", "b1", "a5"], "a[1-3],b1,a5"),
        (["n08", "n09", "n10", "n12"], "n[08-10,12]"),
        (["n9", "n10", "head", "x", "1", "2"], "n[9-10],head,x,[1-2]"),
    ],
)
def test_names_are_folded_in_order(names: list[str], text: str) -> None:
    assert fold_in_order(names) == text
