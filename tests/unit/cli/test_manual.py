"""The generated man pages and completions know every command."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from coalloc.cli.main import MODULES
from coalloc.model.settings import Config

MANUAL = Path(__file__).parents[3] / "docs" / "manual.py"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("manual", MANUAL)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written: dict[str, str] = module.pages()
    return written


def test_the_man_page_and_the_completions_name_every_command(pages: dict[str, str]) -> None:
    for name in (
        *("man/coalloc.1", "completion/bash/coalloc"),
        *("completion/zsh/_coalloc", "completion/fish/coalloc.fish"),
    ):
        text = pages[name].replace("\\-", "-")  # as troff writes it
        missing = [command for command in MODULES if command not in text]
        assert not missing, name


def test_the_page_of_the_configuration_has_every_key(pages: dict[str, str]) -> None:
    page = pages["man/coallocd.toml.5"]
    for section in Config.__struct_fields__:
        struct = getattr(Config(), section)
        assert f"[{section}]" in page or f"[{section}." in page
        keys = getattr(struct, "__struct_fields__", ())
        missing = [key for key in keys if f"\\fB{key}\\fR" not in page and f"{key}]" not in page]
        assert not missing, section


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_man_has_nothing_to_say_against_the_pages(pages: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "coallocd.toml.5"
    page.write_text(pages["man/coallocd.toml.5"])
    done = subprocess.run(
        ["man", "--warnings", "-l", str(page)],
        capture_output=True,
        text=True,
        env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
        check=True,
    )
    assert not done.stderr
    assert "metrics_address = " in done.stdout


COMPLETED = """\
source {file}
coalloc() {{ [ "$1" = {command} ] && printf {printed}; }}
COMP_WORDS=({words}) COMP_CWORD={last} COMP_TYPE=9
_shtab_coalloc coalloc "{partial}" "{before}"
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "command", "printed", "completed"),
    [
        ("coalloc show 1", "queue", r"'7\n12\n13\n'", "12 13"),
        ("coalloc cancel 1", "queue", r"'7\n12\n13\n'", "12 13"),
        (
            "coalloc drain a",
            "nodes",
            r"'CLUSTER STATE\nalpha up\nbeta up\n\nCLUSTER SLOTS\nax 1\n'",
            "alpha",
        ),
        ("coalloc solve --policy ea", "policies", r"'for a site:\n  easy x\n  auto y\n'", "easy"),
    ],
    ids=["a job", "jobs", "a cluster", "a policy"],
)
def test_bash_completes_values(
    pages: dict[str, str], tmp_path: Path, words: str, command: str, printed: str, completed: str
) -> None:
    file = tmp_path / "coalloc"
    file.write_text(pages["completion/bash/coalloc"])
    typed = words.split()
    text = COMPLETED.format(
        file=file,
        command=command,
        printed=printed,
        words=words,
        last=len(typed) - 1,
        partial=typed[-1],
        before=typed[-2],
    )
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout.split() == completed.split(), done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_completions(pages: dict[str, str], shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    for name, text in pages.items():
        if name.startswith(f"completion/{shell}/"):
            done = subprocess.run(
                [shell, "-n"], input=text, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr


def test_each_daemon_has_a_page_with_its_options(pages: dict[str, str]) -> None:
    assert "check\\-config" in pages["man/coallocd.8"]
    assert "cluster" in pages["man/coalloc-executor.8"]


def test_bash_reads_its_completions(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        if name.startswith("completion/bash/"):
            done = subprocess.run(
                ["bash", "-n"], input=text, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
