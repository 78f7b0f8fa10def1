"""Graphs of workflows, against networkx and the ranks of the HEFT article."""

import re
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from coalloc.policies.kernel.instance.graph import Graph, make_graph

Floats = NDArray[np.float64]
Parents = list[list[tuple[int, float]]]


@st.composite
def dags(draw: st.DrawFn) -> Parents:
    """Parents of up to twelve vertices, numbered against the edges as often as along them."""
    size = draw(st.integers(1, 12))
    place = draw(st.permutations(range(size)))
    parents: Parents = [[] for _ in range(size)]
    for b in range(size):
        for a in draw(st.lists(st.integers(0, size - 1), unique=True, max_size=3)):
            if a < b:
                parents[place[b]].append((place[a], float(a)))
    return parents


def as_networkx(parents: Parents, weight: list[float]) -> nx.DiGraph:
    """The same graph; an edge weighs its delay, and the vertex that it comes from."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(parents)))
    for v, mine in enumerate(parents):
        for u, gbit in mine:
            graph.add_edge(u, v, weight=weight[u] + gbit)
    return graph


def longest_from(graph: nx.DiGraph, v: int, weight: list[float]) -> float:
    """Longest path from a vertex, its last vertex included; weights are not negative."""
    below = graph.subgraph(nx.descendants(graph, v) | {v}).copy()
    for u in list(below):
        below.add_edge(u, "end", weight=weight[u])
    return float(nx.dag_longest_path_length(below, "weight"))


@given(parents=dags(), data=st.data())
def test_paths_are_those_of_networkx(parents: Parents, data: st.DataObject) -> None:
    size = len(parents)
    weight = data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=size, max_size=size))
    graph = make_graph(parents)
    other = as_networkx(parents, weight)
    place = {v: n for n, v in enumerate(graph.order.tolist())}
    assert sorted(place) == list(range(size))
    assert all(place[u] < place[v] for u, v in other.edges)
    for level, vertices in enumerate(nx.topological_generations(other)):
        assert graph.level[vertices].tolist() == [level] * len(vertices)
    bottom = graph.bottom(np.array(weight), graph.child_gbit)
    assert bottom.tolist() == [longest_from(other, v, weight) for v in range(size)]
    flat = as_networkx([[(u, 0.0) for u, _ in mine] for mine in parents], weight)
    above = flat.reverse()
    for u, v in above.edges:
        above.edges[u, v]["weight"] = weight[u]
    top = graph.top(np.array(weight))
    assert top.tolist() == [longest_from(above, v, weight) - weight[v] for v in range(size)]


@given(parents=dags(), data=st.data())
def test_ancestors_are_those_of_networkx(parents: Parents, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(parents) - 1), unique=True))
    other = as_networkx(parents, [0.0] * len(parents))
    marked = make_graph(parents).with_ancestors(np.array(chosen, dtype=np.int64))
    expected = set(chosen).union(*(nx.ancestors(other, v) for v in chosen))
    assert set(np.flatnonzero(marked).tolist()) == expected


def test_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="waits for itself"):
        make_graph([[(1, 0.0)], [(0, 0.0)]])


def test_equal_priorities_keep_parents_first() -> None:
    graph = make_graph([[(1, 0.0)], [(2, 0.0)], []])
    assert graph.by_priority(np.zeros(3)).tolist() == [2, 1, 0]


def read_heft_graph(path: Path) -> tuple[Graph, Floats]:
    """The graph of the HEFT article's figure: run times on its first processor, data in units."""
    blocks = re.findall(
        r'<job id="ID0*(\d+)".*?runtime="(\d+)">(.*?)</job>', path.read_text(), re.S
    )
    parents: Parents = [[] for _ in blocks]
    for number, _, uses in blocks:
        found = re.findall(r'file="heft_file_(\d+)_(\d+)" link="input".*?size="(\d+)"', uses)
        for a, b, size in found:
            assert b == number
            parents[int(b) - 1].append((int(a) - 1, int(size) / 125.0))
    return make_graph(parents), np.array([float(run) for _, run, _ in blocks])


MEAN_COSTS = [13.0, 50 / 3, 43 / 3, 38 / 3, 35 / 3, 38 / 3, 11.0, 10.0, 50 / 3, 44 / 3]
"""Of the article's Fig. 2, over its three processors."""


def test_ranks_of_the_heft_article(shared_file: Callable[[str], Path]) -> None:
    """Upward ranks by the costs of its first processor, by hand, and by the means, as published.

    The file has 20 where the article's figure has 23, on the edge from its third task to its
    seventh; with 23 the third task's ranks are 79, and 80 as published.
    """
    graph, weight = read_heft_graph(shared_file("data/workflows/dax/HEFT_paper.xml"))
    assert graph.child.size == 15
    assert graph.level.max() == 3
    ranks = graph.bottom(weight, graph.child_gbit).tolist()
    assert ranks == [113.0, 81.0, 76.0, 88.0, 77.0, 65.0, 45.0, 37.0, 52.0, 21.0]
    edge = int(graph.child_first[2])
    assert (graph.child[edge], graph.child_gbit[edge]) == (6, 20.0)
    delay = graph.child_gbit.copy()
    delay[edge] = 23.0
    assert graph.bottom(weight, delay)[2] == 79.0
    published = [108.0, 77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667]
    mean = graph.bottom(np.array(MEAN_COSTS), delay)
    assert mean.tolist() == pytest.approx(published, abs=1e-3)
