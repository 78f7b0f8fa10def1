"""Real workflows agree with the figures that stand beside them in the reference data."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest

from coalloc.adapters.formats.workflow import is_workflow, read_workflow
from coalloc.model.jobs import WorkflowJob

ROW = re.compile(
    r"\| workflows/(?P<path>\S+) \|.*\| (?:schema 1\.5, )?(?P<tasks>\d+) tasks, "
    r"(?P<edges>\d+) edges, (?P<levels>\d+) levels, sum of runtimes (?P<sum>\d+) s.* \|"
)
# The HEFT article's example: times of tasks 1 to 10 on the first processor, and its edges. The file
# has 20 on the edge from 3 to 7, where the article has 23.
HEFT_TIMES = (14, 13, 11, 13, 12, 13, 7, 5, 18, 21)
HEFT_EDGES = {
    (1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 20,
    (4, 8): 27, (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13,
}  # fmt: skip


def graph_of(job: WorkflowJob) -> "nx.DiGraph[str]":
    graph: nx.DiGraph[str] = nx.DiGraph()
    for task in job.tasks:
        graph.add_node(task.id, work=task.work)
    graph.add_edges_from((e.parent, e.child, {"gb": e.gb}) for e in job.edges)
    return graph


def levels(graph: "nx.DiGraph[str]") -> int:
    return len(list(nx.topological_generations(graph)))


@pytest.fixture(scope="module")
def listed(shared_file: Callable[[str], Path]) -> dict[str, re.Match[str]]:
    text = shared_file("data/README.md").read_text(encoding="utf-8")
    return {row["path"]: row for row in map(ROW.match, text.splitlines()) if row}


def test_every_workflow_agrees_with_the_figures(
    shared: Path, listed: dict[str, re.Match[str]]
) -> None:
    folder = shared / "data" / "workflows"
    paths = [
        path for path in sorted(folder.rglob("*.*")) if path.suffix in (".json", ".xml", ".dot")
    ]
    assert len(paths) == len(listed) + 1 >= 31
    for path in paths:
        assert is_workflow(path)
        file = read_workflow(path)
        graph = graph_of(file.job)
        assert nx.is_directed_acyclic_graph(graph)
        assert graph.number_of_edges() == len(file.job.edges), path
        row = listed.get(str(path.relative_to(folder)))
        if row is None:
            assert path.name == "daggen_ptg.dot"
            continue
        found = (len(file.job.tasks), len(file.job.edges), levels(graph))
        assert found == tuple(int(row[key]) for key in ("tasks", "edges", "levels")), path
        total = sum(task.work for task in file.job.tasks)
        assert total == pytest.approx(float(row["sum"]), abs=0.51), path


def test_every_task_of_wfinstances_has_its_command(shared: Path) -> None:
    for path in sorted((shared / "data/workflows/wfinstances").glob("*.json")):
        file = read_workflow(path)
        assert set(file.commands) == {task.id for task in file.job.tasks}, path


def test_the_graph_of_the_heft_article(shared_file: Callable[[str], Path]) -> None:
    job = read_workflow(shared_file("data/workflows/dax/HEFT_paper.xml")).job
    names = {f"ID{n:05}": n for n in range(1, 11)}
    assert tuple(task.work for task in sorted(job.tasks, key=lambda t: t.id)) == HEFT_TIMES
    # the file states a unit of the article's communication as 125 bytes
    moved = {(names[e.parent], names[e.child]): e.gb * 1e9 / 125.0 for e in job.edges}
    assert moved == pytest.approx(HEFT_EDGES)
    # the longest path, with and without communication: 1, 2, 9, 10
    graph = graph_of(job)
    for tail, _, data in graph.edges(data=True):
        data["with"] = graph.nodes[tail]["work"] + data["gb"] * 1e9 / 125.0
        data["without"] = graph.nodes[tail]["work"]
    last = graph.nodes["ID00010"]["work"]
    assert nx.dag_longest_path_length(graph, "with") + last == pytest.approx(
        14 + 18 + 13 + 16 + 18 + 13 + 21
    )
    assert nx.dag_longest_path_length(graph, "without") + last == 14 + 13 + 18 + 21


def test_the_floodplain_tasks_are_rigid(shared_file: Callable[[str], Path]) -> None:
    job = read_workflow(shared_file("data/workflows/dax/floodplain.xml")).job
    cores = {task.id: (task.min_procs, task.max_procs) for task in job.tasks}
    sizes = {"sin": 160, "ww3": 256, "sis": 192, "adcirc2": 256, "adcirc": 256, "son": 8, "sos": 10}
    assert cores == {name: (n, n) for name, n in sizes.items()}
    data = {(e.parent, e.child): e.gb for e in job.edges}
    assert data["adcirc", "sin"] == pytest.approx(22.572695552)


def test_daggen(shared_file: Callable[[str], Path]) -> None:
    job = read_workflow(shared_file("data/workflows/daggen/daggen_ptg.dot")).job
    assert len(job.tasks) == 10
    assert [t.work for t in job.tasks[:2]] == [49.659735022, 379.694762866]
    assert [round(t.parallel_fraction, 12) for t in job.tasks[:3]] == [0.81, 0.81, 1.0]
    assert {(e.parent, e.child): e.gb for e in job.edges}["7", "8"] == 0.2097152


def test_a_thousand_tasks_are_read_at_once(shared_file: Callable[[str], Path]) -> None:
    def read_s(tasks: int) -> float:
        path = shared_file(f"data/workflows/dax/Montage_{tasks}.xml")
        began = time.process_time()
        assert len(read_workflow(path).job.tasks) == tasks
        return time.process_time() - began

    # eight times is usual, a hundred what a reader of quadratic cost takes
    assert read_s(1000) < 30.0 * min(read_s(100) for _ in range(5))
