"""Commands where the system gives less: no account, no home, nothing writable, no UTF-8."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coalloc.cli import main
from coalloc.runtime.key_files import KeyFileError, user_key_path
from coalloc.runtime.user import user_name
from tests.support.command_line import run
from tests.support.multi_user import STRAY, as_uid

STARTS = """
show 1, why 1, wait 1, cancel 1, hold 1, release 1, update 1 -J x, submit true, sbatch job.sh
queue --me, submit-workflow flow.json, set-priority 1 2, drain c:n, resume c:n
reserve c:n --for 1h, unreserve 1, pause rounds, restore copy, backup copy, calibrate c
solve s.json, check s.json p.json, demo --help, simulate --workload x.swf --platform x.toml
reproduce --list, dashboard --port 0, keys new, keys list, keys new --offline
coallocd --check-config, coallocd --init, coalloc-executor --cluster nowhere
"""
"""How commands begin that need more than their name."""
SCRIPT = """
import contextlib, io, json, sys
import coalloc.client.endpoint as endpoint
from coalloc.cli import main
from coalloc.daemon import main as daemon
from coalloc.executor import main as executor
endpoint.PATIENCE_S = 0.0
begun = {}
for words in json.load(sys.stdin):
    start = {"coallocd": daemon.main, "coalloc-executor": executor.main}.get(words[0])
    out = io.StringIO()
    with contextlib.redirect_stderr(out), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = start(words[1:]) if start else main.main(words)
        except BaseException as error:
            code = repr(error)
    begun[" ".join(words)] = [code, out.getvalue()]
json.dump(begun, sys.stdout)
"""


def as_nobody(folder: Path, **environ: str) -> dict[str, tuple[Any, str]]:
    """Exit code and errors of each program and command, started by a uid that has no account."""
    starts = [line.split() for line in STARTS.strip().replace(", ", "\n").splitlines()]
    starts += [[name] for name in main.MODULES.keys() - {words[0] for words in starts}]
    done = subprocess.run(
        [*as_uid(STRAY), sys.executable, "-c", SCRIPT],
        input=json.dumps(starts),
        env={"PATH": "/usr/bin:/bin", **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if "setpriv" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may be another")
@pytest.mark.parametrize("is_configured", [False, True])
def test_every_command_begins_without_an_account(is_configured: bool, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    environ = {}
    if is_configured:
        config = tmp_path / "c.toml"
        config.write_text(f"[daemon]\nstate_dir = '{tmp_path}/s'\nruntime_dir = '{tmp_path}/r'\n")
        environ = {"COALLOC_CONFIG": str(config)}
    for words, (code, said) in as_nobody(tmp_path, **environ).items():
        assert code in (0, 1, 2), (words, code, said)
        assert said.count("\n") <= 1, (words, said)
        if is_configured:
            assert "has no home" not in said or words.startswith(("keys new", "coallocd --init"))
    assert {path.name for path in tmp_path.iterdir()} <= {"c.toml"}


def test_a_user_without_an_account_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_name(0) == "root"
    assert user_name(STRAY) == str(STRAY)
    monkeypatch.setattr(os, "getuid", lambda: STRAY)
    with pytest.raises(KeyFileError, match=f"user {STRAY} has no home"):
        user_key_path({"HOME": "not/absolute", "XDG_CONFIG_HOME": "nor/this"})


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A name that few terminals can show, of a job that a plan in the working folder forgets."""
    monkeypatch.chdir(tmp_path)
    name = "é日本"
    snapshot = {
        "format": "coalloc-snapshot/1",
        "clusters": [{"name": "a", "nodes": [{"name": "a1"}]}],
        "queue": [{"id": name, "kind": "rigid", "procs": 1, "base_time": 5.0}],
    }
    Path("s.json").write_text(json.dumps(snapshot))
    plan = {
        "format": "coalloc-plan/1",
        "policy": "x",
        "status": "heuristic",
        "placements": [],
        "deferred": [],
        "objective": {"name": "makespan", "value": 0.0},
    }
    Path("p.json").write_text(json.dumps(plan))
    return name


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8", "euc-jp"])
def test_a_name_ends_no_command(
    encoding: str, named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    assert run("check", "s.json", "p.json") == 1
    assert named.encode(encoding, "backslashreplace") in raw.getvalue()
    assert "error" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "shell", "code"),
    [
        ("coalloc.cli.main", " policies >&-", 0),
        ("coalloc.cli.main", " policies >/dev/full", 1),
        ("coalloc.cli.main", " policies >/dev/full 2>&-", 1),
        ("coalloc.programs", " --check-config >/dev/full", 1),
    ],
)
def test_an_output_that_takes_nothing(program: str, shell: str, code: int) -> None:
    call = "main" if program.endswith("main") else "daemon"
    python = f"{sys.executable} -c 'import sys; from {program} import {call}; sys.exit({call}())'"
    done = subprocess.run(python + shell, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.count("\n") == (code and "2>&-" not in shell)
