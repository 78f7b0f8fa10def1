"""The configuration: its defaults, its folders, where it is looked for."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from coalloc.daemon.config_checks import check as _check
from coalloc.model.errors import ConfigError
from coalloc.model.settings import ClusterConfig, Config, JobMatchConfig
from coalloc.runtime.config.file import changes, find_config, load, needs_restart, parse, toml_text

EXAMPLE = Path(__file__).resolve().parents[3] / "etc" / "coallocd.toml"
USER = {"HOME": "/home/ann", "XDG_RUNTIME_DIR": "/run/user/7"}


def defaults() -> Config:
    return load(None, USER, 7)


def sections() -> dict[str, list[str]]:
    """The lines of the example file under each header, of commented tables too."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in EXAMPLE.read_text(encoding="utf-8").splitlines():
        header = re.fullmatch(r"#?\[+([a-z.]+)\]+", line)
        if header:
            lines = found.setdefault(header[1], [])
        lines.append(line)
    return found


def keys(kind: inspect.Type, path: str) -> Iterator[tuple[str, str, Any]]:
    """Section, key and default of everything the structs describe."""
    if isinstance(kind, inspect.VarTupleType):
        yield from keys(kind.item_type, path)
    if not isinstance(kind, inspect.StructType):
        return
    for field in kind.fields:
        inner = field.type
        place = f"{path}.{field.name}" if path else field.name
        if isinstance(inner, inspect.VarTupleType):
            inner = inner.item_type
        if isinstance(inner, inspect.StructType):
            yield from keys(inner, place)
        elif not isinstance(inner, inspect.DictType):
            yield path, field.name, field.default


def test_example_is_the_defaults() -> None:
    assert load(EXAMPLE, USER, 7) == defaults()


def test_example_has_every_key() -> None:
    text = sections()
    missing = []
    for section, key, default in keys(inspect.type_info(Config), ""):
        # what has no default stands in a comment, and only there
        mark = "#" if default is None or section == "jobs.match" else ""
        if not any(line.startswith(f"{mark}{key} = ") for line in text.get(section, [])):
            missing.append(f"{section}.{key}")
    assert not missing


def test_example_says_something_of_every_key() -> None:
    """A key, or the group of keys it stands in, follows a comment."""
    above = ""
    for line in EXAMPLE.read_text(encoding="utf-8").splitlines():
        if re.match(r"#?[a-z_]+ = ", line):
            assert above.startswith("#") or re.match(r"[\[#a-z]", above), line
        above = line


def test_commented_keys_of_the_example_are_valid() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    config = parse(re.sub(r"^#(\[\[|[a-z_]+ = )", r"\1", text, flags=re.MULTILINE), "x", FOLDERS)
    assert config.jobs.match[0].time_limit_s == 600.0
    assert config.jobs.defaults.sigma == 0.7
    assert config.clusters[0].link_gbps == 1.0


FOLDERS = ("/state", "/run", "/cache")


def test_site_defaults_stand_behind_the_matches() -> None:
    config = parse(
        """
        [jobs.defaults]
        sigma = 0.5
        speedup = "downey:8,1.5"
        [[jobs.match]]
        user = "a*"
        base_time_s = 10
        """,
        "x",
        FOLDERS,
    )
    assert config.jobs.in_order == (
        JobMatchConfig(user="a*", base_time_s=10.0),
        JobMatchConfig(sigma=0.5, speedup="downey:8,1.5"),
    )


def test_shares_count_where_there_are_projects() -> None:
    assert parse("", "x", FOLDERS).priority.shares == 0.0
    assert parse("[projects.p]\n", "x", FOLDERS).priority.shares == 16.0
    assert parse("[projects.p]\n[priority]\nshares = 0\n", "x", FOLDERS).priority.shares == 0.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("linear", "neither amdahl:FRACTION nor downey:A,SIGMA"),
        ("amdahl:2", "2 is outside 0..1"),
        ("downey:0.5,1", "downey:0.5,1.A: 0.5 is outside 1..1e+09"),
    ],
)
def test_a_default_speedup_that_cannot_be_read(text: str, words: str) -> None:
    file = f'[[clusters]]\nname = "a"\n[[jobs.match]]\nspeedup = "{text}"\n'
    with pytest.raises(ConfigError, match=r"^x: jobs\.match\[0\]\.speedup: ") as caught:
        parse(file, "x", FOLDERS, _check)
    assert words in str(caught.value)


def test_integers_stand_for_numbers() -> None:
    assert parse("[rounds]\ntime_limit_s = 5\n", "x", FOLDERS).rounds.time_limit_s == 5.0


