"""The Debian package in a clean Debian: installed, used, upgraded with a queue, removed, purged.

There is no systemd that runs in it, so what the units start is started by hand: their ExecStart,
with their user, folders and environment.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbeds.debian_root import DebianRoot, why_not

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
UNITS = ("coallocd.service", "coalloc-executor-user@local.service")
KEPT = "etc/coalloc/coallocd.toml"
WANTS = "etc/systemd/system/multi-user.target.wants"
GONE = (
    *("etc/coalloc", "run/coalloc", "var/lib/coalloc", "var/lib/coalloc-executor"),
    *("var/lib/coalloc-executor-user", "var/cache/coalloc"),
)
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The package, and one of a later version."""
    missing = [one for one in ("dpkg-deb", "dpkg-shlibdeps") if shutil.which(one) is None]
    if missing or not Path("/usr/bin/python3").exists():
        pytest.skip(f"the Debian package was NOT built: not installed: {missing or 'python3'}")
    subprocess.run([sys.executable, "docs/manual.py"], cwd=ROOT, check=True, capture_output=True)
    folder = tmp_path_factory.mktemp("deb")
    out = []
    for version, stage in (("1.0", ()), ("1.1.dev1", ("stage",))):
        env = {"COALLOC_DEB_VERSION": version, "COALLOC_DEB_COMPRESS": "-Znone"}
        done = subprocess.run(
            ["packaging/deb/build", sys.executable, *stage],
            cwd=ROOT,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        (built,) = re.findall(r"in '(dist/.*\.deb)'", done.stdout)
        out.append(Path(shutil.move(ROOT / built, folder)))
    return out[0], out[1]


@pytest.fixture(scope="module")
def machine(
    packages: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DebianRoot]:
    """A clean Debian with what the package depends on, and both packages in /tmp."""
    if reason := why_not():
        pytest.skip(f"the Debian package was NOT installed: {reason}")
    depends = field(packages[0], "Depends")
    try:
        root = DebianRoot(tmp_path_factory.mktemp("root") / "debian", depends)
    except LookupError as error:
        pytest.skip(f"the Debian package was NOT installed: {error}")
    with contextlib.closing(root):
        root.enter()
        for package in packages:
            shutil.copy(package, root.folder / "tmp")
        yield root


def field(package: Path, name: str) -> str:
    done = subprocess.run(
        ["dpkg-deb", "--field", str(package), name], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def only_child(process: int) -> int:
    """What nsenter forked: the service itself."""
    (child,) = Path(f"/proc/{process}/task/{process}/children").read_text("ascii").split()
    return int(child)


class Services:
    """What the units would run, without systemd."""

    def __init__(self, machine: DebianRoot) -> None:
        self.machine = machine
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for name in UNITS:
            unit = re.sub("@.*", "@.service", name) if "@" in name else name
            text = (self.machine.folder / "usr/lib/systemd/system" / unit).read_text("utf-8")
            keys = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
            env = {}
            for kind, folder in (("State", "lib"), ("Cache", "cache")):
                if f"{kind}Directory" in keys:
                    env[f"{kind.upper()}_DIRECTORY"] = f"/var/{folder}/{keys[f'{kind}Directory']}"
            env |= {"RUNTIME_DIRECTORY": "/run/coalloc"} if "RuntimeDirectory" in keys else {}
            env |= {"NUMBA_CACHE_DIR": "/var/cache/coalloc"}
            user = ["setpriv", f"--reuid={keys['User']}", f"--regid={keys['Group']}"]
            words = [*user, "--clear-groups", *keys["ExecStart"].replace("%i", "local").split()]
            log = self.machine.folder / "tmp" / f"{keys['User']}-{unit}.log"
            with log.open("ab") as out:
                self.processes.append(
                    subprocess.Popen(
                        self.machine.command(*words, env=env),
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=out,
                    )
                )

    def stop(self) -> None:
        """As prerm has systemd do: the main processes alone, and jobs go on."""
        for process in self.processes:
            os.kill(only_child(process.pid), signal.SIGTERM)
        for process in self.processes:
            assert process.wait(LIMIT_S) == 0
        self.processes.clear()


def state(machine: DebianRoot, job: str) -> list[str]:
    """A job as the queue lists it: number and state."""
    return machine.run("coalloc", "queue", "--noheader", "-o", "jobid,st", "-j", job).stdout.split()


def wait_for(machine: DebianRoot, job: str, wanted: str) -> None:
    end = time.monotonic() + LIMIT_S
    while (found := state(machine, job)) != [job, wanted]:
        assert time.monotonic() < end, found
        time.sleep(0.2)


def install(machine: DebianRoot, package: str) -> None:
    said = machine.run("dpkg", "--install", package).stdout
    assert "could not be compiled" not in said
    assert list((machine.folder / "var/cache/coalloc").glob("*/*.nbc")), said
    assert machine.run("dpkg", "--audit").stdout == ""
    assert machine.run("dpkg", "--verify", "coalloc").stdout == ""
    for unit in UNITS:
        assert (machine.folder / WANTS / unit).is_symlink()
    said = machine.run("systemd-analyze", "verify", "--man=no", *UNITS).stdout
    assert "coalloc" not in said


def use(machine: DebianRoot) -> None:
    """A first job; then one that takes all there is, job 2, and one that waits for it."""
    machine.run("coalloc", "nodes", "--wait", "60s")
    machine.run("coalloc", "submit", "--wait", "--", "hostname")
    assert (machine.folder / "tmp/coalloc-1.out").read_text("ascii").strip()
    # a user's own Python gets nowhere near it
    machine.run("coalloc", "queue", env={"PYTHONPATH": "/tmp", "PYTHONHOME": "/nowhere"})
    assert "PROBLEM" not in machine.run("coalloc", "doctor").stdout
    procs = str(os.cpu_count())
    until_told = "while ! test -e /tmp/go; do sleep 0.1; done"
    machine.run("coalloc", "submit", "-n", procs, "--", "sh", "-c", until_told)
    machine.run("coalloc", "submit", "-n", procs, "--", "touch", "/tmp/second")
    wait_for(machine, "2", "R")
    assert state(machine, "3") == ["3", "PD"]


def upgrade(machine: DebianRoot, package: str, services: Services) -> None:
    """What ran still runs, what waited still waits, what was edited is as it was."""
    with (machine.folder / KEPT).open("a", encoding="utf-8") as file:
        file.write("# a line of the administrator's\n")
    services.stop()
    machine.run("dpkg", "--install", package, env={"COALLOC_WARM": "no"})
    assert "administrator" in (machine.folder / KEPT).read_text("utf-8")
    services.start()
    machine.run("coalloc", "nodes", "--wait", "60s")
    assert state(machine, "2") == ["2", "R"]
    assert state(machine, "3") == ["3", "PD"]
    (machine.folder / "tmp/go").touch()
    machine.run("coalloc", "wait", "2", "3")
    assert (machine.folder / "tmp/second").exists()


def remove(machine: DebianRoot) -> None:
    """The programs go first; queue and configuration go by purge."""
    machine.run("dpkg", "--remove", "coalloc")
    assert not (machine.folder / "usr/lib/coalloc").exists()
    assert (machine.folder / KEPT).exists()
    assert list((machine.folder / "var/lib/coalloc").iterdir())
    machine.run("dpkg", "--purge", "coalloc")
    for gone in GONE:
        assert not (machine.folder / gone).exists()
    assert not list((machine.folder / WANTS).glob("coalloc*"))
    assert "coalloc" not in machine.run("dpkg-query", "--list").stdout


def test_the_life_of_an_installation(machine: DebianRoot, packages: tuple[Path, Path]) -> None:
    services = Services(machine)
    install(machine, f"/tmp/{packages[0].name}")
    services.start()
    use(machine)
    upgrade(machine, f"/tmp/{packages[1].name}", services)
    services.stop()
    remove(machine)


def test_nothing_in_the_package_knows_where_it_was_built(packages: tuple[Path, Path]) -> None:
    stage = ROOT / "build/deb/stage"
    ours = [*(stage / "usr/lib/coalloc/bin").iterdir(), stage / "usr/lib/coalloc/pyvenv.cfg"]
    assert len(ours) == 5
    for path in ours:
        if not path.is_symlink():
            assert str(ROOT) not in path.read_text("utf-8")
    assert os.readlink(stage / "usr/lib/coalloc/bin/python3") == "/usr/bin/python3"
    assert field(packages[1], "Version") == "1.1~dev1"
