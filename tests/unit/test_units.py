"""The units: what the code relies on, and what systemd itself says of them."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from coalloc.runtime.config.file import SYSTEM_PATH, load

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "systemd"
DAEMON = FOLDER / "coallocd.service"
EXECUTOR = FOLDER / "coalloc-executor@.service"
USERS_EXECUTOR = FOLDER / "coalloc-executor-user@.service"
UNITS = [DAEMON, EXECUTOR, USERS_EXECUTOR]
EXECUTORS = [EXECUTOR, USERS_EXECUTOR]
LIMIT_S = 60


def settings(unit: Path) -> dict[str, list[str]]:
    """The assignments of a unit; a key may come more than once."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def one(unit: Path, key: str) -> str:
    (value,) = settings(unit)[key]
    return value


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: the units were NOT verified")
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=LIMIT_S
    )


@pytest.mark.parametrize("unit", UNITS)
def test_services_are_watched_and_started_again(unit: Path) -> None:
    assert one(unit, "Type") == "notify"
    assert one(unit, "Restart") == "on-failure"
    assert float(one(unit, "WatchdogSec")) >= 30
    # a solver or a job that runs out of memory must not end the service
    assert one(unit, "OOMPolicy") == "continue"


def test_reload_reaches_the_daemon() -> None:
    assert one(DAEMON, "ExecReload") == "/bin/kill -HUP $MAINPID"


@pytest.mark.parametrize("unit", EXECUTORS)
def test_jobs_survive_the_executor(unit: Path) -> None:
    assert one(unit, "KillMode") == "process"
    assert one(unit, "TasksMax") == "infinity"
    # these are emptied when the unit stops, under the jobs that run
    for key in ("PrivateTmp", "RemoveIPC", "RuntimeDirectory"):
        assert key not in settings(unit)
    if "User" in settings(unit):
        assert one(unit, "User") == one(DAEMON, "User")
        assert "RemoveIPC" not in settings(DAEMON)


@pytest.mark.parametrize("unit", UNITS)
def test_compiled_code_may_run(unit: Path) -> None:
    assert "MemoryDenyWriteExecute" not in settings(unit)
    assert "MemoryDenyWriteExecute" in unit.read_text(encoding="utf-8")  # the reason


def test_nothing_a_job_would_inherit_is_closed() -> None:
    closing = re.compile(
        r"^(Protect|Private|Restrict|SystemCall|NoNew|Lock|Device|Inaccessible|ReadOnly|Remove)"
    )
    assert not [key for key in settings(EXECUTOR) if closing.match(key)]


@pytest.mark.parametrize(
    ("unit", "arguments"),
    [
        (DAEMON, []),
        (EXECUTOR, ["--cluster", "%i"]),
        (USERS_EXECUTOR, ["--cluster", "%i"]),
    ],
)
def test_commands_are_those_that_are_installed(unit: Path, arguments: list[str]) -> None:
    program, *given = one(unit, "ExecStart").split()
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert Path(program).parent == Path("/usr/bin")
    assert Path(program).name in scripts
    assert given == ["--config", str(SYSTEM_PATH), *arguments]


def test_folders_are_those_of_the_configuration(tmp_path: Path) -> None:
    """What a client, which has no unit, takes from the same file."""
    folders = {
        "STATE_DIRECTORY": f"/var/lib/{one(DAEMON, 'StateDirectory')}",
        "RUNTIME_DIRECTORY": f"/run/{one(DAEMON, 'RuntimeDirectory')}",
        "CACHE_DIRECTORY": f"/var/cache/{one(DAEMON, 'CacheDirectory')}",
    }
    assert load(None, folders, 999) == load(None, {}, 0)
    assert "NUMBA_CACHE_DIR=%C/coalloc" in settings(DAEMON)["Environment"]
    # the executor finds the daemon's sockets only if it has no runtime folder of its own
    assert "RuntimeDirectory" not in settings(EXECUTOR)


