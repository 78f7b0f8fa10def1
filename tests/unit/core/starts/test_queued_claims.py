"""Tasks of workflows and pieces of divisible jobs take their turn in the clusters' queues."""

from __future__ import annotations

from coalloc.core.base.messages import Prepare
from coalloc.core.base.records import JobState
from coalloc.model.sites.parts import PartState
from tests.unit.core.jobs.test_pieces import submit
from tests.unit.core.starts.test_negotiation import Crowded


def claims_of(site: Crowded, job: str) -> list[str]:
    """The tasks or pieces of a job whose claims were sent into a queue, in order."""
    return [
        order.job
        for _, _, order in site.orders
        if isinstance(order, Prepare) and order.job.startswith(f"{job}.") and order.queue
    ]


def run_in_turn(site: Crowded, task: str, *nodes: str) -> None:
    """A claim that waits is granted, starts and ends."""
    site.waits(task, "a")
    site.grants(task, "a", *nodes)
    site.say(task, PartState.READY, nodes=dict.fromkeys(nodes, 1))
    site.say(task, PartState.RUNNING, started=site.now)
    site.finish(task)


def test_a_workflow_runs_where_others_have_every_node() -> None:
    site = Crowded({"a": 2})
    job = site.submit_workflow("x y z", "x>y x>z")
    assert claims_of(site, job) == [f"{job}.1"], "the others wait for it"
    run_in_turn(site, f"{job}.1", "a2")
    site.wait(1.0)
    assert claims_of(site, job) == [f"{job}.1", f"{job}.2", f"{job}.3"]
    run_in_turn(site, f"{job}.2", "a1")
    run_in_turn(site, f"{job}.3", "a2")
    assert site.job(job).state is JobState.COMPLETED


def test_claims_of_tasks_are_bounded_too() -> None:
    site = Crowded({"a": 2}, max_waiting=2)
    job = site.submit_workflow("u v w x")
    assert len(claims_of(site, job)) == 2


def test_pieces_of_a_divisible_job_take_their_turn_behind_the_others() -> None:
    site = Crowded({"a": 2}, max_waiting=6, piece_s=20.0)
    job = submit(site, 100)
    assert claims_of(site, job) == [f"{job}.1", f"{job}.2"], "of one node each"
    pieces = [site.job(f"{job}.{n}") for n in (1, 2)]
    assert [(piece.chunk_first, piece.chunks) for piece in pieces] == [(0, 2), (2, 2)]
    later = site.submit(1)
    assert site.job(later).state is JobState.PREPARING, "its claim is not kept out by pieces"
    run_in_turn(site, f"{job}.1", "a2")
    site.wait(1.0)
    assert claims_of(site, job)[2:] == [f"{job}.3"]


def test_a_piece_that_is_refused_is_sent_again_with_its_chunks() -> None:
    site = Crowded({"a": 1}, max_waiting=2, piece_s=20.0, backoff_first_s=1.0)
    job = submit(site, 100)
    (piece,) = claims_of(site, job)
    site.say(piece, PartState.REFUSED, reason="node_unavailable", detail="down")
    site.wait(2.0)
    assert piece in claims_of(site, job)[1:]
    assert (site.job(piece).chunk_first, site.job(piece).chunks) == (0, 2)
