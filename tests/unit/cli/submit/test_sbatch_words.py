"""``coalloc sbatch`` beside the real one: the same meaning, a warning of a line, or refused."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from coalloc.cli import main
from coalloc.cli.command import Parser
from coalloc.cli.submit import sbatch
from coalloc.cli.submit.sbatch_words import BY_FLAG, WORDS, Consequence
from coalloc.model.output_names import BATCH_MARKS, filled, marks_of, rank_marks
from coalloc.model.sites.batch_options import PASSED
from tests.support import sbatch_cases, sbatch_meaning
from tests.support.sbatch_cases import Case
from tests.unit.cli.submit.test_command import FakeClient, client

__all__ = ["client"]

Differs = Callable[[str, object, object], Iterator[str]]
ANSWERS = sbatch_cases.recorded()
CASES = {case.name: case for case in sbatch_cases.cases(ANSWERS)}
WIDER = re.compile(r"Invalid (--\w+|numeric value|time) |Invalid job array|dependency problem")
"""Refusals of a value, for which there may be a meaning here."""
OF_THE_SITE = re.compile("talking to database|reservation is invalid|Invalid generic resource")
OURS = {
    *("--time=90s", "--time=2h", "--mem=0.5G", "--ntasks=4-8", "--mem-per-cpu=0.5G"),
    "SBATCH_TIMELIMIT=90s",
}
"""Values that mean something here alone."""


UNSEEN = {
    "(cpus|mem)-per-gpu": "CPUs|memory",
    "gpus-per-task": "gres|GPUs|processes",
    "ntasks-per-gpu": "gres|GPUs|processes",
    "ntasks-per-node=.*gpus=|gpus=.*ntasks-per-node=": "processes",
}
"""What follows from GPUs, and is in none of the fields, or not before the start: see `SEEN`."""


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_the_table_has_every_word_of_the_real_one() -> None:
    assert set(ANSWERS["options"]) <= BY_FLAG.keys()
    named = {name for word in WORDS for name in word.variables.split()}
    outputs = {name for name in ANSWERS["variables"] if name.startswith("SBATCH_MEM_BIND_")}
    assert set(ANSWERS["variables"]) - named - outputs == {
        "SBATCH_FOO",
        "SBATCH_NTASKS",
        "SLURM_NTASKS",
        "SBATCH_WAIT4SWITCH",  # the end of the value of another
    }
    assert len(BY_FLAG) == sum(len(word.flags) for word in WORDS)


def test_what_is_meant_is_declared_and_nothing_else() -> None:
    parser = Parser(prog="coalloc sbatch", add_help=False)
    sbatch.COMMANDS["sbatch"].add(parser)
    for word in WORDS:
        is_declared = {parser.dest(flag) for flag in word.flags} != {word.dest}
        assert is_declared is (word.verdict is Consequence.MEANT), word.names
        assert {parser.takes(flag) for flag in word.flags} == {word.value}, word.names


def test_what_is_passed_on_is_what_may_be() -> None:
    passed = {
        word.flags[-1].removeprefix("--") + "=" * (word.value != "none")
        for word in WORDS
        if word.verdict is Consequence.PASSED
    }
    assert passed | {"exclusive="} == PASSED  # of that only what Slurm alone can judge


@pytest.mark.parametrize("words", sbatch_meaning.SEEN)
def test_sizes_that_a_real_one_gave(words: str, client: FakeClient) -> None:
    seen = sbatch_meaning.SEEN[words]
    if seen is not None and "ntasks-per-gpu" not in words:
        assert sbatch_meaning.meaning([words]) == seen
    assert (main.main(["sbatch", *words.split(), "--wrap", "x"]) == 2) is (seen is None)
    assert client.sent == [] or sbatch_meaning.asked(client.sent.pop()) == seen


def result(
    case: Case, client: FakeClient, monkeypatch: pytest.MonkeyPatch, now: float
) -> tuple[int, dict[str, Any]]:
    """Exit code, and the request."""
    Path("job.sh").write_bytes(case.script)
    for name, value in case.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(time, "time", lambda: now)
    code = main.main(["sbatch", "-H", "job.sh"])
    return code, client.sent[-1] if client.sent else {}


def limit_s(text: str) -> float | None:
    """Seconds of a limit as scontrol shows it."""
    if text in {"UNLIMITED", "Partition_Limit"}:
        return None
    days, _, clock = text.rpartition("-")
    hours, minutes, seconds = map(int, clock.split(":"))
    return int(days or 0) * 86400.0 + hours * 3600 + minutes * 60 + seconds


def instant_s(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def mebibytes(text: str) -> int:
    scale = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}[text[-1]]
    return int(float(text[:-1]) * scale)


def differences(body: dict[str, Any], real: dict[str, Any]) -> Iterator[str]:
    """What of a request is not as in the job that sbatch makes."""
    said, job = real["job"], body["job"]

    def differs(what: str, ours: object, theirs: object) -> Iterator[str]:
        if ours != theirs:
            yield f"{what}: {ours!r}, to sbatch {theirs!r}"

    yield from differs("name", body.get("name", "job.sh"), said.get("JobName", "job.sh"))
    limit = job.get("time_limit")
    wanted = limit_s(said.get("TimeLimit", "UNLIMITED"))
    # Slurm's limits are whole minutes
    yield from differs("limit", limit and -(-limit // 60) * 60, wanted)
    yield from differs("processes", job["procs"], int(said.get("NumTasks", 1)))
    indices = said.get("ArrayTaskId", "").partition("%")[0]
    throttle = int(said.get("ArrayTaskThrottle", 0))
    ours = tuple(body["array"])
    expanded = tuple(
        number
        for piece in indices.split(",")
        if piece
        for number in range(int(piece.partition("-")[0]), int(piece.rpartition("-")[2]) + 1)
    )
    yield from differs("array", ours, expanded)
    yield from differs("throttle", body.get("throttle", 0), throttle)
    usual = {"partition": "main"}
    yield from _sizes(job, said, differs)
    for field, key in (
        ("Account", "account"),
        ("Partition", "partition"),
        ("Licenses", "licenses"),
    ):
        theirs = said.get(field, usual.get(key, "")).removesuffix(":1")
        mine = body["batch"].get(key, usual.get(key, "")).removesuffix(":1")
        yield from differs(key, mine, theirs)
    features = body["batch"].get("constraint", "&".join(job.get("features", ())))
    yield from differs("features", features, said.get("Features", ""))
    start = instant_s(said["StartTime"]) if said.get("StartTime", "Unknown") != "Unknown" else 0.0
    earliest = job.get("earliest", 0.0)
    is_now = max(start, earliest) <= real["asked"] + 2.0
    yield from differs("begin", is_now or abs(start - earliest) <= 2.0, True)
    deadline = instant_s(said["Deadline"]) if said.get("Deadline", "Unknown") != "Unknown" else 0.0
    yield from differs("deadline", abs(body.get("finish_by", 0.0) - deadline) <= 2.0, True)
    needs = ",".join(f"{kind}:{number}" for kind, number in body["needs"])
    theirs = re.sub(r"\(unfulfilled\)|_\*", "", said.get("Dependency", ""))
    theirs = re.sub(r"after:(\d+)\+(\d+)", r"after+\2:\1", theirs)
    if "?" in theirs:
        theirs = re.sub(r"(\w+):", r"\1?:", theirs.replace("?", ","))
    yield from differs("dependency", needs.replace("singleton:", "singleton"), theirs)
    if "Requeue" in said:  # else a site says what is usual
        yield from differs("requeue", body.get("requeue", False), said["Requeue"] == "1")
    out, cwd = said.get("StdOut", "").partition(" CPU_max_freq")[0], said.get("WorkDir", "/here")
    ours_out = body["launch"].get("stdout")
    if ours_out is not None and "%" not in ours_out:
        yield from differs("output", ours_out, out.removeprefix(f"{cwd}/"))
    folder = body["launch"]["cwd"]
    yield from differs("folder", cwd if cwd != "/here" else folder, folder)


def _sizes(job: Mapping[str, Any], said: Mapping[str, str], differs: Differs) -> Iterator[str]:
    """Of the same, what is taken of nodes."""
    shape, memory_mb, procs = job["shape"], job.get("memory_mb_per_proc", 0), job["procs"]
    cpus = shape["cpus_per_proc"]
    yield from differs("CPUs", cpus, int(said.get("CPUs/Task", 1)))
    if "-" in said.get("NumNodes", ""):
        theirs = tuple(map(int, said["NumNodes"].split("-")))
        yield from differs("nodes", (shape.get("min_nodes", 1), shape["max_nodes"]), theirs)
    of_cpu, of_node = said.get("MinMemoryCPU", "0M"), said.get("MinMemoryNode", "0M")
    yield from differs("memory", memory_mb, mebibytes(of_cpu) * cpus)
    yield from differs("memory", shape.get("memory_mb_per_node", 0), mebibytes(of_node))
    per_node = said.get("TresPerNode", "").strip().replace("gres:", "")
    in_all = sbatch_meaning.counts(said.get("TresPerJob", "").strip().removeprefix("gres:"))
    each = shape.get("per_node", {})
    if in_all:
        parts = shape.get("min_nodes", 1)
        if "per_proc" in shape:
            each, parts = shape["per_proc"], procs
        yield from differs("GPUs", {name: n * parts for name, n in each.items()}, in_all)
    else:
        yield from differs("gres", each, sbatch_meaning.counts(per_node))
    whole = said.get("OverSubscribe") == "NO"
    yield from differs("whole nodes", shape.get("exclusive", False), whole)


@pytest.mark.parametrize("kind", ["option", "lines", "variable"])
def test_meaning(kind: str, client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    wrong: dict[str, str] = {}
    for name, case in CASES.items():
        if kind == ("variable" if case.env else "option" if name.startswith("-") else "lines"):
            client.sent.clear()
            real = ANSWERS["cases"][name]
            with pytest.MonkeyPatch.context() as patch:
                code, body = result(case, client, patch, real.get("asked", 1795644000.0))
            found = fault(name, real, code, body, capsys.readouterr().err)
            wrong |= {name: found} if found else {}
    assert wrong == {}


def fault(name: str, real: dict[str, Any], code: int, body: dict[str, Any], err: str) -> str:
    """What is neither the same, nor told, nor refused."""
    if code == 2:
        return "" if err.startswith("coalloc: error: ") else err
    if "warning: " in err:
        where = r"job\.sh:\d+: |job\.sh: .* lines? \d|warning: [A-Z]+_[A-Z0-9_]+: "
        return "" if re.search(where, err) else err
    if "refused" in real:
        is_wider = WIDER.search(real["refused"]) and name.replace(" ", "=") in OURS
        is_passed = body["batch"].get("passed")  # the cluster itself will refuse it
        is_well = real["tested"] or OF_THE_SITE.search(real["refused"]) or is_wider or is_passed
        return "" if is_well else str(real["refused"])
    unseen = "|".join(words for options, words in UNSEEN.items() if re.search(options, name))
    found = differences(body, real)
    return "; ".join(each for each in found if not unseen or not re.match(unseen, each))


@pytest.mark.parametrize("pattern", [*sbatch_cases.PATTERNS, sbatch_cases.ARRAY_PATTERN])
def test_output_names(
    pattern: str,
    client: FakeClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    array = pattern == sbatch_cases.ARRAY_PATTERN
    line = f"-o '{pattern}'".replace("\\", "\\\\") + " -a 3-4" * array
    script = sbatch_cases.HEAD + f"#SBATCH {line}\ntrue\n".encode()
    code, _ = result(Case("", script), client, monkeypatch, 1.0)
    if code == 2 or "warning: " in capsys.readouterr().err:
        return
    number, *theirs = ANSWERS["array"] if array else ANSWERS["files"][pattern]
    jobs = [f"{number}_3", f"{number}_4"] if array else [number]
    marks = rank_marks(0, "vm") | BATCH_MARKS
    assert [filled(pattern, marks_of(job, "na me", "root") | marks) for job in jobs] == theirs


def test_options_of_real_scripts_are_planned_as_meant(
    client: FakeClient,
    capsys: pytest.CaptureFixture[str],
    shared_file: Callable[[str], Path],
) -> None:
    found, wrong = Counter[str](), {}
    for entry in json.loads(shared_file("data/public/sbatch-options.json").read_text()):
        text = "".join(f"#SBATCH {line}\n" for line in entry["options"])
        client.sent.clear()
        Path("job.sh").write_text(f"#!/bin/bash\n{text}true\n")
        code = main.main(["sbatch", "job.sh"])
        meant = sbatch_meaning.meaning(entry["options"])
        asked = sbatch_meaning.asked(client.sent[-1]) if client.sent else None
        kind = "refused" if code == 2 else "as meant" if asked == meant else "something else"
        if kind == "refused" and isinstance(meant, sbatch_meaning.Meaning):
            kind = "refused here alone"
        found[kind] += entry["count"]
        if kind not in {"as meant", "refused"}:
            wrong[entry["id"]] = kind, entry["options"], asked, meant, capsys.readouterr().err
    with capsys.disabled():
        print(f"\noptions of {found.total()} real scripts: {dict(found)}")
    assert wrong == {}
    assert found["as meant"] >= 0.97 * found.total()
