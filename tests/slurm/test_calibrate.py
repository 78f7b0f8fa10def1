"""Speeds and loads measured on real Slurm nodes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from coalloc.adapters.probe import main as probe
from coalloc.adapters.slurm.reader import SlurmReader
from coalloc.adapters.slurm.settings import read_settings
from coalloc.cli.main import main
from tests.testbeds.slurm import SlurmTestbed

CONFIG = """\
[daemon]
state_dir = "{root}/state"
runtime_dir = "{root}/run"
[[clusters]]
name = "alpha"
adapter = "slurm"
settings = {{ conf = "{conf}", load = "none" }}
[[clusters]]
name = "here"
"""


@pytest.fixture
def config(root: Path, clusters: SlurmTestbed) -> Path:
    path = root / "coallocd.toml"
    path.write_text(CONFIG.format(root=root, conf=clusters["a"].conf))
    return path


def test_calibrated_speeds_are_read(
    config: Path, root: Path, clusters: SlurmTestbed, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--config", str(config), "--nodes", "a[1-3]", "--seconds", "0.05"]
    assert main(["calibrate", "alpha", *options]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["CLUSTER", "NODE", "RATE", "POWER"]
    assert [line.split()[:2] for line in lines] == [["alpha", f"a{i}"] for i in (1, 2, 3)]
    folder = root / "state" / "executors" / "alpha"
    kept = json.loads((folder / "calibration.json").read_text())["power"]
    assert max(kept.values()) == 1.0
    settings = read_settings({"load": "none", "power": 0.5}, "alpha")
    reader = SlurmReader(settings, clusters["a"].slurm, state_dir=folder)
    powers = {node.name: node.power for node in reader.read().nodes}
    assert powers == {**kept, "a4": 0.5}


def test_what_cannot_be_calibrated_is_told(
    config: Path, capsys: pytest.CaptureFixture[str], clusters: SlurmTestbed
) -> None:
    given = ["--config", str(config)]
    assert main(["calibrate", "here", *given]) == 2
    assert "there is no Slurm cluster 'here'" in capsys.readouterr().err
    assert main(["calibrate", "alpha", *given, "--nodes", "b1"]) == 1
    assert "alpha: no node that is up was named" in capsys.readouterr().err
    cluster = clusters["a"]
    job = cluster.run(
        *("sbatch", "--parsable", "-w", "a1", "--exclusive", "-t", "5", "-o", "/dev/null"),
        *("--wrap", "sleep 600"),
    ).strip()
    clusters.wait(lambda: "R" in cluster.run("squeue", "-h", "-j", job, "-o", "%t"), "it runs")
    busy = ["--nodes", "a1", "--wait", "1", "--seconds", "0.05"]
    assert main(["calibrate", "alpha", *given, *busy]) == 1
    assert "alpha: a1: srun: " in capsys.readouterr().err
    cluster.run("scancel", job)


def test_a_probe_is_read(clusters: SlurmTestbed, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = clusters["b"]
    monkeypatch.setattr("coalloc.adapters.probe.SAMPLE_S", 0.2)
    assert probe(["--once", "--node", "b2", "--conf", str(cluster.conf)]) == 0
    text = cluster.run("scontrol", "-o", "show", "node", "b2")
    assert "Extra=coalloc-probe/1 load=" in text
    settings = read_settings({}, "beta")
    nodes = {node.name: node for node in SlurmReader(settings, cluster.slurm).read().nodes}
    share = float(text.partition("load=")[2].split()[0])
    assert nodes["b2"].load == pytest.approx(share if share >= 0.03 else 0.0)
    assert nodes["b2"].load_age_s <= 30.0
    # Nine minutes ago is too long: Slurm's CPULoad has to do.
    later = SlurmReader(settings, cluster.slurm, clock=lambda: time.time() + 540.0)
    assert {node.load_age_s for node in later.read().nodes} == {0.0}
