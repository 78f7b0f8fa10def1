"""Warnings of ``coalloc submit``: words that it does not read, and what this machine lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.submit.test_command import FakeClient, client, sent

__all__ = ["client"]


def test_lines_for_sbatch_are_named_in_one_warning(
    client: FakeClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/sh\n#SBATCH -n 4\n#SBATCH --nice=5\n#SBATCH --time=10 # short\n"
        "#COALLOC -n 2\ntrue\n#SBATCH -J late\n"
    )
    assert sent(client, str(script))["job"]["procs"] == 2
    assert capsys.readouterr().err == (
        "coalloc: warning: job.sh: #SBATCH is not read, in lines 2 (-n 4), 3 (--nice=5), "
        "4 (--time=10 # short); write #COALLOC for it, or use coalloc sbatch, which reads it "
        "and starts the script once\n"
    )


def test_what_is_not_on_this_machine_is_told(
    client: FakeClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent(client, "-o", f"{tmp_path}/none/%j.out", "--", "no-such-command-here")
    first, second = capsys.readouterr().err.splitlines()
    assert "there is no command no-such-command-here on this machine" in first
    assert f"--output: there is no folder {tmp_path}/none on this machine" in second
    sent(client, "-o", f"{tmp_path}/%j/%r.out", "--", "true")
    sent(client, "-D", str(tmp_path), "-o", "out", "--", "true")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("#!/opt/none/python\nprint(1)\n", "/opt/none/python"),
        ("#!/usr/bin/env -S none3 -u\nprint(1)\n", "none3"),
        ("#!/bin/sh\n#COALLOC -n 2\n\nnone-such --depth=3 in.txt\n", "none-such"),
        ("#!/bin/bash\nOMP_NUM_THREADS=4 exec ./none\n", "./none"),
    ],
)
def test_what_a_script_needs_and_is_not_on_this_machine_is_told(
    client: FakeClient, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, missing: str
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(text)
    sent(client, str(script))
    assert f"there is no command {missing} on this machine" in capsys.readouterr().err


@pytest.mark.parametrize(
    "lines",
    [
        "cd /tmp",
        "exit 3",
        "none-such || true",
        "greet() { echo hello; }\ngreet",
        "cat <<END\nnone-such\nEND",
        "true",
    ],
)
def test_what_a_shell_may_do_without_is_not_missed(
    client: FakeClient, capsys: pytest.CaptureFixture[str], lines: str
) -> None:
    sent(client, "--wrap", lines)
    assert capsys.readouterr().err == ""