def test_folders_have_one_mode_each() -> None:
    rows = [
        line.split()
        for line in (FOLDER / "coalloc.tmpfiles").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    modes = {row[1]: (row[2], row[3]) for row in rows}
    assert all(row[0] == "d" and len(row) == 6 for row in rows)
    user = one(DAEMON, "User")
    assert modes == {
        "/etc/coalloc": ("0755", "root"),
        "/run/coalloc": (one(DAEMON, "RuntimeDirectoryMode"), user),
        "/var/lib/coalloc": (one(DAEMON, "StateDirectoryMode"), user),
        "/var/lib/coalloc-executor": (one(EXECUTOR, "StateDirectoryMode"), "root"),
        "/var/lib/coalloc-executor-user": (one(USERS_EXECUTOR, "StateDirectoryMode"), user),
        "/var/cache/coalloc": (one(DAEMON, "CacheDirectoryMode"), user),
    }
    assert (FOLDER / "coalloc.sysusers").read_text().splitlines()[-1].startswith(f"u {user} - ")


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    # verify wants the programs to exist
    text = re.sub(r"/usr/bin/coalloc[a-z-]*", "/bin/true", unit.read_text(encoding="utf-8"))
    copy = tmp_path / unit.name
    copy.write_text(text)
    result = analyze("verify", "--man=no", "--recursive-errors=no", str(copy))
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_systemd_refuses_a_broken_unit(tmp_path: Path) -> None:
    """The test above can fail."""
    copy = tmp_path / "broken.service"
    copy.write_text("[Service]\nType=notify\nExecStart=/bin/true\nKillMood=process\n")
    result = analyze("verify", "--man=no", "--recursive-errors=no", str(copy))
    assert "KillMood" in result.stderr


@pytest.mark.parametrize(("unit", "tenths"), [(DAEMON, 15), (USERS_EXECUTOR, 25)])
def test_exposure_is_below_its_limit(unit: Path, tenths: int) -> None:
    result = analyze("security", "--offline=true", "--no-pager", f"--threshold={tenths}", str(unit))
    assert result.returncode == 0, result.stdout + result.stderr
    strict = analyze("security", "--offline=true", "--no-pager", "--threshold=1", str(unit))
    assert strict.returncode != 0, "the threshold does not count"


@pytest.mark.parametrize("unit", UNITS)
def test_stated_exposure_is_the_measured_one(unit: Path) -> None:
    version = analyze("--version").stdout.split()[1]
    if version != "252":
        pytest.skip(f"the exposure is stated for systemd 252, this is {version}")
    result = analyze("security", "--offline=true", "--no-pager", str(unit))
    measured = re.search(r"exposure level for \S+ (\d+\.\d) (\w+)", result.stdout)
    stated = re.search(r"systemd 252: (\d+\.\d) (\w+)", unit.read_text(encoding="utf-8"))
    assert measured is not None
    assert stated is not None
    assert stated.groups() == measured.groups()


def test_users_and_folders_are_made(tmp_path: Path) -> None:
    for program in ("systemd-sysusers", "systemd-tmpfiles"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: users and folders were NOT tried")
    (tmp_path / "etc").mkdir()
    root = f"--root={tmp_path}"
    users = subprocess.run(
        ["systemd-sysusers", root, str(FOLDER / "coalloc.sysusers")],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert users.returncode == 0, users.stderr
    assert (tmp_path / "etc/passwd").read_text().startswith("coalloc:x:")
    folders = subprocess.run(
        ["systemd-tmpfiles", root, "--create", str(FOLDER / "coalloc.tmpfiles")],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    # without root, only the owners cannot be set
    errors = [line for line in folders.stderr.splitlines() if "not permitted" not in line]
    assert not errors
    assert (tmp_path / "var/lib/coalloc").stat().st_mode & 0o777 == 0o700
