"""The configuration: its defaults, its one-line errors, where it is looked for."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from coalloc.core.settings import ClusterSettings, JobDefaults, Settings
from coalloc.daemon.main import _check
from coalloc.daemon.settings import check_policies, core_settings
from coalloc.model.errors import InputError
from coalloc.runtime.config.dump import toml_text
from coalloc.runtime.config.file import changes, find_config, load, needs_restart, parse
from coalloc.runtime.config.schema import ClusterConfig, Config, ConfigError

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


def test_core_is_told_the_same_defaults() -> None:
    expected = Settings(clusters=(ClusterSettings(name="local"),))
    assert core_settings(Config()) == expected


def test_core_is_told_everything() -> None:
    config = parse(
        """
        [rounds]
        policy = "fcfs"
        options = { skip = true }
        trigger = [{ kind = "queue_length", at_least = 40, count = "procs", policy = "easy" }]
        [jobs.defaults]
        sigma = 0.5
        speedup = "downey:8,1.5"
        [[jobs.match]]
        user = "a*"
        base_time_s = 10
        [[clusters]]
        name = "alpha"
        link_gbps = 2
        """,
        "x",
        FOLDERS,
    )
    settings = core_settings(config)
    assert settings.policy == "fcfs"
    assert settings.options == {"skip": True}
    assert [(t.kind, t.at_least, t.count, t.policy) for t in settings.triggers] == [
        ("queue_length", 40, "procs", "easy")
    ]
    assert settings.defaults == (
        JobDefaults(user="a*", command="*", base_time=10.0),
        JobDefaults(sigma=0.5, speedup={"model": "downey", "A": 8.0, "sigma": 1.5}),
    )
    assert settings.clusters == (ClusterSettings(name="alpha", link_gbps=2.0),)


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
    with pytest.raises(ConfigError, match=r"^x:4: jobs\.match\[0\]\.speedup: ") as caught:
        parse(file, "x", FOLDERS, _check)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # a value out of range, in the second table of an array
        (
            '[[clusters]]\nname = "a"\n\n[[clusters]]\nname = "b"\nlink_gbps = -1\n',
            "6: clusters[1].link_gbps: -1 is below 0",
        ),
        ("[power]\nstep = 1.5\n", "2: power.step: 1.5 is outside 0..1"),
        ("[power]\nsmoothing = 0\n", "2: power.smoothing: 0 is outside above 0..1"),
        ("[readings]\ninterval_s = 0\n", "2: readings.interval_s: 0 is outside 0.01..86400"),
        # no arithmetic carries these, and no machine keeps up with them
        (
            '[[rounds.trigger]]\nkind = "timer"\nevery_s = 1e-300\n',
            "3: rounds.trigger[0].every_s: 1e-300 is outside 0.01..86400",
        ),
        ("[start]\nlease_s = 1e-9\n", "2: start.lease_s: 1e-09 is outside 4..86400"),
        (
            "[start]\nprepare_timeout_s = 1e-9\n",
            "2: start.prepare_timeout_s: 1e-09 is outside 0.1..86400",
        ),
        (
            "[rounds]\ntime_limit_s = 1e308\n",
            "2: rounds.time_limit_s: 1e+308 is outside 0.1..86400",
        ),
        ("[power]\nstep = 1e-300\n", "2: power.step: 1e-300 is neither 0 nor in 0.001..1"),
        (
            "[jobs.defaults]\nbase_time_s = 1e12\n",
            "2: jobs.defaults.base_time_s: 1e+12 is outside 1e-06..1e+09",
        ),
        (
            '[[clusters]]\nname = "a"\nlink_gbps = 1e-300\n',
            "3: clusters[0].link_gbps: 1e-300 is neither 0 nor in 1e-09..1e+09",
        ),
        ("[readings]\ninterval_s = nan\n", "2: readings.interval_s: nan is not a finite number"),
        ("[solver]\nnice = 20\n", "2: solver.nice: 20 is outside 0..19"),
        # types
        (
            '[rounds]\ntime_limit_s = "10"\n',
            "2: rounds.time_limit_s: '10' is not a number",
        ),
        ("[daemon]\nkeep_events = 1.5\n", "2: daemon.keep_events: 1.5 is not a whole number"),
        ("[daemon]\nkeep_events = true\n", "2: daemon.keep_events: true is not a whole number"),
        ("[daemon]\nmode = 1\n", "2: daemon.mode: 1 is not one of multi-user, single-user"),
        (
            "[rounds]\ncommit_first_incumbent = 1\n",
            "2: rounds.commit_first_incumbent: 1 is not true or false",
        ),
        ("[rounds]\npolicy = []\n", "2: rounds.policy: [] is not a text"),
        ("[rounds]\npolicy = ''\n", "2: rounds.policy: is empty"),
        ("[rounds]\noptions = 1\n", "2: rounds.options: 1 is not a table"),
        ("daemon = 1\n", "1: daemon: 1 is not a table"),
        ("[rounds]\nfallbacks = 'easy'\n", "2: rounds.fallbacks: 'easy' is not a list"),
        (
            "[rounds]\nfallbacks = [\n  'easy',  # fast\n  7,\n]\n",
            "4: rounds.fallbacks[1]: 7 is not a text",
        ),
        # names
        (
            "[daemon]\nmode = 'multiuser'\n",
            "2: daemon.mode: 'multiuser' is not one of multi-user, single-user;"
            " did you mean multi-user?",
        ),
        (
            "[daemon]\n\nkeep_event = 5\n",
            "3: daemon.keep_event: unknown key; did you mean keep_events?",
        ),
        ("[demon]\n", "1: demon: unknown key; did you mean daemon?"),
        ("zzz = 1\n", "1: zzz: unknown key"),
        ("[[rounds.trigger]]\nevery_s = 5\n", "1: rounds.trigger[0].kind: is missing"),
        (
            "[rounds]\ntrigger = [\n {kind = 'timer'},\n {kind = 'timers'},\n]\n",
            "4: rounds.trigger[1].kind: 'timers' is not one of cluster_returned,"
            " job_finished, queue_length, timer; did you mean timer?",
        ),
        # the first in the file, not the first in the structs
        ("[start]\nlease_s = -1\n[daemon]\nmode = 1\n", "2: start.lease_s: -1 is outside 4..86400"),
        # contradictions
        ("clusters = []\n", "1: clusters: is empty"),
        (
            "[[clusters]]\nname = 'a'\n[[clusters]]\nname = 'a'\n",
            "4: clusters[1].name: 'a' is used twice",
        ),
        (
            "[[clusters]]\nname = 'a/b'\n",
            "2: clusters[0].name: 'a/b' has a slash, space or control",
        ),
        (
            "[readings]\ninterval_s = 60\n",
            "1: readings.max_age_s: 30 is below interval_s 60: every reading would be stale",
        ),
        (
            "[start]\nbackoff_max_s = 0.5\n",
            "2: start.backoff_max_s: 0.5 is below backoff_first_s 1",
        ),
        (
            "[start]\nlease_s = 5\n",
            "2: start.lease_s: 5 is below prepare_timeout_s 10:"
            " claims would go while parts are awaited",
        ),
        (
            "[rounds]\nfallbacks = ['easy', 'easy']\n",
            "2: rounds.fallbacks[1]: 'easy' is named twice",
        ),
        ("[daemon]\nmetrics_address = '9464'\n", "2: daemon.metrics_address: '9464' is not host:"),
        ("[solver]\nmemory_mb = 100\n", "2: solver.memory_mb: 100 is below 1024, which compiled"),
        # names that only the policies know
        (
            "[rounds]\npolicy = 'esay'\n",
            "2: rounds.policy: there is no policy 'esay'; did you mean easy?",
        ),
        (
            "[rounds]\nfallbacks = ['easy', 'zzz']\n",
            "2: rounds.fallbacks[1]: there is no policy 'zzz'; there are auto, fcfs,",
        ),
        (
            "[[rounds.trigger]]\nkind = 'timer'\npolicy = 'sfj'\n",
            "3: rounds.trigger[0].policy: there is no policy 'sfj'; did you mean sjf?",
        ),
        (
            "[rounds]\npolicy = 'easy'\n[rounds.options]\nskip = true\n",
            "4: rounds.options.skip: unknown option; easy has objective,",
        ),
        (
            "[rounds]\npolicy = 'fcfs'\noptions.skip = 1\n",
            "3: rounds.options.skip: 1 is not true or false",
        ),
        # end points
        (
            "[daemon]\nendpoint = 'http://x'\n",
            "2: daemon.endpoint: 'http://x' is neither ipc:///path nor tcp://host:port",
        ),
        (
            f"[daemon]\nruntime_dir = '/{'r' * 100}'\n",
            "1: daemon.endpoint: 114 bytes long; the path of a socket holds at most 107",
        ),
        (
            "[daemon]\nruntime_dir = 'run'\n",
            "2: daemon.runtime_dir: 'run' is not an absolute path",
        ),
        (
            "[daemon]\nendpoint = 'tcp://h:1'\npublish_endpoint = 'tcp://h:1'\n",
            "3: daemon.publish_endpoint: 'tcp://h:1' is used twice",
        ),
        # TOML itself
        ("[daemon]\nmode = \n", "2: invalid value"),
        ("[daemon\n", "1: expected ']' at the end of a table declaration"),
        ("a = 1\na = 2\n", "2: cannot overwrite a value"),
        ("\n\na = '''", "3: expected \"'''\""),
    ],
)
def test_error_names_file_line_and_key(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "coallocd.toml", FOLDERS, check_policies)
    assert str(caught.value).startswith(f"coallocd.toml:{expected}")
    assert "\n" not in str(caught.value)


def test_the_callers_check_gets_file_and_line(tmp_path: Path) -> None:
    def check(config: Config) -> None:
        for i, cluster in enumerate(config.clusters):
            if "cpus" in cluster.settings:
                raise InputError(f"clusters[{i}].settings.cpus", "is not for you")

    text = "[[clusters]]\nname = 'a'\n[[clusters]]\nname = 'b'\nsettings.cpus = 3\n"
    with pytest.raises(ConfigError) as caught:
        parse(text, "x", FOLDERS, check)
    assert str(caught.value) == "x:5: clusters[1].settings.cpus: is not for you"
    assert parse(text.replace("cpus", "cores"), "x", FOLDERS, check).clusters[1].name == "b"
    with pytest.raises(ConfigError, match=r"^built-in defaults: daemon: no$"):
        load(None, USER, 7, lambda config: (_ for _ in ()).throw(InputError("daemon", "no")))


def test_integers_stand_for_numbers() -> None:
    assert parse("[rounds]\ntime_limit_s = 5\n", "x", FOLDERS).rounds.time_limit_s == 5.0


def test_windows_line_ends_are_counted_once() -> None:
    with pytest.raises(ConfigError, match=r"^x:3: power\.step: "):
        parse("[power]\r\n# comment\r\nstep = 9\r\n", "x", FOLDERS)


def test_unreadable_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml: No such file or directory$"):
        load(tmp_path / "missing.toml", USER, 7)
    with pytest.raises(ConfigError, match="Is a directory"):
        load(tmp_path, USER, 7)
    broken = tmp_path / "latin.toml"
    broken.write_bytes(b"[daemon]\n# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.toml:2: is not UTF-8 text"):
        load(broken, USER, 7)


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
