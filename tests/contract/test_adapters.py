"""What every registered adapter promises; a new row in the registry needs a row here."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.base import Adapter, ClaimRefusedError, Launcher
from coalloc.adapters.registry import ADAPTERS, adapter_kind
from coalloc.model.errors import InputError
from coalloc.model.sites.parts import PartKey, PartReport, PartSpec, PartState
from coalloc.model.values import replace
from tests.support.part_specs import part_spec
from tests.testbeds import gridengine, oar, slurm
from tests.testbeds.gridengine_launches import settings_of as settings_of_cell
from tests.testbeds.gridengine_launches import shared_cell
from tests.testbeds.oar_launches import settings_of as settings_of_oar
from tests.testbeds.oar_launches import shared_oar
from tests.testbeds.slurm_launches import settings_of, shared_bed

LIMIT_S = 60.0

PLATFORM = {"clusters": [{"name": "c", "nodes": [{"name": "n[1-2]", "slots": 2}]}]}


def slurm_settings(_: Path) -> dict[str, Any]:
    """Those of a real cluster, which all tests of one run share."""
    return settings_of(shared_bed()["c"])


def gridengine_settings(_: Path) -> dict[str, Any]:
    """Those of a real cell, which all tests of one run share."""
    return settings_of_cell(shared_cell())


def oar_settings(_: Path) -> dict[str, Any]:
    """Those of a real cluster, which all tests of one run share."""
    return settings_of_oar(shared_oar())


# Settings with which an adapter can be opened anywhere, with at least two slots in the cluster.
SETTINGS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "local": lambda _: {"nodes": ["n[1-2]"], "slots": 2},
    "gridengine": gridengine_settings,
    "oar": oar_settings,
    "slurm": slurm_settings,
    "trace": lambda folder: {"platform": str(written(folder / "platform.json", PLATFORM))},
}


READ_ONLY = {"trace"}


# What is absent for the adapters that need more than Python: nothing, if empty.
MISSING = {"gridengine": gridengine.missing, "oar": oar.missing, "slurm": slurm.missing}


def marked(name: str) -> Any:
    """The adapter's name as a parameter; what needs a batch system is marked by its name."""
    if name not in MISSING:
        return name
    absent = MISSING[name]()
    skip = pytest.mark.skipif(bool(absent), reason=f"{name} is not installed: {absent}")
    return pytest.param(name, marks=[getattr(pytest.mark, name), skip])


launching = pytest.mark.parametrize(
    "name", [marked(name) for name in sorted(set(ADAPTERS) - READ_ONLY)], indirect=True
)


