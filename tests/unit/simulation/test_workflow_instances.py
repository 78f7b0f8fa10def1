"""Workflows of Table 1's shapes: seeded, and as the text describes them."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.papers.workflow_instances import (
    DAS_3,
    TABLE_1,
    Shape,
    das_3,
    draw_workflow,
    table_1,
)

from coalloc.model.jobs import WorkflowJob
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.graph import graph_of


@pytest.mark.parametrize("name", TABLE_1)
def test_shapes_are_those_of_the_table(name: str) -> None:
    for (tasks, levels), snapshot in zip(TABLE_1[name], table_1(name, 3), strict=True):
        (job,) = snapshot.queue
        assert isinstance(job, WorkflowJob)
        graph = graph_of(Planner(snapshot, {}).items)
        assert (len(job.tasks), int(graph.level.max()) + 1) == (tasks, levels)
        work = np.array([task.work for task in job.tasks])
        path = float(graph.bottom(work).max())
        assert path / levels == pytest.approx(96.0, rel=0.05)
        assert work.max() <= 100.0


def test_a_seed_gives_the_same_workflow() -> None:
    shape = Shape(tasks=40, levels=5)
    assert draw_workflow(shape, 7) == draw_workflow(shape, 7)
    assert draw_workflow(shape, 7) != draw_workflow(shape, 8)


def test_types_are_mixed_as_asked() -> None:
    shape = Shape(tasks=300, levels=3, pf=0.95, mix=(0.3, 0.3, 0.4), edge_gb=2.0)
    job = draw_workflow(shape, 1)
    single = [task for task in job.tasks if task.max_procs == 1]
    rigid = [task for task in job.tasks if task.min_procs == task.max_procs > 1]
    soft = [task for task in job.tasks if task.max_procs > task.min_procs]
    assert len(single) + len(rigid) + len(soft) == 300
    assert min(len(single), len(rigid), len(soft)) > 60
    assert max(task.work for task in single) <= 20.0
    assert all(task.parallel_fraction == 0.0 == task.comm_gb for task in single)
    assert all(0.95 <= task.parallel_fraction <= 1.0 for task in [*rigid, *soft])
    assert 0.0 < max(edge.gb for edge in job.edges) <= 2.0


def test_das_3_has_its_compute_nodes() -> None:
    platform = das_3()
    assert [len(cluster.nodes) for cluster in platform] == [85, 32, 41, 68, 46]
    assert sum(count for _, count, _ in DAS_3) == 272
    assert {cluster.link_gbps for cluster in platform} == {0.8}
    assert max(node.power for cluster in platform for node in cluster.nodes) == 1.0


def test_levels_need_tasks() -> None:
    with pytest.raises(ValueError, match="do not fill"):
        draw_workflow(Shape(tasks=2, levels=3), 1)
