"""Whatever a workflow file holds, its reader answers with a workflow or with one InputError."""

import json
from math import isfinite
from typing import Any

import networkx as nx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coalloc.adapters.formats.task_graph import WorkflowFile
from coalloc.adapters.formats.workflow import parse_workflow
from coalloc.model.errors import InputError
from coalloc.model.formats.snapshot_json import read_snapshot, write_snapshot
from coalloc.model.snapshot import Snapshot
from tests.unit.adapters.formats.test_workflow_files import DAX, DOT, OWN, PEGASUS, wfformat

WORDS = st.sampled_from(["a", "b", "0", "-1", "nan", "1e400", "", "\ud800", "é", "a b", "'", "{"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 10**20) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=4,
)
PIECES = st.sampled_from(
    [*'<>&;"{}[]=,:/-#*?!|\n', "\x00", "\xff", "->", "&a", "*a", "<!DOCTYPE a", "]]>", "- ", "  "]
)


def read(raw: bytes, name: str = "x") -> WorkflowFile | None:
    """What the reader answers; whatever it accepts must be sound, and fit into a snapshot."""
    refusal = ""
    try:
        file = parse_workflow(raw, name)
    except InputError as error:
        refusal = str(error)
    if refusal:
        assert "\n" not in refusal
        return None
    ids = [task.id for task in file.job.tasks]
    assert len(set(ids)) == len(ids) > 0
    assert all(isfinite(task.work) and task.work >= 0.0 for task in file.job.tasks)
    assert all(1 <= task.min_procs <= task.max_procs for task in file.job.tasks)
    graph = nx.DiGraph([(edge.parent, edge.child) for edge in file.job.edges])
    assert nx.is_directed_acyclic_graph(graph)
    assert set(graph) <= set(ids)
    assert set(file.commands) <= set(ids)
    assert all(file.commands.values())
    snapshot = Snapshot(queue=(file.job,))
    assert read_snapshot(write_snapshot(snapshot)) == snapshot
    return file


SAMPLES = [DAX, PEGASUS, DOT, json.dumps(wfformat()), json.dumps(OWN)]


@pytest.mark.parametrize("text", SAMPLES, ids=["dax", "yaml", "dot", "wfformat", "own"])
def test_the_samples_are_read(text: str) -> None:
    assert read(text.encode()) is not None


@settings(max_examples=150)
@given(raw=st.binary(max_size=60))
@example(raw=b"")
@example(raw=b"\xef\xbb\xbf<a/>")
@example(raw=b"<?xml version='1.0' encoding='utf-7'?><adag/>")
@example(raw=b"<?xml version='1.0' encoding='nonsense'?><adag/>")
@example(raw=b"? [a]\n: b")
@example(raw=b"!!python/object/apply:os.system [true]")
@example(raw=b"digraph" * 99)
@example(raw=b"[" * 100_000)
@example(raw=b'{"a":' * 100_000)
def test_bytes(raw: bytes) -> None:
    read(raw)


@pytest.mark.parametrize("text", SAMPLES, ids=["dax", "yaml", "dot", "wfformat", "own"])
@settings(max_examples=150)
@given(data=st.data())
def test_texts_with_pieces_out_of_place(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 6))
        text = text[:at] + data.draw(PIECES | WORDS | st.just("")) + text[at + gone :]
    read(text.encode("utf-8", "surrogatepass"))


def replaced(value: Any, place: int, new: Any) -> Any:
    """A JSON value with one of its parts, counted depth first, replaced."""
    counted = -1

    def walk(item: Any) -> Any:
        nonlocal counted
        counted += 1
        if counted == place:
            return new
        if isinstance(item, dict):
            return {key: walk(part) for key, part in item.items()}
        return [walk(part) for part in item] if isinstance(item, list) else item

    return walk(value)


PEGASUS_JSON = {
    "pegasus": "5.0",
    "jobs": [
        {
            "type": "job",
            "id": "a",
            "name": "make",
            "arguments": ["-n", 3, {"lfn": "f"}],
            "uses": [{"lfn": "f", "type": "output", "metadata": {"size": "9"}}],
            "profiles": {"pegasus": {"runtime": 3, "cores": 2}, "coalloc": {"max_procs": 4}},
        },
        {"type": "job", "id": "b", "uses": [{"file": {"lfn": "f", "size": 9}, "type": "input"}]},
    ],
    "jobDependencies": [{"id": "a", "children": ["b"]}],
    "transformationCatalog": {"transformations": [{"name": "make", "sites": [{"pfn": "/m"}]}]},
    "replicaCatalog": {"replicas": [{"lfn": "g", "metadata": {"size": 4}}]},
}


@pytest.mark.parametrize(
    "value", [wfformat(), OWN, PEGASUS_JSON], ids=["wfformat", "own", "pegasus"]
)
@settings(max_examples=250)
@given(place=st.integers(0, 90), new=VALUES)
def test_json_with_one_part_replaced(value: Any, place: int, new: Any) -> None:
    read(json.dumps(replaced(value, place, new)).encode())
