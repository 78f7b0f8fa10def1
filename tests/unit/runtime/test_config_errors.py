"""The one-line errors of the configuration: file, key and what is wrong."""

from pathlib import Path

import pytest

from coalloc.daemon.config_checks import check_policies
from coalloc.model.errors import ConfigError, InputError
from coalloc.model.settings import Config
from coalloc.runtime.config.file import load, parse

FOLDERS = ("/state", "/run", "/cache")
USER = {"HOME": "/home/ann", "XDG_RUNTIME_DIR": "/run/user/7"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # a value out of range, in the second table of an array
        (
            '[[clusters]]\nname = "a"\n\n[[clusters]]\nname = "b"\nlink_gbps = -1\n',
            " clusters[1].link_gbps: -1 is outside 0..1e+09",
        ),
        ("[power]\nstep = 1.5\n", " power.step: 1.5 is outside 0..1"),
        ("[power]\nsmoothing = 0\n", " power.smoothing: 0 is outside above 0..1"),
        ("[readings]\ninterval_s = 0\n", " readings.interval_s: 0 is outside 0.01..86400"),
        # no arithmetic carries these, and no machine keeps up with them
        (
            '[[rounds.trigger]]\nkind = "timer"\nevery_s = 1e-300\n',
            " rounds.trigger[0].every_s: 1e-300 is outside 0.01..86400",
        ),
        ("[start]\nlease_s = 1e-9\n", " start.lease_s: 1e-09 is outside 4..86400"),
        (
            "[start]\nprepare_timeout_s = 1e-9\n",
            " start.prepare_timeout_s: 1e-09 is outside 0.1..86400",
        ),
        (
            "[rounds]\ntime_limit_s = 1e308\n",
            " rounds.time_limit_s: 1e+308 is outside 0.1..86400",
        ),
        ("[power]\nstep = 1e-300\n", " power.step: 1e-300 is neither 0 nor in 0.001..1"),
        (
            "[jobs.defaults]\nbase_time_s = 1e12\n",
            " jobs.defaults.base_time_s: 1e+12 is outside 1e-06..1e+09",
        ),
        (
            '[[clusters]]\nname = "a"\nlink_gbps = 1e-300\n',
            " clusters[0].link_gbps: 1e-300 is neither 0 nor in 1e-09..1e+09",
        ),
        ("[readings]\ninterval_s = nan\n", " readings.interval_s: nan is not a finite number"),
        ("[solver]\nnice = 20\n", " solver.nice: 20 is outside 0..19"),
        # types
        (
            '[rounds]\ntime_limit_s = "10"\n',
            " rounds.time_limit_s: '10' is not a number",
        ),
        ("[daemon]\nkeep_events = 1.5\n", " daemon.keep_events: 1.5 is not a whole number"),
        ("[daemon]\nkeep_events = true\n", " daemon.keep_events: true is not a whole number"),
        ("[daemon]\nmode = 1\n", " daemon.mode: 1 is not one of multi-user, single-user"),
        (
            "[rounds]\ncommit_first_incumbent = 1\n",
            " rounds.commit_first_incumbent: 1 is not true or false",
        ),
        ("[rounds]\npolicy = []\n", " rounds.policy: [] is not a text"),
        ("[rounds]\npolicy = ''\n", " rounds.policy: is empty"),
        ("[rounds]\noptions = 1\n", " rounds.options: 1 is not a table"),
        ("daemon = 1\n", " daemon: 1 is not a table"),
        ("[rounds]\nfallbacks = 'easy'\n", " rounds.fallbacks: 'easy' is not a list"),
        (
            "[rounds]\nfallbacks = [\n  'easy',  # fast\n  7,\n]\n",
            " rounds.fallbacks[1]: 7 is not a text",
        ),
        # names
        (
            "[daemon]\nmode = 'multiuser'\n",
            " daemon.mode: 'multiuser' is not one of multi-user, single-user;"
            " did you mean multi-user?",
        ),
        (
            "[daemon]\n\nkeep_event = 5\n",
            " daemon.keep_event: unknown key; did you mean keep_events?",
        ),
        ("[demon]\n", " demon: unknown key; did you mean daemon?"),
        ("zzz = 1\n", " zzz: unknown key"),
        ("[[rounds.trigger]]\nevery_s = 5\n", " rounds.trigger[0].kind: is missing"),
        (
            "[rounds]\ntrigger = [\n {kind = 'timer'},\n {kind = 'timers'},\n]\n",
            " rounds.trigger[1].kind: 'timers' is not one of cluster_returned,"
            " job_finished, queue_length, timer; did you mean timer?",
        ),
        # the first in the file, not the first in the structs
        ("[start]\nlease_s = -1\n[daemon]\nmode = 1\n", " start.lease_s: -1 is outside 4..86400"),
        # contradictions
        ("clusters = []\n", " clusters: is empty"),
        (
            "[[clusters]]\nname = 'a'\n[[clusters]]\nname = 'a'\n",
            " clusters[1].name: 'a' is used twice",
        ),
        (
            "[[clusters]]\nname = 'a/b'\n",
            " clusters[0].name: 'a/b' has a slash, space or control",
        ),
        (
            "[readings]\ninterval_s = 60\n",
            " readings.max_age_s: 30 is below interval_s 60: every reading would be stale",
        ),
        (
            "[readings]\nreaders = ['alpha']\n",
            " readings.readers[0]: 'alpha' is no owner's cluster NAME@USER",
        ),
        (
            "[start]\nbackoff_max_s = 0.5\n",
            " start.backoff_max_s: 0.5 is below backoff_first_s 1",
        ),
        (
            "[start]\nlease_s = 5\n",
            " start.lease_s: 5 is below prepare_timeout_s 10:"
            " claims would go while parts are awaited",
        ),
        (
            "[rounds]\nfallbacks = ['easy', 'easy']\n",
            " rounds.fallbacks[1]: 'easy' is named twice",
        ),
        ("[daemon]\nmetrics_address = '9464'\n", " daemon.metrics_address: '9464' is not host:"),
        ("[solver]\nmemory_mb = 100\n", " solver.memory_mb: 100 is below 1024, which compiled"),
        # names that only the policies know
        (
            "[rounds]\npolicy = 'esay'\n",
            " rounds.policy: there is no policy 'esay'; did you mean easy?",
        ),
        (
            "[rounds]\nfallbacks = ['easy', 'zzz']\n",
            " rounds.fallbacks[1]: there is no policy 'zzz'; there are auto, fcfs,",
        ),
        (
            "[[rounds.trigger]]\nkind = 'timer'\npolicy = 'sfj'\n",
            " rounds.trigger[0].policy: there is no policy 'sfj'; did you mean sjf?",
        ),
        (
            "[rounds]\npolicy = 'easy'\n[rounds.options]\nskip = true\n",
            " rounds.options.skip: unknown option; easy has objective,",
        ),
        (
            "[rounds]\npolicy = 'fcfs'\noptions.skip = 1\n",
            " rounds.options.skip: 1 is not true or false",
        ),
        # end points
        (
            "[daemon]\nendpoint = 'http://x'\n",
            " daemon.endpoint: 'http://x' is neither ipc:///path nor tcp://host:port",
        ),
        (
            f"[daemon]\nruntime_dir = '/{'r' * 100}'\n",
            " daemon.endpoint: 114 bytes long; the path of a socket holds at most 107",
        ),
        (
            "[daemon]\nruntime_dir = 'run'\n",
            " daemon.runtime_dir: 'run' is not an absolute path",
        ),
        (
            "[daemon]\nendpoint = 'tcp://h:1'\npublish_endpoint = 'tcp://h:1'\n",
            " daemon.publish_endpoint: 'tcp://h:1' is used twice",
        ),
        # TOML itself
        ("[daemon]\nmode = \n", "2: invalid value"),
        ("[daemon\n", "1: expected ']' at the end of a table declaration"),
        ("a = 1\na = 2\n", "2: cannot overwrite a value"),
        ("\n\na = '''", "3: expected \"'''\""),
    ],
)
def test_error_names_file_and_key(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "coallocd.toml", FOLDERS, check_policies)
    assert str(caught.value).startswith(f"coallocd.toml:{expected}")
    assert "\n" not in str(caught.value)


