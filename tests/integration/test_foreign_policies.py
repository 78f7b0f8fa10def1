"""Policies of a package outside the tree: found, listed, solved with, broken."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

import coalloc
from coalloc.daemon import foreign_options
from coalloc.daemon.config_checks import check_policies
from coalloc.daemon.solver.frames import Request
from coalloc.daemon.solver.pool import SolveOutcome, SolverPool
from coalloc.daemon.solver.sent import encode_snapshot
from coalloc.model.errors import InputError
from coalloc.policies import registry
from coalloc.policies.contract import CASES, faults
from coalloc.policies.registry import POLICIES, lookup
from coalloc.runtime.config.file import load
from tests.support.live_site import ROUNDS_ALONE, Running

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "policies"
NAMES = ("narrow-first", "swaps")
WARM_S = 400.0
BROKEN = {
    "no-module": "nowhere:POLICY",
    "no-policy": "json:dumps",
    "easy": "json:loads",
    "misnamed": "example_policies:SWAPS",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example in a folder of its own, as pip installs it, beside some that are broken."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(EXAMPLE / "example_policies.py", folder)
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(folder, project["name"], project["version"], project["entry-points"][registry.GROUP])
    install(folder, "broken", "0.3", BROKEN)
    return folder


def install(folder: Path, name: str, version: str, policies: Mapping[str, str]) -> None:
    """What pip leaves of a package's metadata."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{key} = {value}" for key, value in policies.items()]
    (info / "entry_points.txt").write_text("\n".join((f"[{registry.GROUP}]", *lines, "")))


@pytest.fixture
def found(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(installed))


def cli(installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coalloc.cli.main", *words],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.usefixtures("found")
@pytest.mark.parametrize("name", NAMES)
def test_the_examples_keep_the_contract(name: str) -> None:
    assert lookup(name).package == "example-policies 1.0"
    assert faults(name) == []


@pytest.mark.parametrize("name", ["easy", "oas"])
def test_the_contract_of_ones_own_tests_is_kept_by_ours(name: str) -> None:
    assert faults(name) == []


@pytest.mark.usefixtures("found")
def test_one_call_solves_with_them() -> None:
    snapshot = coalloc.read_snapshot(CASES["a day's clock"])
    plan = coalloc.solve(snapshot, "swaps", work=500, options={"patience": 2})
    assert coalloc.check(snapshot, plan).ok
    assert plan.options["patience"] == 2


@pytest.mark.usefixtures("found")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-module", "policy no-module of broken 0.3: cannot be loaded: ModuleNotFoundError: No "),
        ("no-policy", "json:dumps is function, not a coalloc.policies.base.Policy"),
        ("misnamed", "calls itself 'swaps'"),
    ],
)
def test_one_that_is_broken_says_so_in_one_line(name: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        lookup(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("found")
def test_a_name_of_ours_stays_ours() -> None:
    assert "easy" in registry.found()
    assert lookup("easy") is POLICIES["easy"]


@pytest.mark.usefixtures("found")
@pytest.mark.parametrize("name", ["swaps", "no-module"])
def test_the_daemon_admits_their_names_and_loads_none(name: str, tmp_path: Path) -> None:
    path = tmp_path / "coallocd.toml"
    path.write_text(f'[rounds]\npolicy = "{name}"\n')
    check_policies(load(path, check=check_policies))
    assert "nowhere" not in sys.modules


@pytest.mark.parametrize(
    ("name", "option", "why"),
    [
        ("swaps", "patience = 7", ""),
        ("swaps", "patience = 0", "rounds.options.patience: 0 is "),
        ("swaps", "guess = 1", "rounds.options.guess: unknown option; swaps has "),
        ("no-module", "guess = 1", ""),
    ],
)
def test_the_daemon_checks_their_options_and_loads_none(
    installed: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    option: str,
    why: str,
) -> None:
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setattr(foreign_options, "LIMIT_S", 100.0)  # where much else runs, too
    path = tmp_path / "coallocd.toml"
    path.write_text(f'[rounds]\npolicy = "{name}"\n[rounds.options]\n{option}\n')
    loaded = set(sys.modules)
    if why:
        with pytest.raises(InputError) as caught:
            check_policies(load(path))
        assert str(caught.value).startswith(why)
        assert "\n" not in str(caught.value)
    else:
        check_policies(load(path))
    assert not {"nowhere", "example_policies"} & (set(sys.modules) - loaded)


def test_a_live_round_is_planned_by_one_and_a_reload_refuses_its_wrong_option(
    installed: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed))
    with Running(root, policy="narrow-first", rounds=ROUNDS_ALONE) as site:
        # An empty cache takes a minute to fill; until then another policy plans.
        site.until(lambda: bool(site.lines("solver_warmed")), WARM_S)
        job = site.submit(["true"], 2)
        assert site.wait(job)["state"] == "completed"
        assert site.job(job)["policy"] == "narrow-first"
        assert not site.lines("policy_failed")

        site.config.write_text(site.config.read_text() + "\n[rounds.options]\nguess = 1\n")
        site.processes["coallocd"].send_signal(signal.SIGHUP)
        site.until(lambda: bool(site.lines("reload_failed")))
        (line,) = site.lines("reload_failed")
        assert "rounds.options.guess: unknown option; narrow-first has " in line["why"]


def test_they_are_listed_apart(installed: Path) -> None:
    done = cli(installed, "policies")
    assert done.returncode == 1  # some are broken
    ours, _, others = done.stdout.partition("of other packages:")
    assert "published, to compare with:" in ours
    lines = [line.split()[0] for line in others.strip().splitlines()]
    assert lines == list(NAMES)
    assert "(example-policies 1.0)" in others
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.parametrize("name", NAMES)
def test_solve_takes_them(installed: Path, name: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(CASES["a day's clock"]))
    done = cli(installed, "solve", "--policy", name, str(path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["policy"] == name


def test_simulate_takes_them(installed: Path, tmp_path: Path) -> None:
    log, site = tmp_path / "log.swf", ROOT / "etc/platforms/das2.toml"
    lines = (ROOT / "etc/workloads/sixteen-hours.swf").read_text().splitlines()
    log.write_text("\n".join([line for line in lines if line[0] != ";"][:20]) + "\n")
    files = ("--workload", str(log), "--platform", str(site))
    done = cli(installed, "simulate", "--quiet", "--json", "--policy", "narrow-first", *files)
    assert done.returncode == 0, done.stderr
    assert "narrow-first" in done.stdout


@pytest.mark.parametrize(
    ("name", "answer"), [("swaps", "done"), ("no-module", "ModuleNotFoundError")]
)
def test_the_solvers_process_takes_them(
    installed: Path, name: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed))
    text = encode_snapshot(coalloc.read_snapshot(CASES["a day's clock"]))

    async def solved() -> SolveOutcome:
        pool = SolverPool()
        await pool.start()
        try:
            assert await pool.wait_warm(60.0)
            request = Request(policy=name, options={"patience": 2})
            return await pool.solve(text, request, deadline_s=60.0)
        finally:
            await pool.stop()

    outcome = asyncio.run(solved())
    if answer == "done":
        assert outcome.plan is not None, outcome.message
        assert json.loads(outcome.plan)["options"]["patience"] == 2
    else:
        assert answer in outcome.message
        assert "\n" not in outcome.message
