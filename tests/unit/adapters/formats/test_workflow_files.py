"""Workflows of every format, small enough to be read by eye."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.formats.task_graph import WorkflowFile
from coalloc.adapters.formats.workflow import is_workflow, parse_workflow, read_workflow
from coalloc.model.errors import InputError
from coalloc.model.jobs import Edge, Task


def read(text: str, name: str = "flow.txt") -> WorkflowFile:
    return parse_workflow(text.encode(), name, name)


def dumped(value: Any) -> WorkflowFile:
    return read(json.dumps(value), "flow.json")


def wfformat(**changes: Any) -> dict[str, Any]:
    """Two tasks, the second with an extension field; `changes` go into the second."""
    first = {"id": "a", "name": "a", "children": ["b"], "outputFiles": ["f", "g"]}
    second: dict[str, Any] = {"id": "b", "name": "b", "parents": ["a"], "inputFiles": ["f", "h"]}
    second["coalloc"] = {"parallelFraction": 0.5, "minCores": 2, "maxCores": 16, "commInBytes": 3e9}
    sizes = {"f": 1_500_000_000, "g": 7, "h": 9}
    return {
        "name": "pair",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [first, second | changes],
                "files": [{"id": name, "sizeInBytes": size} for name, size in sizes.items()],
            },
            "execution": {
                "makespanInSeconds": 3,
                "tasks": [
                    {
                        "id": "a",
                        "runtimeInSeconds": 12.5,
                        "coreCount": 4,
                        "machines": ["fast"],
                        "command": {"program": "./prepare", "arguments": ["-n", "4"]},
                    },
                    {
                        "id": "b",
                        "runtimeInSeconds": 10,
                        "coreCount": 4,
                        "machines": ["slow"],
                        "command": {"program": "sum", "arguments": ["--cpu 0.6", ">", "x"]},
                    },
                ],
                "machines": [
                    {"nodeName": "fast", "cpu": {"speedInMHz": 1200}},
                    {"nodeName": "slow", "cpu": {"speedInMHz": 2600}, "coalloc": {"power": 0.5}},
                ],
            },
        },
    }


@pytest.mark.parametrize("version", ["1.5", "1.6"])
def test_wfformat(version: str) -> None:
    file = dumped(wfformat() | {"schemaVersion": version})
    assert file.name == "pair"
    # without the extension field four cores are a rigid task
    # b took 10 s on four cores of power .5: 5 s at full speed, and 5 = work * (.5 + .5 / 4)
    assert file.job.tasks == (
        Task(id="a", work=12.5, min_procs=4, max_procs=4),
        Task(id="b", work=8.0, parallel_fraction=0.5, min_procs=2, max_procs=16, comm_gb=3.0),
    )
    assert file.job.edges == (Edge(parent="a", child="b", gb=1.5),)
    assert file.commands == {
        "a": ("./prepare", "-n", "4"),
        "b": ("/bin/sh", "-c", "sum --cpu 0.6 > x"),
    }
    assert file.warnings == ()


def test_wfformat_without_measurements() -> None:
    value = wfformat()
    del value["workflow"]["execution"]
    file = dumped(value)
    assert [task.work for task in file.job.tasks] == [60.0, 60.0]
    assert file.commands == {}
    assert file.warnings == ("2 of 2 tasks name no run time; 60 s are assumed",)


def test_clocks_that_differ_are_named() -> None:
    value = wfformat()
    del value["workflow"]["execution"]["machines"][1]["coalloc"]
    (warning,) = dumped(value).warnings
    assert warning == "machines of 1200 to 2600 MHz are taken to be equally fast"


DAX = """<?xml version="1.0" encoding="UTF-8"?>
<adag xmlns="http://pegasus.isi.edu/schema/DAX" version="3.6" name="pair">
  <executable namespace="x" name="sum"><pfn url="file:///opt/sum" site="local"/></executable>
  <job id="b" name="sum" runtime="8">
    <argument>-i <file name="f"/> "two words"</argument>
    <profile namespace="pegasus" key="cores">4</profile>
    <profile namespace="coalloc" key="max_procs">8</profile>
    <profile namespace="coalloc" key="min_procs">2</profile>
    <profile namespace="coalloc" key="parallel_fraction">0.5</profile>
    <profile namespace="condor" key="universe">vanilla</profile>
    <uses name="f" link="input" size="1"/>
    <uses name="log" link="inout"/>
  </job>
  <job id="a" name="make" runtime="1e1" cores="3">
    <uses file="f" link="output" size="2000000000"/>
  </job>
  <child ref="b"><parent ref="a"/></child>