def test_the_callers_check_gets_the_file(tmp_path: Path) -> None:
    def check(config: Config) -> None:
        for i, cluster in enumerate(config.clusters):
            if "cpus" in cluster.settings:
                raise InputError(f"clusters[{i}].settings.cpus", "is not for you")

    text = "[[clusters]]\nname = 'a'\n[[clusters]]\nname = 'b'\nsettings.cpus = 3\n"
    with pytest.raises(ConfigError) as caught:
        parse(text, "x", FOLDERS, check)
    assert str(caught.value) == "x: clusters[1].settings.cpus: is not for you"
    assert parse(text.replace("cpus", "cores"), "x", FOLDERS, check).clusters[1].name == "b"
    with pytest.raises(ConfigError, match=r"^built-in defaults: daemon: no$"):
        load(None, USER, 7, lambda config: (_ for _ in ()).throw(InputError("daemon", "no")))


def test_unreadable_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml: No such file or directory$"):
        load(tmp_path / "missing.toml", USER, 7)
    with pytest.raises(ConfigError, match="Is a directory"):
        load(tmp_path, USER, 7)
    broken = tmp_path / "latin.toml"
    broken.write_bytes(b"[daemon]\n# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.toml:2: is not UTF-8 text"):
        load(broken, USER, 7)
