"""``coallocd --init``: what it writes, with which modes, and what it leaves as it is."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from coalloc.adapters.base import Proposal
from coalloc.daemon import initial
from coalloc.daemon.access.key_table import KeyTable, Role
from coalloc.daemon.config_checks import check
from coalloc.daemon.main import main
from coalloc.runtime.config.file import load
from coalloc.runtime.key_files import read_key

FOUND = (
    Proposal(name="big", adapter="slurm", settings={"partitions": ["main"]}, found=("Slurm.",)),
    Proposal(name="small", adapter="local", settings={"nodes": 1, "slots": 2}, found=("Here.",)),
)


@pytest.fixture(autouse=True)
def two_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial, "proposals", lambda: FOUND)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_for_one_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--init", str(tmp_path / "new"), "--mode", "single-user"]) == 0
    config = load(tmp_path / "new" / "coallocd.toml", check=check)
    assert config.daemon.mode == "single-user"
    assert [cluster.name for cluster in config.clusters] == ["big", "small"]
    assert config.clusters[0].settings == {"partitions": ["main"]}
    assert config.daemon.state_dir == str(tmp_path / "new" / "state")
    assert list(tmp_path.rglob("*.json")) == []
    said = capsys.readouterr().out
    assert "coalloc-executor --config" in said
    assert "--cluster small" in said


def test_for_several_users_with_keys(tmp_path: Path) -> None:
    assert main(["--init", str(tmp_path), "--mode", "multi-user"]) == 0
    config = load(tmp_path / "coallocd.toml", check=check)
    state = tmp_path / "state"
    server = read_key(state / "server-key.json").pair.public
    assert config.access.server_key == server
    table = KeyTable(state / "keys.json")
    executor = read_key(state / "executors" / "big" / "key.json")
    grant = table.live(executor.pair.public)
    assert grant is not None
    assert (grant.role, grant.clusters) == (Role.EXECUTOR, ("big",))
    own = table.live(read_key(tmp_path / "key.json").pair.public)
    assert own is not None
    assert own.role is Role.OPERATOR
    assert mode_of(state) == mode_of(state / "executors" / "big") == 0o711
    assert {mode_of(path) for path in tmp_path.rglob("*.json")} == {0o600}


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "coallocd.toml"
    path.write_text("# mine\n")
    assert main(["--init", str(tmp_path), "--mode", "multi-user"]) == 1
    assert "is there already; it was left as it is" in capsys.readouterr().err
    assert path.read_text() == "# mine\n"
    assert list(tmp_path.iterdir()) == [path]


def test_keys_that_are_there_are_used(tmp_path: Path) -> None:
    assert main(["--init", str(tmp_path), "--mode", "multi-user"]) == 0
    keys = {path: path.read_bytes() for path in tmp_path.rglob("*key.json")}
    assert len(keys) == 4
    (tmp_path / "coallocd.toml").unlink()
    assert main(["--init", str(tmp_path), "--mode", "multi-user"]) == 0
    assert {path: path.read_bytes() for path in keys} == keys


def test_a_folder_whose_sockets_would_have_too_long_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / ("x" * 90)
    assert main(["--init", str(folder), "--mode", "multi-user"]) == 1
    assert "the path of a socket holds at most" in capsys.readouterr().err
    assert not folder.exists()


def test_mode_needs_init(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--mode", "single-user"])
    assert "--mode goes with --init" in capsys.readouterr().err


@pytest.mark.parametrize("is_booted", [True, False])
def test_what_to_do_next_is_what_works(
    is_booted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initial, "SYSTEMD", tmp_path if is_booted else tmp_path / "none")
    layout = initial.Layout(
        config=Path("/etc/coalloc/coallocd.toml"),
        key=Path("/root/key.json"),
        owner=pwd.getpwnam("daemon"),
        executors=Path("/var/lib/coalloc-executor"),
    )
    said = "\n".join(initial._report(layout, FOUND, "multi-user", ()))
    assert ("systemctl enable --now coallocd coalloc-executor@big" in said) == is_booted
    by_hand = "setpriv --reuid=daemon --regid=daemon --clear-groups coallocd --config"
    executor = "STATE_DIRECTORY=/var/lib/coalloc-executor coalloc-executor --config"
    assert (by_hand in said) == (executor in said) == (not is_booted)
    assert ("as a user: coalloc keys new; coalloc submit" in said) == (os.geteuid() == 0)
