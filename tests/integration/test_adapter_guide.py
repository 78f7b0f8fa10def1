"""The adapter in docs/adapters.md works: taken from the page, it keeps the contract."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import coalloc.adapters
from coalloc.adapters.base import Adapter, AdapterError, ClaimRefusedError, Launcher
from coalloc.model.errors import InputError
from coalloc.model.sites.parts import PartState
from coalloc.model.values import replace
from tests.contract import test_adapters as contract

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"
BLOCK = re.compile(r"^```python title=(\w+\.py)\n(.*?)^```$", re.M | re.S)
SSH = """\
#!/bin/sh
# Stands in for ssh: two machines, which are this one.
case $1 in n1|n2) ;; *) echo "ssh: Could not resolve hostname $1" >&2; exit 255 ;; esac
shift
exec "$@"
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page's modules, found where the package's own are."""
    folder = tmp_path_factory.mktemp("adapters")
    files = dict(BLOCK.findall(PAGE.read_text()))
    assert set(files) == {"desk.py", "desk_part.py"}
    for name, text in files.items():
        (folder / name).write_text(text)
    coalloc.adapters.__path__.append(str(folder))
    try:
        yield importlib.import_module("coalloc.adapters.desk")
    finally:
        coalloc.adapters.__path__.remove(str(folder))
        sys.modules.pop("coalloc.adapters.desk", None)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "bin" / "ssh"
    path.parent.mkdir()
    path.write_text(SSH)
    path.chmod(0o755)
    return {"nodes": "n[1-2]", "slots": 2, "address": "127.0.0.1", "bin": str(path.parent)}


@pytest.fixture
def adapter(desk: Any, settings: dict[str, Any], tmp_path: Path) -> Iterator[Adapter]:
    opened: Adapter = desk.open_desk(desk.read_settings(settings, "c"), tmp_path / "state")
    yield opened
    assert opened.launcher is not None
    opened.launcher.close()


@pytest.fixture
def launcher(adapter: Adapter) -> Launcher:
    assert adapter.launcher is not None
    return adapter.launcher


@pytest.mark.parametrize(
    "promise",
    [
        contract.test_life_of_a_part,
        contract.test_aborted_part_never_starts,
        contract.test_aborted_part_that_runs_is_ended,
        contract.test_command_that_does_not_exist,
        contract.test_unknown_node,
    ],
    ids=lambda promise: promise.__name__,
)
def test_it_keeps_the_contract(
    promise: Any, adapter: Adapter, launcher: Launcher, tmp_path: Path
) -> None:
    promise(adapter, launcher, tmp_path)


def test_it_reads(desk: Any, adapter: Adapter, settings: dict[str, Any]) -> None:
    reading = adapter.reader.read()
    assert [(node.name, node.slots) for node in reading.nodes] == [("n1", 2), ("n2", 2)]
    assert all(0.0 < node.power <= 1.0 for node in reading.nodes)
    away = desk.read_settings({**settings, "nodes": "n[1-3]"}, "c")
    with pytest.raises(AdapterError, match=r"^n3: ssh: "):
        desk.DeskReader(away).read()
    with pytest.raises(InputError, match=r"^c\.slots: "):
        desk.read_settings({**settings, "slots": 0}, "c", "c")


def test_a_part_on_two_machines(adapter: Adapter, launcher: Launcher, tmp_path: Path) -> None:
    text = 'echo "$COALLOC_RANK $COALLOC_NODE"; exit $COALLOC_RANK'
    spec = contract.part(adapter, tmp_path, "sh", "-c", text)
    spec = replace(spec, nodes={"n2": 1, "n1": 2}, size=3)
    launcher.claim(spec)
    contract.until(launcher, spec.key, lambda report: report.state is PartState.READY)
    other = replace(spec, job="2", nodes={"n2": 2})
    with pytest.raises(ClaimRefusedError) as caught:
        launcher.claim(other)
    assert caught.value.reason == "nodes_taken"
    launcher.go(spec.key)
    ended = contract.until(launcher, spec.key, lambda report: report.is_ended)
    assert ended.codes == (0, 1, 2)
    lines = (tmp_path / "coalloc-1.out").read_text().splitlines()
    assert sorted(lines) == ["0 n2", "1 n1", "2 n1"]
    launcher.claim(other)
    launcher.abort(other.key)
    contract.until(launcher, other.key, lambda report: report.is_ended)
