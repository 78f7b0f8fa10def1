"""``coalloc shadow`` on accounts that real clusters have just written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coalloc.adapters.formats.swf_jobs import Draw
from coalloc.simulation.progress import silent
from coalloc.simulation.shadow.past import missed, replay_past
from coalloc.simulation.shadow.site import read_site
from tests.slurm.shadow_stream import SHAPES, carry_out, export
from tests.testbeds.slurm import bed
from tests.testbeds.slurm_accounting import missing

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can make accounts"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


def test_the_replayed_past_is_near_the_real_one(tmp_path: Path) -> None:
    """Within the gate; recorded streams, of quieter machines, are within 5 %."""
    with bed(*SHAPES, accounting=True) as running:
        carry_out(running, 100, 300.0)
        export(running, tmp_path)
    sites = [read_site(tmp_path / shape.name, Draw(values=(0.05,)), 10.0) for shape in SHAPES]
    _, trace, clusters = replay_past(sites, silent)
    assert missed(trace, clusters) <= 0.10
