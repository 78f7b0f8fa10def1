"""The generated man pages and completions know every command."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from coalloc.cli.main import MODULES

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
    for name in ("man/coalloc.1", "completion/bash/coalloc", "completion/zsh/_coalloc"):
        text = pages[name].replace("\\-", "-")  # as troff writes it
        missing = [command for command in MODULES if command not in text]
        assert not missing, name


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
