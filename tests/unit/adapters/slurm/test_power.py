"""What is left of a Slurm node: CPULoad, the probe, and relative speeds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.batch.node_load import (
    LEAST_SHARE,
    REMEMBERED_S,
    Load,
    LoadWatch,
    effective_power,
    probe_text,
    read_probe,
)
from coalloc.adapters.probe import main
from coalloc.adapters.slurm.calibration import (
    PROGRAM,
    read_calibration,
    relative,
    write_calibration,
)
from coalloc.adapters.slurm.parsers.records import NodeRecord
from coalloc.adapters.slurm.reading import relative_power
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.values import replace

NODE = NodeRecord(name="n1", cpus=8, cpu_load=4.0)
T0 = 1_000_000.0


def loads(*entries: NodeRecord, step_s: float = 10.0, **given: Any) -> list[Load]:
    """The loads of a node that is read again and again."""
    settings = SlurmSettings(cluster="a", **given)
    watch = LoadWatch(settings.load, settings.load_max_age_s)
    return [
        watch.loads([entry], T0 + step_s * turn)[entry.name] for turn, entry in enumerate(entries)
    ]


def test_load_beyond_what_slurm_allocated_is_foreign() -> None:
    assert loads(NODE)[0].share == 0.5
    assert loads(replace(NODE, cpus_taken=4))[0].share == 0.0
    assert loads(replace(NODE, cpus_taken=2))[0].share == 0.25
    assert loads(replace(NODE, cpu_load=99.0))[0].share == 1.0
    assert loads(replace(NODE, cpu_load=0.1))[0].share == 0.0
    assert loads(replace(NODE, cpu_load=None))[0].share == 0.0


def test_the_load_of_a_job_that_has_gone_is_not_foreign() -> None:
    busy = replace(NODE, cpus_taken=4)
    assert [load.share for load in loads(busy, NODE, NODE)] == [0.0, 0.0, 0.0]
    assert loads(busy, NODE, step_s=REMEMBERED_S + 1.0)[1].share == 0.5


def test_its_age_is_that_of_the_last_change() -> None:
    other = replace(NODE, cpu_load=3.0)
    assert [load.age_s for load in loads(NODE, NODE, NODE, other)] == [0.0, 10.0, 20.0, 0.0]


def test_a_probe_comes_before_cpu_load() -> None:
    probed = replace(NODE, extra=f"rack 7 {probe_text(0.25, T0 - 20.0)}")
    assert loads(probed) == [Load(share=0.25, age_s=20.0)]
    assert loads(probed, load="slurm")[0].share == 0.5
    silent = replace(NODE, extra=probe_text(0.25, T0 - 301.0))
    assert loads(silent)[0].share == 0.5


def test_no_source_no_load() -> None:
    assert LoadWatch("none").loads([NODE], T0) == {}


@pytest.mark.parametrize("text", ["", "coalloc-probe/1", "coalloc-probe/1 load=2 at=x", "{}"])
def test_what_no_probe_wrote(text: str) -> None:
    assert read_probe(text) is None


def test_effective_power_is_never_nothing() -> None:
    assert effective_power(0.8, Load(share=0.5)) == pytest.approx(0.4)
    assert effective_power(1.0, Load(share=1.0)) == LEAST_SHARE


def test_relative_speed_by_node_then_calibration_then_feature() -> None:
    settings = SlurmSettings(
        cluster="a",
        power=0.9,
        power_by_feature={"old": 0.5, "slow": 0.4},
        power_by_node={"n9": 0.3},
    )
    old = replace(NODE, features=("ib", "old", "slow"))
    assert relative_power(settings, NODE, {}) == 0.9
    assert relative_power(settings, old, {}) == 0.4
    assert relative_power(settings, old, {"n1": 0.7}) == 0.7
    assert relative_power(settings, replace(old, name="n9"), {"n9": 0.7}) == 0.3


def test_calibration_is_kept_and_added_to(tmp_path: Path) -> None:
    path = tmp_path / "state" / "calibration.json"
    assert read_calibration(path) == {}
    write_calibration(path, relative({"n1": 50.0, "n2": 100.0}, 100.0), T0)
    write_calibration(path, {"n1": 0.75}, T0)
    assert read_calibration(path) == {"n1": 0.75, "n2": 1.0}
    path.write_text('{"format": "coalloc-calibration/1", "power": {"n1": -1, "n2": "x"}}')
    assert read_calibration(path) == {}
    path.write_text("not JSON")
    assert read_calibration(path) == {}


def test_the_calibration_program_needs_only_python() -> None:
    program = PROGRAM.replace("SECONDS", "0.05")
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )
    name, rate = answer.stdout.split()
    assert name == "coalloc-rate"
    assert float(rate) > 1000.0


def test_a_probe_that_cannot_tell_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coalloc.adapters.probe.SAMPLE_S", 0.01)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main(["--once", "--node", "n1"]) == 1
    assert capsys.readouterr().err.startswith("coalloc-probe: error: scontrol: ")
    with pytest.raises(SystemExit):
        main(["--every", "0"])