@pytest.mark.parametrize(
    ("environ", "uid", "system", "state", "runtime"),
    [
        (USER, 7, False, "/home/ann/.local/state/coalloc", "/run/user/7/coalloc"),
        # without a runtime folder: still a private one
        ({"HOME": "/h"}, 7, False, "/h/.local/state/coalloc", "/h/.local/state/coalloc/run"),
        (USER | {"XDG_STATE_HOME": "/data"}, 7, False, "/data/coalloc", "/run/user/7/coalloc"),
        # not absolute: ignored, as the specification says
        (
            USER | {"XDG_STATE_HOME": "data"},
            7,
            False,
            "/home/ann/.local/state/coalloc",
            "/run/user/7/coalloc",
        ),
        (USER, 0, False, "/var/lib/coalloc", "/run/coalloc"),
        # a user's client and the system's daemon meet
        (USER, 7, True, "/var/lib/coalloc", "/run/coalloc"),
        # a service
        (
            {"STATE_DIRECTORY": "/var/lib/x:/var/lib/y", "RUNTIME_DIRECTORY": "/run/x"},
            7,
            True,
            "/var/lib/x",
            "/run/x",
        ),
    ],
)
def test_folders_are_settled(
    environ: dict[str, str],
    uid: int,
    system: bool,
    state: str,
    runtime: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "coallocd.toml"
    path.touch()
    if system:
        monkeypatch.setattr("coalloc.runtime.config.file.SYSTEM_PATH", path)
    config = load(path, environ, uid)
    assert config.daemon.state_dir == state
    assert config.daemon.runtime_dir == runtime
    assert config.daemon.endpoint == f"ipc://{runtime}/coalloc.sock"


def test_named_folders_and_end_points_stand() -> None:
    config = parse(
        "[daemon]\nstate_dir = '/s'\nruntime_dir = '/r'\nendpoint = 'tcp://[::1]:6000'\n",
        "x",
        FOLDERS,
    )
    daemon = config.daemon
    assert (daemon.state_dir, daemon.endpoint) == ("/s", "tcp://[::1]:6000")
    assert daemon.executor_endpoint == "ipc:///r/executors.sock"


def test_file_is_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "etc" / "coallocd.toml"
    monkeypatch.setattr("coalloc.runtime.config.file.SYSTEM_PATH", system)
    environ = {"HOME": str(tmp_path)}
    assert find_config(None, environ) is None
    system.parent.mkdir()
    system.touch()
    assert find_config(None, environ) == system
    user = tmp_path / ".config" / "coalloc" / "coallocd.toml"
    user.parent.mkdir(parents=True)
    user.touch()
    assert find_config(None, environ) == user
    environ["COALLOC_CONFIG"] = "/named.toml"  # it need not exist: load says so
    assert find_config(None, environ) == Path("/named.toml")
    assert find_config(Path("/explicit.toml"), environ) == Path("/explicit.toml")


def test_text_reads_back_equal() -> None:
    text = """
    [rounds]
    options = { guard_after = 3 }
    [[clusters]]
    name = "alpha"
    link_gbps = 1.5
    settings = { host = 'a"b\\', text = "\\u007f\\n" }
    [[clusters]]
    name = "beta"
    settings = { "a b" = [1, 2.5], c = { d = true }, when = 2020-01-02T03:04:05Z }
    """
    config = parse(text, "x", FOLDERS)
    assert parse(toml_text(config), "x") == config
    assert parse(toml_text(defaults()), "x") == defaults()


def test_changes_are_named() -> None:
    old = parse("", "x", FOLDERS)
    new = parse("[rounds]\npolicy = 'easy'\n[daemon]\nmode = 'multi-user'\n", "x", FOLDERS)
    assert changes(old, old) == []
    assert changes(old, new) == ["daemon.mode", "rounds.policy"]
    assert changes(old, msgspec.structs.replace(old, clusters=(ClusterConfig(name="b"),))) == [
        "clusters"
    ]
    assert [needs_restart(key) for key in ("daemon.mode", "rounds.policy", "solver.nice")] == [
        True,
        False,
        True,
    ]


def test_keys_that_need_a_restart_say_so_in_the_example() -> None:
    """The mark in the comments and the table in the code agree."""
    marked = set()
    section, comment, group = "", "", ""
    for line in EXAMPLE.read_text(encoding="utf-8").splitlines():
        header = re.fullmatch(r"\[+([a-z.]+)\]+", line)
        key = re.match(r"([a-z_]+) = ", line)
        if header:
            section, comment, group = header[1], "", ""
        elif line.startswith("# "):
            comment += line
        elif key:
            group = comment or group  # keys without a comment share the one above
            comment = ""
            if "(restart)" in group:
                marked.add(f"{section}.{key[1]}")
    described = {f"{s}.{k}" for s, k, _ in keys(inspect.type_info(Config), "")}
    assert marked == {key for key in described if needs_restart(key)}
