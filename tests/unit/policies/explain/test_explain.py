"""What binds a job, and the words for it, one situation each."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coalloc.cli import main
from coalloc.model.errors import InputError
from coalloc.model.formats.plan_json import write_plan
from coalloc.model.formats.snapshot_json import write_snapshot
from coalloc.model.snapshot import Snapshot
from coalloc.policies.explain.changes import CHANGES
from coalloc.policies.explain.explain import KINDS, explain_plan
from coalloc.policies.explain.explanation import Explanation
from coalloc.policies.explain.rule import rule_of, rule_of_plan
from coalloc.policies.explain.words import lines, listed, span
from tests.support.planned import planned
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid

HOUR = 3600.0
RUNS = {"id": "7", "nodes": {"a1": 1, "a2": 1}, "start": -100.0, "end": 2 * HOUR}


def explained(snapshot: Snapshot, job: int | str, policy: str = "easy") -> Explanation:
    return explain_plan(snapshot, planned(policy, snapshot), str(job))


def told(snapshot: Snapshot, job: int | str, policy: str = "easy") -> str:
    return "\n".join(lines(explained(snapshot, job, policy), snapshot))


def kinds(explanation: Explanation) -> list[str]:
    return [constraint.kind for constraint in explanation.constraints]


def test_slots_that_running_work_holds() -> None:
    snapshot = case([cluster("a", power=0.75)], [rigid(1, 4, HOUR)], [RUNS])
    made = explained(snapshot, 1)
    assert kinds(made) == ["running", "slots"]
    assert made.slots is not None
    assert (made.slots.needed, made.slots.free_now, made.slots.free_then) == (4, 2, 4)
    assert told(snapshot, 1).splitlines() == [
        "starts in 2 h, ends in 3 h 20 min as easy plans",
        "waits for 4 slots of power >= 0.75: 2 are free now, 4 then when job 7 ends",
        "job 7 still runs: else it would start now and end 2 h sooner",
        "with 2 processes doing the same work, it would start now and end 40 min sooner",
    ]


def test_a_job_that_goes_first_is_named() -> None:
    queue = [rigid(1, 3, HOUR), rigid(2, 1, HOUR), rigid(3, 2, HOUR)]
    made = explained(case([cluster("a")], queue), 3)
    assert kinds(made)[0] == "order"
    assert made.counterfactual is not None
    # without job 2 there are still but one slot beside job 1
    assert made.constraints[0].change.names == ("1",)


def test_a_reservation_that_it_would_delay() -> None:
    """Enough is free now, but the head of the queue takes it before this one could end."""
    queue = [rigid(1, 4, HOUR), rigid(2, 2, 3 * HOUR)]
    words = told(case([cluster("a")], queue, [RUNS]), 2)
    assert "2 are free now, but only for 2 h, when job 1 begins" in words
    assert "if job 1 had not gone first it would start now" in words


def test_a_link_that_is_full() -> None:
    running = [{**RUNS, "nodes": {"a1": 1}, "link_gbps": {"a": 0.8}}]
    snapshot = case(
        [cluster("a", link=1.0), cluster("b")], [rigid(1, 6, HOUR, proc_gbps=0.3)], running
    )
    made = explained(snapshot, 1)
    link = next(c.link for c in made.constraints if c.kind == "link")
    assert link is not None
    assert link.cluster == "a"
    assert link.free == pytest.approx(0.2)
    assert link.full_until == 2 * HOUR
    assert link.needed > link.free
    assert "the link of a has 0.2 of 1 Gbit/s left for 2 h, and it needs" in told(snapshot, 1)


def test_links_that_bind_together() -> None:
    queue = [rigid(1, 8, HOUR, proc_gbps=0.6)]
    words = told(case([cluster("a", link=1.0), cluster("b", link=1.0)], queue), 1)
    assert words.startswith("can never run: needs 8 processes; the links cannot carry any split")
    assert "the links of a and b cannot carry it" in words


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"held": True}, "hold", "if it were released it would start now"),
        ({"earliest": HOUR}, "earliest", "if it might start at once it would start now"),
        ({"after": ["7"]}, "dependency", "if it did not wait for job 7 it would start now"),
        ({"features": ["gpu"]}, "features", "without asking for gpu it would start now"),
        ({"clusters": ["a"], "procs": 3}, "clusters", "on a and b instead of only a"),
        ({"memory_mb_per_proc": 900}, "memory", "with 500 instead of 900 MiB per process"),
    ],
)
def test_what_a_job_asks_for(fields: dict[str, Any], kind: str, words: str) -> None:
    clusters = [cluster("a", memory_mb=500), cluster("b", memory_mb=500)]
    snapshot = case(clusters, [{**rigid(1, 1, HOUR), **fields}], [RUNS])
    made = explained(snapshot, 1)
    assert kind in kinds(made)
    assert words in told(snapshot, 1)


NODES = {"name": "n[1-4]", "slots": 8, "memory_mb": 65536, "resources": {"gpu:a100": 2}}
TWO = {"cpus_per_proc": 4, "min_nodes": 2, "procs_per_node": 1}


def taken_of(name: str, slots: int, memory_gib: int, gpus: int) -> dict[str, Any]:
    held: dict[str, Any] = {"resources": {name: {"gpu:a100": gpus}}} if gpus else {}
    memory = {name: memory_gib * 1024}
    return {
        "id": name,
        "nodes": {name: slots},
        "start": 0.0,
        "end": HOUR,
        "memory_mb": memory,
    } | held


# Free: 8 slots, 20 GiB and 2 GPUs twice; 8, 60 and 1; 4, 4 and none.
BUSY = [taken_of("n1", 1, 44, 0), taken_of("n2", 1, 44, 0), taken_of("n3", 1, 4, 1)]
BUSY += [taken_of("n4", 4, 60, 2)]


@pytest.mark.parametrize(
    ("shape", "fields", "short", "would"),
    [
        (
            {**TWO, "memory_mb_per_node": 40960, "per_node": {"gpu:a100": 2}},
            {"procs": 2},
            "2 of 4 nodes have 4 slots and 2 gpu:a100 free, with at most 20 of 40 GiB; "
            "2 are needed",
            "with 20480 instead of 40960 MiB on each node it would start now",
        ),
        (
            {**TWO, "min_nodes": 3, "per_node": {"gpu": 2}},
            {"procs": 3},
            "2 of 4 nodes would do, 2 more have 4 slots free, with at most 1 of 2 gpu; "
            "3 are needed",
            "with 1 instead of 2 gpu on each node it would start now",
        ),
        (
            {"cpus_per_proc": 8},
            {"procs": 1},
            "4 of 4 nodes have at most 7 of 8 slots; 1 is needed",
            "with 4 instead of 8 CPUs per process doing the same work, it would start now",
        ),
        (
            {"cpus_per_proc": 1, "exclusive": True},
            {"procs": 1},
            "0 of 4 nodes are empty; 1 is needed",
            "",
        ),
        ({"all_memory": True}, {"procs": 1}, "with at most 60 of 64 GiB; 1 is needed", ""),
        ({}, {"procs": 1, "memory_mb_per_proc": 65536}, "with at most 60 of 64 GiB", ""),
        ({"per_job": {"lic": 2}}, {"procs": 1}, "", "with 1 instead of 2 lic in all it would"),
    ],
)
def test_the_resource_that_is_short_is_named(
    shape: dict[str, Any], fields: dict[str, Any], short: str, would: str
) -> None:
    lic = {"id": "lic", "nodes": {}, "start": 0.0, "end": HOUR, "per_job": {"lic": 1}}
    queue = [{"id": "1", "kind": "rigid", "base_time": 600.0, "shape": shape, **fields}]
    clusters = [{"name": "a", "nodes": [NODES]}]
    snapshot = case(clusters, queue, [*BUSY, lic], resources={"lic": 2})
    words = told(snapshot, 1)
    assert short in words
    assert would in words


def test_a_resource_that_no_node_has() -> None:
    queue = [{**rigid(1, 1, HOUR), "shape": {"per_node": {"fpga": 1}}}]
    words = told(case([cluster("a")], queue), 1)
    assert words.startswith("can never run")
    assert (
        "it asks for 1 fpga on each node\nwithout 1 fpga on each node it would start now" in words
    )


def test_tasks_that_still_run() -> None:
    flow = {
        "id": "1",
        "kind": "workflow",
        "tasks": [{"id": "t", "work": HOUR}],
        "edges": [{"from": "s", "to": "t", "gb": 450.0}, {"from": "old", "to": "t"}],
        "started": [
            {"task": "s", "clusters": ["a"], "end": 2 * HOUR},
            {"task": "old", "clusters": ["a"], "end": -HOUR},
        ],
    }
    snapshot = case([cluster("a", link=1.0)], [flow])
    made = explained(snapshot, 1)
    assert kinds(made) == ["tasks"]
    assert "it waits for its task s to end" in told(snapshot, 1)
    assert "if its task s ended now it would start now and end 2 h sooner" in told(snapshot, 1)


def test_what_the_site_could_change() -> None:
    down = {"name": "a", "nodes": [{"name": "a[1-2]"}, {"name": "a[3-4]", "state": "draining"}]}
    words = told(case([down], [rigid(1, 4, HOUR)]), 1)
    assert "cannot run now" in words
    assert "a[3-4] are drained" in words
    assert "if a[3-4] were up and free it would start now" in words or "2 processes" in words
    stale = case([{**cluster("a"), "stale": True}], [rigid(1, 4, HOUR)])
    assert "cluster a could be reached" in told(stale, 1)
    kept = [{"id": "m", "nodes": ["a[1-4]"], "start": 0.0, "end": HOUR}]
    assert "without reservation m it would start now" in told(
        case([cluster("a")], [rigid(1, 4, HOUR)], reservations=kept), 1
    )


def test_several_that_bind_only_together() -> None:
    snapshot = case([cluster("a")], [rigid(1, 1, HOUR, earliest=HOUR, held=True, features=["x"])])
    made = explained(snapshot, 1)
    assert made.several
    assert sorted(kinds(made)) == ["features", "hold"]
    assert "several things keep it, and none alone" in told(snapshot, 1)


def test_what_starts_now_needs_no_reason() -> None:
    snapshot = case([cluster("a")], [rigid(1, 4, HOUR)])
    assert explained(snapshot, 1).reason == "starts_now"
    assert re.fullmatch(r"starts now, ends in \S.* as \w+ plans", told(snapshot, 1))
    with pytest.raises(InputError, match="no job 'x' waits"):
        explain_plan(snapshot, planned("easy", snapshot), "x")


def test_out_of_time_is_said() -> None:
    snapshot = case([cluster("a")], [rigid(1, 4, HOUR)], [RUNS])
    made = explain_plan(snapshot, planned("easy", snapshot), "1", stop=lambda: True)
    assert (made.complete, made.tried, made.counterfactual) == (False, 0, None)
    assert lines(made, snapshot)[-1] == "not all was tried in time (0 changes were)"


def test_the_rule_of_a_plan() -> None:
    snapshot = case([cluster("a")], [rigid(1, 4, HOUR), rigid(2, 1, HOUR)])
    assert rule_of_plan(planned("fcfs", snapshot, skip=True)).options["skip"]
    auto = rule_of_plan(planned("auto", snapshot))
    assert auto.policy == "auto"
    assert auto.won or auto.order
    searched = rule_of("searched", order=("2", "1"))
    assert (searched.won, searched.order) == ("", ("2", "1"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "0.5 s"), (40, "40 s"), (720, "12 min"), (4800, "1 h 20 min"), (183600, "2 d 3 h")],
)
def test_lengths_in_words(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_names_in_words() -> None:
    assert listed(["7"], "job") == "job 7"
    assert listed(["7", "8", "9"], "job") == "jobs 7, 8 and 9"
    assert listed([str(n) for n in range(9)], "job") == "9 jobs (0, 1, 2, 3, 4, 5, ...)"


@pytest.mark.parametrize("page", ["PROTOCOL.md", "operations/why.md"])
def test_every_kind_of_constraint_is_documented(page: str) -> None:
    text = (Path(__file__).parents[4] / "docs" / page).read_text(encoding="utf-8")
    kinds = {KINDS.get(kind, kind) for kind in CHANGES} - {"procs", "bandwidth"}
    assert [kind for kind in kinds if f"`{kind}`" not in text] == []


def off_line(
    capsys: pytest.CaptureFixture[str], folder: Path, words: Sequence[str], code: int = 0
) -> str:
    snapshot = case([cluster("a")], [rigid(1, 4, HOUR), rigid(2, 1, HOUR)], [RUNS])
    (folder / "s.json").write_text(json.dumps(write_snapshot(snapshot)))
    plan = planned("conservative", snapshot)
    (folder / "p.json").write_text(json.dumps(write_plan(plan)))
    given = [str(folder / word) if word.endswith(".json") else word for word in words]
    assert main.main(["why", *given]) == code
    said = capsys.readouterr()
    return said.out + said.err


def test_the_command_needs_no_daemon(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = off_line(capsys, tmp_path, ["1", "--snapshot", "s.json", "--plan", "p.json"])
    assert "when job 7 ends" in words
    assert "as conservative plans" in words
    body = json.loads(
        off_line(capsys, tmp_path, ["1", "--snapshot", "s.json", "--policy", "easy", "--json"])
    )
    assert body["explanation"]["constraints"][0]["kind"] == "running"
    assert "as auto plans" in off_line(capsys, tmp_path, ["1", "--snapshot", "s.json"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["1", "--plan", "p.json"], "--plan needs --snapshot"),
        (["7", "--snapshot", "s.json"], "job 7 runs already"),
        (["12", "--snapshot", "s.json"], "job 12 is not in its queue"),
        (["1", "--snapshot", "p.json"], "p.json: "),
        (["1", "--snapshot", "s.json", "--policy", "best"], "there is no policy 'best'"),
        (["1", "--snapshot", "s.json", "--plan", "p.json", "--policy", "easy"], "not both"),
    ],
)
def test_wrong_questions_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], message: str
) -> None:
    said = off_line(capsys, tmp_path, words, 2)
    assert message in said
    assert said.count("\n") == 1
