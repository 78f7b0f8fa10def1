"""Records of every kind come back from the store as they were."""

from __future__ import annotations

from coalloc.core.base.records import JobRecord, JobState, PartRecord
from coalloc.daemon.store.records_json import read_record, write_object
from coalloc.model.values import replace
from tests.support.core_site import Site

PART = PartRecord(cluster="a", index=0, nodes={"a1": 1}, first_rank=0)


def records() -> list[JobRecord]:
    """Jobs in every table."""
    site = Site({"a": 3}, solving=False)
    numbers = [site.submit(procs) for procs in (1, 2, 3, 1, 1, 1, 1)]
    jobs = [site.job(number) for number in numbers]
    jobs[1] = replace(jobs[1], state=JobState.HELD)
    jobs[2] = replace(jobs[2], not_before=99.0, refusals=1)
    jobs[3] = replace(jobs[3], needs=(("afterok", "1"),))
    jobs[4] = replace(jobs[4], state=JobState.RUNNING, parts=(PART,), rendezvous="a1:2000")
    jobs[5] = replace(jobs[5], origin="a", foreign="77")
    jobs[6] = replace(jobs[6], state=JobState.COMPLETED, ended=5.0)
    flow = site.job(site.submit_workflow("x y", "x>y"))
    return [*jobs, flow]


def test_a_record_comes_back_as_it_was_written() -> None:
    for record in records():
        again = read_record(write_object(record))
        assert again == record
        assert replace(again, name="other") == replace(record, name="other")
        assert hash(again.job) == hash(record.job)
