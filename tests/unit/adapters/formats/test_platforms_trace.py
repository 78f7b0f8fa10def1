"""The `trace` adapter."""

from pathlib import Path

import pytest

from coalloc.adapters.base import AdapterError
from coalloc.adapters.trace import open_trace, read_settings
from coalloc.model.errors import InputError
from coalloc.model.platform import NodeState

FILE = """
[[clusters]]
name = "alpha"
nodes = [{name = "a[1-2]", power = 0.5, slots = 4, features = ["x"], memory_mb = 100}]
"""


@pytest.fixture
def platform(tmp_path: Path) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(FILE)
    return path


def test_it_shows_the_cluster_of_its_name(platform: Path) -> None:
    adapter = open_trace(read_settings({"platform": str(platform)}, "alpha", "c"), Path())
    reading = adapter.reader.read()
    assert adapter.launcher is None
    assert reading.cluster == "alpha"
    assert [(n.name, n.power, n.slots, n.memory_mb) for n in reading.nodes] == [
        ("a1", 0.5, 4, 100),
        ("a2", 0.5, 4, 100),
    ]
    assert (reading.nodes[0].features, reading.running) == (("x",), ())


def test_another_name_may_be_given(platform: Path) -> None:
    settings = read_settings({"platform": str(platform), "cluster": "alpha"}, "beta", "c")
    assert open_trace(settings, Path()).reader.read().cluster == "beta"


def test_an_edited_file_is_read_again(platform: Path) -> None:
    reader = open_trace(read_settings({"platform": str(platform)}, "alpha", "c"), Path()).reader
    platform.write_text(FILE.replace("power = 0.5", 'power = 0.5, state = "down"'))
    assert {node.state for node in reader.read().nodes} == {NodeState.DOWN}


def test_what_cannot_be_read_is_unknown_not_empty(platform: Path) -> None:
    reader = open_trace(read_settings({"platform": str(platform)}, "alpha", "c"), Path()).reader
    platform.write_text("[[[")
    with pytest.raises(AdapterError, match="is no platform"):
        reader.read()
    platform.unlink()
    with pytest.raises(AdapterError, match="No such file"):
        reader.read()


def test_bad_settings(platform: Path) -> None:
    with pytest.raises(AdapterError, match="there is no cluster 'gamma'; there are alpha"):
        open_trace(read_settings({"platform": str(platform)}, "gamma", "c"), Path())
    with pytest.raises(InputError, match=r"c\.platform: is missing"):
        read_settings({}, "alpha", "c")
