"""Shapes on a real cell: counted complexes, memory by the slot, a host alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.base import ClaimRefusedError
from coalloc.adapters.gridengine.launcher import commands_of
from coalloc.adapters.gridengine.reader import GridEngineReader
from coalloc.model.shape import Shape
from coalloc.model.sites.parts import PartState
from tests.testbeds.gridengine import Cell, GridEngineTestbed
from tests.testbeds.gridengine_launches import GridEngineLaunches

COMPLEXES = {"memory": "h_vmem", "gpu": "gpu", "exclusive": "alone"}


def counted(cell: Cell) -> None:
    """Give the host four GPUs, 8 GiB, and a complex by which it is had alone."""
    said = re.sub(
        r"(?m)^(h_vmem .*YES +)NO( +)0( +)0$", r"\1YES\g<2>0\g<3>0", cell.run("qconf", "-sc")
    )
    said += "gpu gpu INT <= YES YES 0 0\nalone alone BOOL EXCL YES YES 0 0\n"
    path = cell.root / "complexes"
    path.write_text(said)
    cell.run("qconf", "-Mc", str(path))
    values = "gpu=4,h_vmem=8G,alone=TRUE"
    cell.run("qconf", "-aattr", "exechost", "complex_values", values, "localhost")


def test_shapes_take_what_they_ask_for(cells: GridEngineTestbed, root: Path) -> None:
    cell = cells["p"]
    counted(cell)
    launch = GridEngineLaunches(root, cell, complexes=COMPLEXES)

    def local() -> Any:
        reader = GridEngineReader(launch.site, commands_of(launch.site))
        reading = reader.read()
        return reading.nodes[0], {each.id.partition(":")[2]: each for each in reading.running}

    node, _ = local()
    assert (node.memory_mb, node.resources) == (8192, {"gpu": 4})
    try:
        shape = Shape(cpus_per_proc=1, per_proc={"gpu": 1})
        spec = launch.shell("true", nodes=(("localhost", 2),), shape=shape, memory_mb_per_proc=3072)
        assert launch.claim(spec).state is PartState.READY
        (job,) = launch.cell.status().jobs()
        assert (job.slots, job.requests["gpu"], job.requests["h_vmem"]) == (2, "1", "3145728K")
        number = cell.submit("-l", "gpu=1,h_vmem=1G")
        cells.wait(lambda: number in local()[1], "the local job runs")
        node, running = local()
        assert (node.memory_mb, node.resources["gpu"]) == (8192, 4), "what is taken is of it, too"
        assert dict(running[number].memory_mb) == {"localhost": 1024}
        assert dict(running[number].resources) == {"localhost": {"gpu": 1}}
        for more in ({"per_node": {"gpu": 2}}, {"memory_mb_per_node": 2048}, {"exclusive": True}):
            refused = launch.claim(launch.shell("true", job=str(more), shape=Shape(**more)))
            assert (refused.state, refused.reason) == (PartState.REFUSED, "nodes_taken"), more
        launch.launcher.go(spec.key)
        assert launch.ended(spec.key).codes == (0, 0)
        cell.delete_all()
        cells.wait(cell.is_idle, "the local job is gone")
        alone = launch.shell("true", job="a", shape=Shape(cpus_per_proc=1, exclusive=True))
        assert launch.claim(alone).state is PartState.READY
        with pytest.raises(ClaimRefusedError, match="gpu=1 \\(2 slots of localhost\\) cannot be"):
            launch.launcher.claim(
                launch.shell("true", job="b", shape=Shape(cpus_per_proc=2, per_node={"gpu": 1}))
            )
    finally:
        launch.close()