</adag>"""


def test_dax() -> None:
    file = read(DAX, "x.dax")
    assert file.name == "pair"
    assert file.job.tasks == (
        Task(id="b", work=8 / 0.625, parallel_fraction=0.5, min_procs=2, max_procs=8),
        Task(id="a", work=10.0, min_procs=3, max_procs=3),
    )
    assert file.job.edges == (Edge(parent="a", child="b", gb=2.0),)
    assert file.commands == {"b": ("/opt/sum", "-i", "f", "two words")}


PEGASUS = """
x-pegasus: {apiLang: python, createdBy: me}
pegasus: "5.0.4"
name: pair
transformationCatalog:
  transformations: [{name: sum, sites: [{name: local, pfn: file:///opt/sum, type: installed}]}]
replicaCatalog:
  replicas: [{lfn: in, pfns: [{site: local, pfn: /in}], metadata: {size: 5}}]
jobs:
- {type: job, name: make, id: 0010, arguments: [], uses: [{lfn: f, type: output, size: 2000000000}]}
- type: job
  name: sum
  id: no
  arguments: [-i, f, "1"]
  profiles:
    pegasus: {cores: 2, runtime: "30"}
    coalloc: {parallel_fraction: .9, max_procs: 4}
  uses:
  - {lfn: f, type: input}
  - {lfn: in, type: input}
  - lfn: out
    type: output
    stageOut: true
jobDependencies:
- id: 0010
  children: [no]
"""


def test_pegasus_yaml() -> None:
    file = read(PEGASUS, "x.yml")
    assert file.name == "pair"
    assert file.job.tasks == (
        Task(id="0010", work=60.0),
        Task(id="no", work=30 / 0.55, parallel_fraction=0.9, min_procs=1, max_procs=4),
    )
    assert file.job.edges == (Edge(parent="0010", child="no", gb=2.0),)
    assert file.commands == {"0010": ("make",), "no": ("/opt/sum", "-i", "f", "1")}
    assert file.warnings == ("1 of 2 tasks name no run time; 60 s are assumed",)


def test_pegasus_json() -> None:
    jobs = [{"type": "job", "name": "make", "id": "a", "arguments": ["-n", 3], "uses": []}]
    file = dumped({"pegasus": "5.0", "jobs": jobs, "jobDependencies": []})
    assert file.name == "flow"
    assert file.commands == {"a": ("make", "-n", "3")}


DOT = """/* by hand */ strict digraph G { // comment
  graph [rankdir=LR]; rankdir = TB
  node [alpha=.25]
  1 [size="49659735022", alpha="0.19"]; "two words" [size=2e9, shape=box]
  3 [runtime=7, alpha="1"] 4 [runtime=8, min_procs=2, max_procs=5, comm_gb=.5, label="a \\" b"]
  1 -> "two words" -> 3 [size ="411041792"]
  1 -> 4
}"""


def test_dot() -> None:
    file = read(DOT, "flow.dot")
    assert file.name == "flow"
    one, two, three, four = file.job.tasks
    assert one.work == 49.659735022
    assert (one.min_procs, one.max_procs) == (1, 10_000)
    assert one.parallel_fraction == pytest.approx(0.81)
    assert (two.id, two.work, two.parallel_fraction) == ("two words", 2.0, 0.75)
    assert three == Task(id="3", work=7.0)
    assert four == Task(
        id="4", work=8.0, parallel_fraction=0.75, min_procs=2, max_procs=5, comm_gb=0.5
    )
    assert [(e.parent, e.child, e.gb) for e in file.job.edges] == [
        ("1", "two words", 0.411041792),
        ("two words", "3", 0.411041792),
        ("1", "4", 0.0),
    ]


OWN = {
    "name": "two",
    "weight": 2.0,
    "features": ["gpu"],
    "tasks": [
        {"id": "a", "work": 60, "command": ["./prepare", "in put"]},
        {"id": "b", "work": 600, "max_procs": 8, "parallel_fraction": 0.95, "command": "x | y"},
        {"id": "c", "work": 1},
    ],
    "edges": [{"from": "a", "to": "b", "gb": 1.5}],
}


def test_our_own() -> None:
    file = dumped(OWN)
    assert (file.name, file.job.id, file.job.weight, file.job.features) == ("two", "1", 2, ("gpu",))
    assert [task.id for task in file.job.tasks] == ["a", "b", "c"]
    assert file.commands == {"a": ("./prepare", "in put"), "b": ("/bin/sh", "-c", "x | y")}


def test_files_between_tasks_without_an_edge_are_counted() -> None:
    value = wfformat(parents=[])
    value["workflow"]["specification"]["tasks"][0]["children"] = []
    file = dumped(value)
    assert file.job.edges == ()
    assert file.warnings == (
        "1 files (1.5 GB) pass between tasks without an edge; they are not counted as data",
    )


BOMB = """<?xml version="1.0"?>
<!DOCTYPE adag [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<adag><job id="&b;" runtime="1"/></adag>"""
OUTSIDE = """<?xml version="1.0"?>
<!DOCTYPE adag SYSTEM "file:///etc/passwd">
<adag><job id="a" runtime="1"><argument>&secret;</argument></job></adag>"""
LOOP = "<adag><job id='a' runtime='1'/><child ref='a'><parent ref='a'/></child></adag>"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (BOMB, "line 2: XML entities are refused"),
        (OUTSIDE, "line 3: XML entities are refused"),
        ("<adag>" + "<x>" * 200, "line 1: is nested too deeply"),
        ("<platform/>", "is no DAX: there is no <adag>"),
        ("<adag/>", "there is no task"),
        ("<adag><job/></adag>", "line 1: a <job> has no id"),
        ("<adag>", "is no XML: no element found: line 1, column 6"),
        (LOOP, "edges: task 'a' lies on or behind a cycle"),
        (LOOP.replace("parent ref='a'", "parent ref='z'"), "task 'a': its parent 'z' does not "),
        (LOOP.replace("child ref='a'", "child ref='z'"), "task 'a': its child 'z' does not exist"),
        (LOOP.replace("='1'", "='-1'"), "task 'a': runtime: -1 is below 0"),
        (LOOP.replace("='1'", "='nan'"), "task 'a': runtime: nan is not a finite number"),
        (LOOP.replace("='1'", "='1e999'"), "task 'a': runtime: inf is not a finite number"),
        (LOOP.replace("='1'", "='soon'"), "task 'a': runtime: 'soon' is not a number"),
        (LOOP.replace("='1'", "='1' cores='0'"), "task 'a': cores: 0 is outside 1..1e+09"),
        (DAX.replace('id="b"', 'id="a"'), "task 'a': is there twice"),
        (DAX.replace('"two words"', '"two'), "task 'b': argument: No closing quotation"),
        (DAX.replace("min_procs", "minimum"), "task 'b': profile: 'minimum' is not one of paral"),
        (DAX.replace('">2</', '">9</'), "task 'b': its range of processes is empty: 9..8"),
        (DAX.replace("<job", "<dax", 1).replace("</job", "</dax", 1), "line 4: task 'b': is a wo"),
        (PEGASUS.replace("no]", "*x]"), "line 26: YAML aliases are refused"),
        (PEGASUS.replace("name: pair", "name: &x pair\nagain: *x"), "line 5: YAML aliases are re"),
        (PEGASUS.replace("[no]", "[yes]"), "task '0010': its child 'yes' does not exist"),
        (PEGASUS.replace("id: 0010", "id: no"), "task 'no': is there twice"),
        (PEGASUS.replace('"30"', "-30"), "task 'no': runtime: -30 is below 0"),
        (PEGASUS.replace("type: job\n", "type: pegasusWorkflow\n"), "task 'no': is a 'pegasusWo"),
        (PEGASUS + "name: again", "line 27: key 'name' appears twice in an object"),
        ("a: 1\n---\nb: 2", "holds 2 YAML documents, not one"),
        ("[" * 500, "line 1: is nested too deeply"),
        ("# nothing", "holds 0 YAML documents, not one"),
        ("a: b", "is no workflow: neither WfFormat, DAX, Pegasus, DOT nor our own JSON"),
        ("digraph G { 1 -> 2 -> 1 }", "edges: task '1' lies on or behind a cycle"),
        ("digraph G { 1 [size=-4] }", "task '1': size: -4 is below 0"),
        ("digraph G { 1 [alpha=2] }", "task '1': alpha: 2 is outside 0..1"),
        ("digraph G { subgraph x {} }", "line 1: sub-graphs are not read"),
        ("digraph G { 1 -> }", "line 1: a name is expected, not '}'"),
        ("digraph G {\n 1 ? }", "line 2: '?' does not belong in a DOT graph"),
        ("digraph G { 1 [size=2x] }", "line 1: '2' does not belong in a DOT graph"),
        ("digraph G {", "line 1: a name is expected, not the end"),
        ("digraph G { }", "there is no task"),
        ('{"tasks": [{"id": "a", "work": NaN}]}', "task 'a'.work: nan is not a finite"),
        (
            '{"tasks": [{"id": "a", "work": 1, "command": []}]}',
            "task 'a': command: names no pro",
        ),
        ('{"tasks": [], "kind": "rigid"}', "kind: is not workflow"),
    ],
)
def test_a_bad_file_is_refused(text: str, error: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "bad")
    assert str(caught.value).startswith(f"bad: {error}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"id": "a"}, "task 'a': is there twice"),
        ({"parents": ["a", "z"]}, "task 'b': its parent 'z' does not exist"),
        ({"children": ["a"]}, "edges: task 'a' lies on or behind a cycle"),
        ({"id": ""}, "workflow.specification.tasks[1].id: is empty"),
        ({"coalloc": {"cores": 3}}, "task 'b': coalloc.cores: unknown key"),
        ({"coalloc": {"maxCores": 0}}, "task 'b': coalloc.maxCores: 0 is outside 1..1e+09"),
        ({"coalloc": {"parallelFraction": 2}}, "task 'b': coalloc.parallelFraction: 2 is outside"),
        ({"inputFiles": "f"}, "task 'b': inputFiles: 'f' is not a list"),
        ({"id": "z"}, "task 'a': its child 'b' does not exist"),
    ],
)
def test_a_bad_task_of_wfformat_is_named(changes: dict[str, Any], error: str) -> None:
    value = wfformat(**changes)
    if "id" in changes:
        del value["workflow"]["execution"]
    with pytest.raises(InputError) as caught:
        dumped(value)
    assert str(caught.value).startswith(f"flow.json: {error}")


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("runtimeInSeconds", -1, "task 'b': runtimeInSeconds: -1 is below 0"),
        ("runtimeInSeconds", float("nan"), "task 'b': runtimeInSeconds: nan is not a finite"),
        ("coreCount", 1.5, "task 'b': coreCount: 1.5 is not a whole number"),
        ("id", "c", "task 'c': was executed, but is not in the specification"),
        ("id", "a", "task 'a': was executed twice"),
    ],
)
def test_a_bad_measurement_of_wfformat_is_named(key: str, value: Any, error: str) -> None:
    top = wfformat()
    top["workflow"]["execution"]["tasks"][1][key] = value
    with pytest.raises(InputError) as caught:
        dumped(top)
    assert str(caught.value).startswith(f"flow.json: {error}")


def test_old_wfformat_is_refused() -> None:
    with pytest.raises(InputError, match=r"schemaVersion: '1\.4' is not one of 1\.5, 1\.6"):
        dumped(wfformat() | {"schemaVersion": "1.4"})


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.json", json.dumps(OWN), True),
        ("a", DAX, True),
        ("a.yml", PEGASUS, True),
        ("a", DOT, True),
        ("a.swf", "; Version: 2.2\n1 0 0 10 4", False),
        ("a.swf", "1 0 0 10 4 -1 -1 4 10", False),
        ("a.swf", "", False),
    ],
)
def test_workflows_are_told_from_logs(name: str, text: str, told: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode("latin-1"))
    assert is_workflow(path) is told


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for reader in (read_workflow, is_workflow):
        with pytest.raises(InputError, match="none: No such file or directory"):
            reader(tmp_path / "none")


def test_the_example_of_the_page_is_read() -> None:
    page = Path(__file__).resolve().parents[4] / "docs" / "workflows.md"
    (example,) = re.findall(r"```json workflow\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    file = read(example)
    assert file.name == "two"
    assert file.commands["solve"] == ("/bin/sh", "-c", "mpirun ./solve | tee log")
