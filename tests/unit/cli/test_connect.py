"""``coalloc connect``: what is written, said and refused; the login node is a fake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.ssh.master import OPEN, REFUSED, MasterState
from coalloc.adapters.ssh.shell import CommandOutput
from coalloc.cli.connect import command, connections
from coalloc.cli.main import main
from coalloc.model.values import replace
from coalloc.runtime.config.file import load
from coalloc.wire.answers import NodesAnswer
from coalloc.wire.node_rows import ClusterRow, NodeRow

SLURM = (
    "Welcome to alpha!\nslurm slurm-wlm 23.11\npart main|12|1-00:00:00\naccount ab12\nclock 1.5\n"
)
NODE = "home yes\npython 3.10.2\nlogin 10.1.0.4\n"


class FakeLogin:
    """Master, shell and relay of one login node, which says what it is told to."""

    def __init__(self, *login: str) -> None:
        self.login = login

    known = MasterState(OPEN, 1000.0)
    said = (SLURM, NODE)

    def open(self, *, terminal: bool) -> MasterState:
        assert terminal, "who types this is there to be asked for a second factor"
        return self.known

    def state(self) -> MasterState:
        return self.known

    def run(self, script: str, limit_s: float) -> CommandOutput:
        return CommandOutput(0, self.said["srun" in script] if script != ":" else "", "")

    def relay(self, folder: str) -> tuple[str, int]:
        return "10.1.0.4", 4000

    def close(self) -> None: ...

    def end(self) -> None: ...


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home, with no daemon; processes are listed in `started` rather than started."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")  # paths of sockets have to be short
    monkeypatch.delenv("COALLOC_CONFIG", raising=False)
    monkeypatch.setattr("coalloc.runtime.config.file.SYSTEM_PATH", tmp_path / "none.toml")
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(command, "SshMaster", FakeLogin)
    monkeypatch.setattr(connections, "SshMaster", FakeLogin)
    monkeypatch.setattr("coalloc.adapters.ssh.shell.Shell.of", FakeLogin)
    monkeypatch.setattr(connections, "started", lambda what, *words: f"started {what}")
    nodes = (NodeRow(name="n", state="up", slots=8, free=8, power=1.0, raw_power=1.0, load=0.0),)
    row = ClusterRow(cluster="", stale=False, connected=True, drained=False, nodes=nodes)

    def ready(client: object, args: Any) -> NodesAnswer:
        rows = tuple(replace(row, cluster=name) for name in args.clusters)
        return NodesAnswer(clusters=rows, reservations=(), time=0.0)

    monkeypatch.setattr(command, "ready", ready)
    return tmp_path / "XDG_CONFIG_HOME/coalloc"


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Output of a command, or what it is refused with."""
    main(list(words))
    return "".join(capsys.readouterr())


def test_a_connection_is_looked_at_kept_taken_up_again_and_given_up(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ran(capsys, "connect", "ada@login2.alpha.example", "--ssh-option", "Port=2222")
    assert "alpha: logged in (key), one connection; slurm-wlm 23.11, account ab12" in said
    assert "12 nodes: Python 3.10.2; shared home: yes; reach the login node: yes (10.1.0.4" in said
    assert "main: at most 1-00:00:00 a job" in said
    assert "coallocd: started coallocd\nalpha: executor started executor-alpha; 8 slots" in said
    ran(capsys, "connect", "ada@beta", "--name", "b")
    text = (home / "connections.toml").read_text()
    ran(capsys, "connect", "alpha")
    ran(capsys, "connect", "ada@beta")
    found = load(home / "connections.toml").clusters
    assert sorted(site.name for site in found) == ["alpha", "b"], text
    (alpha,) = (site for site in found if site.name == "alpha")
    assert "Port 2222" in Path(alpha.settings["ssh_config"]).read_text()
    said = " ".join(ran(capsys, "doctor").split())
    assert "PROBLEM connection alpha its executor does not run: coalloc connect alpha" in said
    assert "alpha: disconnected" in ran(capsys, "disconnect", "alpha")
    assert "no connection 'alpha'; there are: b" in ran(capsys, "disconnect", "alpha")
    ran(capsys, "disconnect", "b")
    assert connections.connections(home / "connections.toml") == []


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ((SLURM, "srun: immediate"), "nodes: not looked at, none was free within 20 s"),
        (
            (SLURM, "home no\npython 3.5.3\nlogin 10.1.0.4\n"),
            "nodes have no Python 3.6 or later; nodes do not share the login node's home: no job",
        ),
        (
            (SLURM, "home no\npython 3.12.1\n"),
            "nodes do not reach the login node (10.1.0.4:4000); nodes do not reach this machine",
        ),
        (
            (SLURM, "home yes\npython none\n"),
            "reach nobody that is asked: told and read by files in that home; route files",
        ),
        (("slurm sh: sinfo: not found\n", ""), "no Slurm answers there: sh: sinfo: not found"),
    ],
)
def test_what_is_not_there_is_said(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    said: tuple[str, str],
    line: str,
) -> None:
    monkeypatch.setattr(FakeLogin, "said", said)
    assert line in ran(capsys, "connect", "ada@alpha")


def test_what_is_refused_leaves_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "'../x' is no name" in ran(capsys, "connect", "ada@alpha", "--name", "../x")
    monkeypatch.setattr(FakeLogin, "known", MasterState(REFUSED, why="Permission denied"))
    assert "alpha: ada@alpha: refused: Permission denied" in ran(capsys, "connect", "ada@alpha")
    assert not (home / "connections.toml").exists()
    (home.parents[1] / "none.toml").write_text('[daemon]\nmode = "multi-user"\n')
    assert "'coalloc keys new' makes one" in ran(capsys, "connect", "ada@alpha")
    (home / "coallocd.toml").parent.mkdir(parents=True, exist_ok=True)
    (home / "coallocd.toml").write_text("")
    assert "of a daemon of your own" in ran(capsys, "connect", "ada@alpha")