def written(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


@pytest.fixture(params=[marked(name) for name in sorted(ADAPTERS)])
def name(request: pytest.FixtureRequest) -> str:
    assert request.param in SETTINGS, f"{request.param} has no settings to be tested with"
    return str(request.param)


@pytest.fixture
def adapter(name: str, tmp_path: Path) -> Iterator[Adapter]:
    adapter = ADAPTERS[name].open(SETTINGS[name](tmp_path), "c", "clusters.c", tmp_path / "state")
    yield adapter
    if adapter.launcher is not None:
        adapter.launcher.close()


@pytest.fixture
def launcher(adapter: Adapter) -> Launcher:
    assert adapter.launcher is not None
    return adapter.launcher


def until(launcher: Launcher, key: PartKey, is_done: Callable[[PartReport], bool]) -> PartReport:
    end = time.monotonic() + LIMIT_S
    while True:
        report = next(report for report in launcher.poll() if report.key == key)
        if is_done(report):
            return report
        assert time.monotonic() < end, f"not so after {LIMIT_S:g} s: {report}"
        fd = launcher.fileno()
        select.select([] if fd is None else [fd], [], [], 0.2)


def part(adapter: Adapter, cwd: Path, *argv: str, job: str = "1") -> PartSpec:
    node = adapter.reader.read().nodes[0]
    return part_spec(*argv, job=job, nodes=((node.name, 1),), cwd=str(cwd))


def test_unknown_name() -> None:
    with pytest.raises(InputError) as caught:
        adapter_kind("pbs", "clusters.c.adapter")
    assert str(caught.value).startswith("clusters.c.adapter: 'pbs' is not one of local")


def test_registry_loads_no_adapter() -> None:
    code = (
        "import sys, coalloc.adapters.registry\n"
        "loaded = [m for m in sys.modules if m == 'psutil' or m.startswith('coalloc.adapters.')]\n"
        "print(sorted(loaded))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['coalloc.adapters.base', 'coalloc.adapters.registry']"


def test_settings_are_checked_without_touching_anything(name: str, tmp_path: Path) -> None:
    kind = adapter_kind(name)
    settings = SETTINGS[name](tmp_path)
    kind.check(settings, "c", "clusters.c")
    with pytest.raises(InputError, match=r"^clusters\.c\.sigmma: unknown key$"):
        kind.check({**settings, "sigmma": 1}, "c", "clusters.c")
    with pytest.raises(InputError, match=r"^clusters\.c: 3 is not an? (object|table)$"):
        kind.check(3, "c", "clusters.c")
    assert kind.doc


def test_reading(name: str, adapter: Adapter) -> None:
    assert (adapter.launcher is None) is (name in READ_ONLY)
    for _ in range(2):
        reading = adapter.reader.read()
        assert reading.cluster == "c"
        names = [node.name for node in reading.nodes]
        assert names
        assert len(set(names)) == len(names)
        assert all(0.0 < node.power <= 1.0 for node in reading.nodes)
        assert all(0.0 <= node.load <= 1.0 for node in reading.nodes)
        assert all(node.slots >= 1 for node in reading.nodes)
        assert not any(running.ours for running in reading.running)
        assert type(reading).__struct_config__.frozen


@launching
def test_life_of_a_part(adapter: Adapter, launcher: Launcher, tmp_path: Path) -> None:
    spec = part(adapter, tmp_path, "sh", "-c", "exit 3")
    assert launcher.adopt() == ()
    launcher.claim(spec)
    launcher.claim(spec)
    ready = until(launcher, spec.key, lambda r: r.state is not PartState.PREPARING)
    assert ready.state is PartState.READY
    assert launcher.adopt() == (ready,)
    launcher.renew()
    launcher.go(spec.key)
    launcher.go(spec.key)
    ended = until(launcher, spec.key, lambda r: r.is_ended)
    assert ended.state is PartState.FINISHED
    assert ended.exit_code == 3
    assert ended.started is not None
    assert ended.ended is not None
    launcher.abort(spec.key)
    assert launcher.poll() == (ended,)
    launcher.forget(spec.key)
    launcher.forget(spec.key)
    assert launcher.poll() == ()


@launching
def test_aborted_part_never_starts(adapter: Adapter, launcher: Launcher, tmp_path: Path) -> None:
    spec = part(adapter, tmp_path, "touch", "began")
    launcher.claim(spec)
    launcher.abort(spec.key, "no")
    launcher.go(spec.key)
    ended = until(launcher, spec.key, lambda r: r.is_ended)
    assert ended.state is PartState.REFUSED
    assert ended.reason == "aborted"
    assert not (tmp_path / "began").exists()


@launching
def test_aborted_part_that_runs_is_ended(
    adapter: Adapter, launcher: Launcher, tmp_path: Path
) -> None:
    spec = part(adapter, tmp_path, "sleep", "600")
    launcher.claim(spec)
    until(launcher, spec.key, lambda r: r.state is PartState.READY)
    launcher.go(spec.key)
    until(launcher, spec.key, lambda r: r.state is PartState.RUNNING)
    launcher.abort(spec.key, "enough")
    ended = until(launcher, spec.key, lambda r: r.is_ended)
    assert ended.state is PartState.FINISHED
    assert ended.reason == "aborted"
    assert ended.exit_code is not None
    assert ended.exit_code > 128


@launching
def test_limit_of_what_runs_is_changed(
    adapter: Adapter, launcher: Launcher, tmp_path: Path
) -> None:
    spec = part(adapter, tmp_path, "sleep", "600")
    launcher.claim(spec)
    until(launcher, spec.key, lambda r: r.state is not PartState.PREPARING)
    launcher.limit(spec.key, 3600.0)
    launcher.go(spec.key)
    until(launcher, spec.key, lambda r: r.state is PartState.RUNNING)
    launcher.limit(spec.key, 0.2)
    ended = until(launcher, spec.key, lambda r: r.is_ended)
    assert (ended.reason, ended.detail) == ("time_limit", "ran longer than its limit of 0.2 s")
    launcher.forget(spec.key)


@launching
def test_command_that_does_not_exist(adapter: Adapter, launcher: Launcher, tmp_path: Path) -> None:
    spec = part(adapter, tmp_path, "no-such-command-of-ours")
    launcher.claim(spec)
    ended = until(launcher, spec.key, lambda r: r.is_ended)
    assert ended.state is PartState.REFUSED
    assert ended.reason == "not_found"
    assert "no-such-command-of-ours" in ended.detail


@launching
def test_unknown_node(adapter: Adapter, launcher: Launcher, tmp_path: Path) -> None:
    spec = replace(part(adapter, tmp_path, "true"), nodes={"no-such-node": 1})
    with pytest.raises(ClaimRefusedError) as caught:
        launcher.claim(spec)
    assert caught.value.reason == "unknown_node"
    assert launcher.poll() == ()
