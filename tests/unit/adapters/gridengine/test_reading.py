"""From Grid Engine's answers to a reading, and the settings that steer it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from coalloc.adapters.base import AdapterError
from coalloc.adapters.gridengine.commands import GridEngine
from coalloc.adapters.gridengine.parse_xml import (
    MOST_SLOTS,
    CellStatus,
    JobEntry,
    QueueInstance,
)
from coalloc.adapters.gridengine.part_commands import (
    DELETING,
    FAILED,
    HOST_VARIABLE,
    OVERDUE,
    RUNS,
    WAITS,
    explained,
    given,
    instant,
    job_script,
    joint_state,
    place_in_queue,
    refusal,
    request,
    site_of,
)
from coalloc.adapters.gridengine.reader import GridEngineReader
from coalloc.adapters.gridengine.reading import (
    ENDLESS_S,
    running_jobs,
    sized,
    state_of,
    waiting_count,
)
from coalloc.adapters.gridengine.settings import GridEngineSettings, read_settings
from coalloc.adapters.runner.command import UnreachableError
from coalloc.model.errors import InputError
from coalloc.model.platform import NodeState
from coalloc.model.snapshot import Running
from tests.support.part_specs import batch_spec
from tests.unit.adapters.gridengine.test_parse_xml import answer

NOW = 1000.0
OURS = "coalloc-" + 32 * "a"
SITE = GridEngineSettings(cluster="c", queue="all.q")


def queue(*jobs: JobEntry, slots: int = 8, host: str = "n1", **given: Any) -> QueueInstance:
    used = given.pop("used", sum(job.slots for job in jobs))
    return QueueInstance(queue="all.q", host=host, slots=slots, used=used, jobs=jobs, **given)


def job(number: int, slots: int = 1, **given: Any) -> JobEntry:
    fields: dict[str, Any] = {"start": 900.0, "state": "r", **given}
    return JobEntry(number=str(number), slots=slots, **fields)


def running(*entries: QueueInstance, site: GridEngineSettings = SITE) -> dict[str, Running]:
    return {each.id: each for each in running_jobs(site, entries, NOW, None)}


@pytest.mark.parametrize(
    ("letters", "state"),
    [
        ("", NodeState.UP),
        ("a", NodeState.DRAINING),
        ("d", NodeState.DRAINING),
        ("au", NodeState.DOWN),
        ("du", NodeState.DOWN),
        ("E", NodeState.DOWN),
        ("P", NodeState.DRAINING),  # preempted: of a later release, and unknown to us
    ],
)
def test_state_of_a_queue(letters: str, state: NodeState) -> None:
    found, reason, strange = state_of(letters)
    assert found is state
    assert bool(reason) is (state is not NodeState.UP)
    assert strange == ("P" if letters == "P" else "")


def test_local_jobs_take_their_slots_until_their_limits() -> None:
    found = running(queue(job(1, 2, time_limit=300.0), job(2, 3), job(3, time_limit=50.0)))
    assert {name: dict(each.nodes) for name, each in found.items()} == {
        "c:1": {"n1": 2},
        "c:2": {"n1": 3},
        "c:3": {"n1": 1},
    }
    assert [found[f"c:{n}"].end for n in (1, 2, 3)] == [1200.0, 900.0 + ENDLESS_S, 950.0]
    assert not any(each.ours for each in found.values())


def test_the_queues_own_limit_holds_for_every_job() -> None:
    found = running(queue(job(1), job(2, time_limit=10.0), time_limit=60.0))
    assert [found["c:1"].end, found["c:2"].end] == [960.0, 910.0]


def test_a_job_on_several_hosts_is_one() -> None:
    found = running(queue(job(7, 2)), queue(job(7, 4), host="n2"))
    assert dict(found["c:7"].nodes) == {"n1": 2, "n2": 4}


def test_ours_are_no_local_jobs() -> None:
    ours = job(1, 4, name=OURS)
    assert running(queue(ours)) == {}
    entries = [queue(ours, job(2))]
    known = running_jobs(SITE, entries, NOW, {32 * "a"})
    stray = running_jobs(SITE, entries, NOW, frozenset())
    assert [each.id for each in known] == ["c:2"]
    assert {each.id for each in stray} == {"c:1", "c:2"}, "a token that no part knows"


def test_what_is_taken_beyond_the_jobs_that_are_listed() -> None:
    found = running(queue(job(1, 2), used=3, reserved=1))
    assert dict(found["c:rest:n1"].nodes) == {"n1": 2}
    limited = running(queue(job(1, 2), available=1))
    assert dict(limited["c:rest:n1"].nodes) == {"n1": 5}
    assert "c:rest:n1" not in running(queue(job(1, 2), available=0, state="d"))


def test_never_more_than_the_host_has() -> None:
    found = running(queue(job(1, 6, time_limit=900.0), job(2, 6), used=12))
    assert sum(sum(each.nodes.values()) for each in found.values()) == 8
    assert dict(found["c:2"].nodes) == {"n1": 6}, "who stays longest comes first"


def test_hosts_that_take_one_process() -> None:
    whole = read_settings({"slots": "node"}, "c")
    found = running(queue(job(1, time_limit=5.0), job(2, time_limit=500.0)), site=whole)
    assert {name: dict(each.nodes) for name, each in found.items()} == {"c:2": {"n1": 1}}
    assert running(queue(job(1, 8, name=OURS)), site=whole) == {}
    assert list(running(queue(used=1), site=whole)) == ["c:rest:n1"]


def test_consumables_are_what_is_left_and_what_jobs_have() -> None:
    """Of a job in each case what it asks for, times its slots; ours take of the host, too."""
    given = {"complexes": {"memory": "h_vmem", "gpu": "gpus", "exclusive": "alone"}}
    site = read_settings({"queue": "all.q", **given}, "c")
    asks = {"h_vmem": "1G", "gpus": "1"}
    jobs = (
        job(1, 2, requests=asks),
        job(2, 1, requests={"h_vmem": "512M"}),
        job(3, 1, name=OURS, requests=asks),
        job(4, MOST_SLOTS, requests=asks),
    )
    entry = queue(*jobs, memory_mb=64000, said={"h_vmem": "4.500G", "gpus": "1.000000"})
    host = sized(site, entry)
    assert (host.memory_mb, host.resources) == (4608 + 2048 + 512 + 1024, {"gpu": 4})
    found = {each.id: each for each in running_jobs(site, [entry], NOW, {32 * "a"})}
    assert (found["c:1"].memory_mb, found["c:1"].resources) == ({"n1": 2048}, {"n1": {"gpu": 2}})
    assert (found["c:2"].memory_mb, found["c:2"].resources) == ({"n1": 512}, {})
    down = sized(site, queue(memory_mb=64000))
    assert (down.memory_mb, down.resources) == (64000, {})
    used_up = sized(site, queue(memory_mb=64000, said={"h_vmem": "0.000"}))
    assert used_up.memory_mb == 0
    # Where a host does not count what a job there asked for, that is none of its size.
    endless = sized(site, queue(*jobs, memory_mb=64000, said={"h_vmem": "infinity"}))
    assert (endless.memory_mb, endless.resources) == (64000, {})
    whole = sized(read_settings({"slots": "node"}, "c"), queue(slots=8, cpus=16))
    assert (whole.slots, whole.cpus) == (1, 16)


def test_waiting_jobs_are_counted_by_task() -> None:
    status = CellStatus(waiting=(job(1, tasks="3-5:1"), job(2), job(3, name=OURS)))
    assert waiting_count(status, None) == 4
    assert waiting_count(status, frozenset()) == 5


class Told(GridEngine):
    """Commands that say what they are told to."""

    said = ""

    def run(self, name: str, *arguments: str, **_: Any) -> str:
        if not self.said:
            raise UnreachableError(name, "commlib error")
        return self.said


def reading_of(name: str, **given: Any) -> Any:
    commands = Told()
    type(commands).said = answer(name)
    settings = read_settings({"queue": "main", **given}, "c")
    return GridEngineReader(settings, commands, clock=lambda: 1795291700.0).read()


def test_reading_of_a_recorded_answer() -> None:
    reading = reading_of("jobs", power_by_node={"localhost": 0.5}, load="none")
    (node,) = reading.nodes
    assert (node.name, node.slots, node.power, node.state) == ("localhost", 4, 0.5, NodeState.UP)
    assert node.memory_mb == 24105
    assert {each.id for each in reading.running} == {"c:2.1", "c:2.2"}
    assert reading.waiting == 4, "three tasks and a held job; the last is ours"


def test_reading_of_a_host_that_is_gone() -> None:
    (node,) = reading_of("unheard").nodes
    assert node.state is NodeState.DOWN
    assert node.reason == "execd is out of reach"


def test_nodes_of_equal_names_are_told_apart() -> None:
    reading = reading_of("jobs", qualified=True, load="none")
    assert reading.nodes[0].name == "c/localhost"
    assert reading.nodes[0].address == "localhost"
    assert all(set(each.nodes) == {"c/localhost"} for each in reading.running)


def test_what_cannot_be_read_is_unknown_not_empty() -> None:
    with pytest.raises(AdapterError, match="no slots of queue other"):
        reading_of("jobs", queue="other")
    commands = Told()
    for said in ("", "<job_info", "<qhost/>"):
        type(commands).said = said
        with pytest.raises(AdapterError):
            GridEngineReader(SITE, commands).read()


@pytest.mark.parametrize(
    ("old", "new", "notice", "taken"),
    [
        # other, and its own slots at the most that they may be
        ("<JB_job_number>2<", "<JB_job_number>x2<", "job x2 is not understood ('x2' is not", 2),
        ("<slots>1</slots>", "<slots>one</slots>", "job 2 is not understood (slots: 'one'", 2),
        ("<slots_used>4<", "<slots_used>four<", "main@localhost is not understood (slots_used", 0),
        ("<name>main@localhost<", "<name>main<", "main is not understood", 0),
    ],
)
def test_an_odd_record_holds_its_own_slots(old: str, new: str, notice: str, taken: int) -> None:
    text = answer("jobs")
    assert old in text
    commands = Told()
    type(commands).said = text.replace(old, new, 1)
    settings = read_settings({"queue": "main", "load": "none"}, "c")
    reading = GridEngineReader(settings, commands, clock=lambda: 1795291700.0).read()
    assert reading.notices[0].startswith(notice)
    assert sum(job.nodes["localhost"] for job in reading.running) == taken
    assert len(reading.nodes) == bool(taken)


def free_slots(text: str) -> int:
    commands = Told()
    type(commands).said = text
    settings = read_settings({"queue": "main", "load": "none"}, "c")
    reading = GridEngineReader(settings, commands, clock=lambda: 1795291700.0).read()
    taken = sum(count for job in reading.running for count in job.nodes.values())
    return sum(node.slots for node in reading.nodes if node.state is NodeState.UP) - taken


def test_no_field_frees_a_slot_or_makes_a_cell_unreadable() -> None:
    text = answer("jobs")
    before = free_slots(text)
    for found in re.finditer(r">([^<>\s][^<>]*)<", text):
        for odd in ("", "?", "x7", "-1", "9" * 40):
            changed = f"{text[: found.start(1)]}{odd}{text[found.end(1) :]}"
            assert free_slots(changed) <= before, (found[1], odd)


def test_an_empty_cell_is_not_an_unreadable_one() -> None:
    commands = Told()
    type(commands).said = "<job_info><queue_info/><job_info/></job_info>"
    reading = GridEngineReader(SITE, commands).read()
    assert (reading.nodes, reading.notices) == ((), ("it has no hosts",))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"queue": ""}, "s.queue: is empty"),
        ({"queue": "all.q@n1"}, "s.queue: 'all.q@n1' is not a name"),
        ({"pe": "-x"}, "s.pe: '-x' is not a name"),
        ({"root": "var"}, "s.root: 'var' is not an absolute path"),
        ({"ports": [5]}, "s.ports: [5] is not a first and a last port"),
        ({"power": 0}, "s.power:"),
        (
            {"power_by_node": {"n[1-2]": 0.5, "n2": 0.5}},
            "s.power_by_node.n2: node 'n2' is named twice",
        ),
        ({"slots": "cpus"}, "s.slots:"),
        ({"qmaster_port": 70000}, "s.qmaster_port:"),
    ],
)
def test_settings_that_are_refused(value: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_settings(value, "c", "s")
    assert str(caught.value).startswith(said)


def spec(limit_s: float | None = 60.0) -> Any:
    site = {"queue": "all.q", "pe": "smp", "options": ["-P", "p"]}
    limits = {"time_limit_s": limit_s, "lease_s": 5.0, "grace_s": 1.0}
    return batch_spec(site=site, token={"name": OURS}, **limits)


def test_words_of_a_request() -> None:
    words = request(spec(), "n1", 3)
    text = " ".join(words)
    assert f"-N {OURS} -q all.q@n1" in text
    assert "-pe smp 3" in text
    assert "-l h_rt=126" in text
    assert "-r n" in text
    assert text.endswith("-P p")
    assert "-pe" not in request(spec(), "n1", 1)
    assert not any(word.startswith("h_rt") for word in request(spec(None), "n1", 1))


def test_words_of_a_request_that_may_wait() -> None:
    """Any host but those to be avoided, and later; what it may hold is added to its limit."""
    waits = spec() | {"queue": {"hold_s": 30.0}}
    waits["site"] = waits["site"] | {"avoid": ["n2", "n3"]}
    text = " ".join(request(waits, "", 2, ["h_vmem=1024K"], instant(0.0)))
    assert "-q all.q -S" in text
    assert "-l h=!(n2|n3) -l h_vmem=1024K -a 197001010000.00" in text
    assert "-l h_rt=156" in text
    assert "h=!" not in " ".join(request(waits, "n1", 2))
    assert 'export COALLOC_BARRIER_NODE="$HOSTNAME"\n' in job_script(
        site_of(spec()), {"COALLOC_BARRIER_NODE": HOST_VARIABLE}
    )


def test_what_a_claim_was_given_and_how_many_are_before_it() -> None:
    status = CellStatus(queues=(queue(job(7, 3), job(8)), queue(job(9), host="n2")))
    assert given({"7": 3}, status) == {"n1": 3}
    assert given({"7": 1, "9": 2}, status) == {"n1": 1, "n2": 2}, "processes, whatever their slots"
    assert given({"5": 1}, status) == {}
    states = ("qw", "hqw", "Eqw", "qw", "qw")
    line = [job(number, state=state) for number, state in enumerate(states, 1)]
    assert [place_in_queue([name], line) for name in ("1", "4", "5")] == [0, 1, 2]


def test_secrets_are_in_the_script_and_quoted() -> None:
    script = job_script(site_of(spec()), {"KEY": "it's"})
    assert "export KEY='it'\\''s'\n" in script
    assert not any(line.startswith("#$") for line in script.splitlines())


@pytest.mark.parametrize(
    ("states", "joint"),
    [
        (["r", "r"], RUNS),
        (["r", "t"], RUNS),
        (["r", "qw"], WAITS),
        (["hqw"], WAITS),
        (["r", "Eqw"], FAILED),
        (["dr", "r"], DELETING),
        (["r", None], ""),
        ([], ""),
    ],
)
def test_joint_state(states: list[str | None], joint: str) -> None:
    jobs = [job(n, state=state) for n, state in enumerate(states) if state is not None]
    assert joint_state([str(n) for n in range(len(states))], jobs) == joint


def test_every_state_is_explained() -> None:
    reasons = {state: explained(state, 3.0)[0] for state in (WAITS, RUNS, DELETING, FAILED)}
    assert reasons[DELETING] == "cancelled_there"
    assert reasons[FAILED] == "ended_in_gridengine"
    assert explained(OVERDUE, 3.0) == ("nodes_taken", "Grid Engine has not started it within 3 s")


# What Grid Engine 8.1.9 says, as it was said.
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('Job 9 cannot run in PE "smp" because it only offers 0 slots', "nodes_taken"),
        (
            'Job 14 queue instance "m@h" dropped because it is temporarily not available',
            "node_unavailable",
        ),
        ('Job was rejected because job requests unknown queue "m@x".', "unknown_node"),
        (
            'job rejected: the requested parallel environment "smpx" does not exist',
            "refused_by_gridengine",
        ),
        ('denied: host "x" is no submit host', "not_permitted"),
        ("error: commlib error: got select error (Connection refused)", "unreachable"),
    ],
)
def test_reasons_of_refusals(said: str, reason: str) -> None:
    from coalloc.adapters.ssh.shell import CommandOutput

    error = GridEngine().failure("qsub", CommandOutput(code=1, out="", err=said))
    assert refusal(error) == reason
