"""What ``coalloc doctor`` makes of what it sees, and the files it looks at."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from coalloc.cli.doctor import files as doctor_files
from coalloc.cli.doctor.files import (
    COMMANDS,
    commands_finding,
    disk_finding,
    file_findings,
    kernels_finding,
    key_finding,
)
from coalloc.cli.doctor.findings import Finding, Level
from coalloc.cli.doctor.live import (
    clock_finding,
    cluster_finding,
    daemon_findings,
    health_findings,
    version_finding,
)
from coalloc.client.client import Client
from coalloc.model.settings import ClusterConfig, Config
from coalloc.model.values import replace
from coalloc.runtime.config.file import parse
from coalloc.runtime.key_files import KeyFile, write_key
from coalloc.wire.answers import ServiceStatus, SolverStatus
from coalloc.wire.curve import new_pair
from coalloc.wire.node_rows import ClusterRow, NodeRow
from tests.support.command_line import run

GIB = 1 << 30
STATUS = ServiceStatus(
    time=0.0, user="ada", epoch=1, rounds=3, paused=False, waiting=0, placed=0, policy="easy"
)
NODE = NodeRow(name="a1", state="up", slots=4, free=4, power=1.0, raw_power=1.0, load=0.0)
ROW = ClusterRow(cluster="a", stale=False, connected=True, drained=False, nodes=(NODE,), age_s=2.0)


def configured(root: Path, mode: str = "single-user") -> Config:
    text = (
        f'[daemon]\nmode = "{mode}"\nstate_dir = "{root}/state"\nruntime_dir = "{root}/run"\n'
        f'[solver]\ncache_dir = "{root}/cache"\n'
    )
    return parse(text, "c.toml")


def about(found: list[Finding], what: str) -> Finding:
    return next(finding for finding in found if finding.about == what)


@pytest.mark.parametrize(
    ("mode", "bits", "level", "said"),
    [
        ("single-user", 0o700, Level.OK, "mode 0700"),
        ("single-user", 0o755, Level.WARNING, "others may look in: chmod 700"),
        ("single-user", 0o770, Level.PROBLEM, "others may write: chmod 700"),
        ("single-user", 0o500, Level.PROBLEM, "its owner cannot write"),
        ("multi-user", 0o711, Level.OK, "mode 0711"),
        ("multi-user", 0o755, Level.WARNING, "others may look in: chmod 711"),
        ("multi-user", 0o700, Level.OK, "mode 0700"),
    ],
)
def test_the_state_folder(tmp_path: Path, mode: str, bits: int, level: Level, said: str) -> None:
    config = configured(tmp_path, mode)
    Path(config.daemon.state_dir).mkdir()
    Path(config.daemon.state_dir).chmod(bits)
    found = about(list(file_findings(config, None)), "state folder")
    assert found.level is level
    assert said in found.line


def test_users_must_pass_where_jobs_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(tmp_path, "multi-user")
    state, executors = Path(config.daemon.state_dir), tmp_path / "coalloc-executor"
    monkeypatch.setattr(doctor_files, "EXECUTORS", executors)
    (state / "executors").mkdir(parents=True)
    executors.mkdir()
    for folder, what in ((state, "state folder"), (executors, "executors' state folder")):
        for bits, level in ((0o700, Level.PROBLEM), (0o711, Level.OK), (0o755, Level.WARNING)):
            folder.chmod(bits)
            found = about(list(file_findings(config, None)), what)
            assert found.level is level
            assert (f"cannot pass to their jobs: chmod 711 {folder}" in found.line) is (
                bits == 0o700
            )


def test_folders_that_are_not_there_yet_are_no_problem(tmp_path: Path) -> None:
    found = list(file_findings(configured(tmp_path), None))
    assert not [finding for finding in found if finding.level is Level.PROBLEM]
    assert about(found, "state folder").level is Level.UNKNOWN


def test_the_file_and_the_socket_folder_are_written_by_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.touch()
    path.chmod(0o666)
    config = configured(tmp_path, "multi-user")
    folder = Path(config.daemon.runtime_dir)
    folder.mkdir()
    folder.chmod(0o777)
    found = list(file_findings(config, path))
    assert about(found, "configuration file").todo == f"chmod o-w {path}"
    assert "others may put sockets there" in about(found, "socket folder").text
    folder.chmod(0o700)
    assert about(list(file_findings(config, path)), "socket folder").todo.startswith("chmod 755")


def test_keys(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    assert key_finding("k", path, "make it").line == f"{path} is not there: make it"
    write_key(path, KeyFile(pair=new_pair()))
    assert key_finding("k", path, "").level is Level.OK
    path.chmod(0o640)
    assert f"chmod 600 {path}" in key_finding("k", path, "").todo
    path.chmod(0o600)
    path.write_text("{}")
    assert "is not a key file" in key_finding("k", path, "").text


def test_a_user_without_a_key_is_told_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COALLOC_KEY", str(tmp_path / "none.json"))
    found = about(list(file_findings(configured(tmp_path, "multi-user"), None)), "your key")
    assert (found.level, found.todo) == (Level.PROBLEM, "coalloc keys new")


@pytest.mark.parametrize("uid", [0, 1000])
def test_root_is_told_that_its_jobs_are_refused(
    uid: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    found = list(file_findings(configured(tmp_path, "multi-user"), None))
    assert [each.level for each in found if each.about == "your jobs"] == [Level.WARNING] * (
        not uid
    )


def answering(row: ClusterRow) -> Client:
    said = {"status": lambda: STATUS, "nodes": lambda: (row,), "endpoint": "ipc:///x"}
    return cast("Client", SimpleNamespace(**said))


def test_a_named_reader_that_is_not_there() -> None:
    found = list(daemon_findings(answering(ROW), sees_disk=True, readers=(ROW.cluster, "a@eve")))
    told = about(found, "readings.readers")
    assert (told.level, told.text) == (Level.PROBLEM, "there is no cluster a@eve")
    by_ann = daemon_findings(answering(replace(ROW, read_by="a@ann")), sees_disk=True)
    assert " ago by a@ann" in about(list(by_ann), f"cluster {ROW.cluster}").text


def test_one_machine_has_one_clock() -> None:
    client = answering(replace(ROW, clock_ahead_s=-1.6))
    for one_machine in (False, True):
        clocks = [
            each.level
            for each in daemon_findings(client, sees_disk=True, one_machine=one_machine)
            if each.about == "clock of a"
        ]
        assert clocks == [Level.OK if one_machine else Level.WARNING]


@pytest.mark.parametrize(
    ("free", "inodes", "level"),
    [
        (2 * GIB, None, Level.OK),
        (GIB // 2, 10_000, Level.WARNING),
        (GIB // 20, None, Level.PROBLEM),
        (2 * GIB, 10, Level.PROBLEM),
    ],
)
def test_disks(free: int, inodes: int | None, level: Level) -> None:
    found = disk_finding("disk", "/x", free, inodes)
    assert found.level is level
    assert inodes == 10 or ("GiB" in found.text) == (free > GIB)


def test_compiled_code(tmp_path: Path) -> None:
    config = configured(tmp_path)
    assert "coallocd --warm" in kernels_finding(config).todo
    kernel = tmp_path / "cache" / "x" / "decode.nbi"
    kernel.parent.mkdir(parents=True)
    kernel.touch()
    assert kernels_finding(config).level is Level.OK


def test_commands_of_batch_systems(tmp_path: Path) -> None:
    cluster = ClusterConfig(name="a", adapter="slurm", settings={"bin": str(tmp_path)})
    for name in COMMANDS["slurm"][1:]:
        (tmp_path / name).touch(mode=0o755)
    found = commands_finding(cluster)
    assert found is not None
    assert found.text == f"scontrol not found in {tmp_path}"
    (tmp_path / "scontrol").touch(mode=0o755)
    found = commands_finding(cluster)
    assert found is not None
    assert found.level is Level.OK
    assert commands_finding(ClusterConfig(name="a")) is None


@pytest.mark.parametrize(
    ("ahead_s", "level"), [(0.4, Level.OK), (-2.0, Level.WARNING), (45.0, Level.PROBLEM)]
)
def test_clocks(ahead_s: float, level: Level) -> None:
    found = clock_finding("clock", ahead_s, "the daemon's")
    assert found.level is level
    assert ("NTP" in found.todo) == (level is not Level.OK)


def test_versions() -> None:
    assert version_finding("daemon", "0.1.0", "0.1.0").level is Level.OK
    assert version_finding("daemon", "", "0.1.0").text == "too old to say, and not 0.1.0"


@pytest.mark.parametrize(
    ("row", "level", "said"),
    [
        (ROW, Level.OK, "nodes: 1, slots: 4"),
        (
            replace(ROW, connected=False, error="executor stopped"),
            Level.PROBLEM,
            "executor stopped: start it, or read its log: coalloc-executor --cluster a",
        ),
        (replace(ROW, stale=True, age_s=90.0), Level.PROBLEM, "last read 1:30 ago"),
        (replace(ROW, stale=True, age_s=None, error="no answer"), Level.PROBLEM, "never read: no"),
        (replace(ROW, drained=True, drain_reason="heat"), Level.WARNING, "drained: heat"),
        (replace(ROW, nodes=()), Level.WARNING, "none of its 0 nodes is up"),
        (replace(ROW, error="late"), Level.WARNING, "late"),
    ],
)
def test_clusters(row: ClusterRow, level: Level, said: str) -> None:
    found = cluster_finding(row, STATUS)
    assert found.level is level
    assert said in found.line


def test_orders_that_wait() -> None:
    found = cluster_finding(ROW, replace(STATUS, orders_waiting={"a": 7}))
    assert found.text == "7 orders not carried out yet"


def test_the_health_of_a_daemon() -> None:
    ill = replace(
        STATUS,
        writable=False,
        paused=True,
        solver=SolverStatus(is_warm=False, done=2, steps=11),
        disk_free_bytes=5 << 20,
    )
    found = list(health_findings(ill, sees_disk=False))
    assert [(each.about, each.level) for each in found] == [
        ("store", Level.PROBLEM),
        ("disk of the store", Level.PROBLEM),
        ("solver", Level.WARNING),
        ("rounds", Level.WARNING),
    ]
    assert "2 of 11 steps" in found[2].text
    levels = {each.level for each in health_findings(STATUS, sees_disk=True)}
    assert levels == {Level.OK}


def test_the_command_without_a_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[daemon]\nfrob = 1\n")
    assert run("doctor", "--config", str(path)) == 1
    out = capsys.readouterr().out
    assert f"PROBLEM  configuration  {path}: daemon.frob: unknown key" in out
    assert "problems: 1, warnings: 0" in out
    path.write_text(f'[daemon]\nstate_dir = "{tmp_path}/s"\nruntime_dir = "{tmp_path}/r"\n')
    assert run("doctor", "--config", str(path), "--json", "--timeout", "0.05") == 1
    found = {each["about"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["daemon"]["level"] == "problem"
    assert found["daemon"]["text"].startswith("no daemon listens")
    assert "?" not in found["daemon"]["text"], "what to do is said once"
    assert "start coallocd" in found["daemon"]["todo"]


def test_a_folder_on_the_network_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coalloc.daemon.store import beside
    from coalloc.daemon.store.disk import Mount

    config = configured(tmp_path)
    Path(config.daemon.state_dir).mkdir(mode=0o700)
    monkeypatch.setattr(beside, "mount_of", lambda path: Mount(point="/x", type="nfs4"))
    found = doctor_files.state_finding(config)
    assert "lies on nfs4" in found.text
