"""The Debian package in a clean Debian with its own systemd, and the RPM as far as Debian can tell.

The first is installed as the documents say, used, killed, upgraded with a queue, opened to several
users, removed and purged. Of the second, files, needs, scriptlets and units are looked at.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
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


def build(*command: str, **env: str) -> str:
    """What a step of the packaging says."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def need(*tools: str) -> None:
    missing = [one for one in tools if shutil.which(one) is None]
    if missing:
        pytest.skip(f"NOT built: not installed: {', '.join(missing)}")


@pytest.fixture(scope="module")
def stage() -> Path:
    """What both packages hold."""
    need("/usr/bin/python3")
    build(sys.executable, "docs/manual.py")
    build("packaging/stage", sys.executable)
    return ROOT / "build/stage"


@pytest.fixture(scope="module")
def packages(stage: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The Debian package, and one of a later version."""
    need("dpkg-deb", "dpkg-shlibdeps")
    folder = tmp_path_factory.mktemp("deb")
    out = []
    for version in ("1.0", "1.1.dev1"):
        env = {"COALLOC_VERSION": version, "COALLOC_DEB_COMPRESS": "-Znone"}
        (built,) = re.findall(r"in '(dist/.*\.deb)'", build("packaging/deb/build", **env))
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
        (root.folder / "opt").mkdir(exist_ok=True)
        for package in packages:
            shutil.copy(package, root.folder / "opt")
        root.boot()
        yield root


def field(package: Path, name: str) -> str:
    done = subprocess.run(
        ["dpkg-deb", "--field", str(package), name], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def state(machine: DebianRoot, job: str) -> list[str]:
    """A job as the queue lists it: number and state."""
    return machine.run("coalloc", "queue", "--noheader", "-o", "jobid,st", "-j", job).stdout.split()


def wait_for(machine: DebianRoot, job: str, wanted: str) -> None:
    end = time.monotonic() + LIMIT_S
    while (found := state(machine, job)) != [job, wanted]:
        assert time.monotonic() < end, found
        time.sleep(0.2)


def install(machine: DebianRoot, package: str) -> None:
    """The documents' one command: both services run afterwards."""
    said = machine.run("apt-get", "install", package).stdout
    assert "could not be compiled" not in said
    assert list((machine.folder / "var/cache/coalloc").glob("*/*.nbc")), said
    assert machine.run("dpkg", "--audit").stdout == ""
    assert machine.run("dpkg", "--verify", "coalloc").stdout == ""
    for unit in UNITS:
        assert (machine.folder / WANTS / unit).is_symlink()
    said = machine.run("systemd-analyze", "verify", "--man=no", *UNITS).stdout
    assert "coalloc" not in said
    machine.run("systemctl", "is-active", *UNITS)


def use(machine: DebianRoot) -> None:
    """A first job; then one that takes all there is, job 2, and one that waits for it."""
    machine.run("coalloc", "nodes", "--wait", "60s")
    machine.run("coalloc", "submit", "--wait", "--", "hostname")
    assert machine.run("cat", "/tmp/coalloc-1.out").stdout.strip()
    # a user's own Python gets nowhere near it
    machine.run("coalloc", "queue", env={"PYTHONPATH": "/tmp", "PYTHONHOME": "/nowhere"})
    assert "PROBLEM" not in machine.run("coalloc", "doctor").stdout
    procs = str(os.cpu_count())
    until_told = "while ! test -e /tmp/go; do sleep 0.1; done"
    machine.run("coalloc", "submit", "-n", procs, "--", "sh", "-c", until_told)
    machine.run("coalloc", "submit", "-n", procs, "--", "touch", "/tmp/second")
    wait_for(machine, "2", "R")
    assert state(machine, "3") == ["3", "PD"]


def kill(machine: DebianRoot) -> None:
    """Each service dies and is started again; its log follows the change of its configuration."""
    for unit in UNITS:
        machine.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", unit)
        end = time.monotonic() + LIMIT_S
        while restarts(machine, unit) != 1:
            assert time.monotonic() < end, f"{unit} was not started again"
            time.sleep(0.1)
        machine.run("coalloc", "nodes", "--wait", "60s")
        assert state(machine, "2") == ["2", "R"]
        assert state(machine, "3") == ["3", "PD"]
    machine.run("systemctl", "reload", UNITS[0])
    log = ["journalctl", "--no-pager", "--output=cat", "--unit", UNITS[0]]
    end = time.monotonic() + LIMIT_S
    while "configuration_reloaded" not in machine.run(*log).stdout:
        assert time.monotonic() < end, "the daemon did not read its configuration again"
        time.sleep(0.1)


def restarts(machine: DebianRoot, unit: str) -> int:
    """How often systemd has started a unit again; 0 while it does so."""
    asked = ["--property=NRestarts,ActiveState", "--value", unit]
    is_up, count = sorted(machine.run("systemctl", "show", *asked).stdout.split(), reverse=True)
    return int(count) if is_up == "active" else 0


def upgrade(machine: DebianRoot, package: str) -> None:
    """What ran still runs, what waited still waits, what was edited is as it was."""
    with (machine.folder / KEPT).open("a", encoding="utf-8") as file:
        file.write("# a line of the administrator's\n")
    machine.run("apt-get", "install", package)
    assert "administrator" in (machine.folder / KEPT).read_text("utf-8")
    machine.run("systemctl", "is-active", *UNITS)
    machine.run("coalloc", "nodes", "--wait", "60s")
    assert state(machine, "2") == ["2", "R"]
    assert state(machine, "3") == ["3", "PD"]
    machine.run("touch", "/tmp/go")
    machine.run("coalloc", "wait", "2", "3")
    machine.run("test", "-e", "/tmp/second")


def open_to_users(machine: DebianRoot) -> None:
    """The documents' commands that make a configuration for several users; then one submits."""
    machine.run("mv", f"/{KEPT}", f"/{KEPT}.default")
    machine.run("coallocd", "--init")
    machine.run("coallocd", "--check-config")
    (cluster,) = re.findall(r'name = "(\w+)"', (machine.folder / KEPT).read_text("utf-8"))
    machine.run("systemctl", "disable", "--now", UNITS[1])
    machine.run("systemctl", "restart", UNITS[0])
    machine.run("systemctl", "enable", "--now", f"coalloc-executor@{cluster}")
    machine.run("systemctl", "enable", "--now", "coalloc-dashboard")
    machine.run("coalloc", "nodes", "--wait", "60s")
    assert "PROBLEM" not in machine.run("coalloc", "doctor").stdout
    machine.run("useradd", "--create-home", "alice")
    (uid,) = machine.run("id", "--user", "alice").stdout.split()
    alice = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    home = {"HOME": "/home/alice", "USER": "alice"}
    machine.run(*alice, "coalloc", "keys", "new", env=home)
    job = ["coalloc", "submit", "--wait", "--chdir=/home/alice", "--output=out", "--", "id", "-nu"]
    machine.run(*alice, *job, env=home)
    assert (machine.folder / "home/alice/out").read_text("ascii") == "alice\n"
    machine.run("systemctl", "is-active", "coalloc-dashboard")


def remove(machine: DebianRoot) -> None:
    """The programs go first; queue and configuration go by purge."""
    machine.run("dpkg", "--remove", "coalloc")
    assert not (machine.folder / "usr/lib/coalloc").exists()
    assert (machine.folder / KEPT).exists()
    assert list((machine.folder / "var/lib/coalloc").iterdir())
    assert "coalloc" not in machine.run("ps", "-e", "-o", "args=").stdout
    machine.run("dpkg", "--purge", "coalloc")
    for gone in GONE:
        assert not (machine.folder / gone).exists()
    assert not list((machine.folder / WANTS).glob("coalloc*"))
    assert "coalloc" not in machine.run("dpkg-query", "--list").stdout


def test_the_life_of_an_installation(machine: DebianRoot, packages: tuple[Path, Path]) -> None:
    install(machine, f"/opt/{packages[0].name}")
    use(machine)
    kill(machine)
    upgrade(machine, f"/opt/{packages[1].name}")
    open_to_users(machine)
    remove(machine)


def test_nothing_in_the_packages_knows_where_it_was_built(
    stage: Path, packages: tuple[Path, Path]
) -> None:
    ours = [*(stage / "usr/lib/coalloc/bin").iterdir(), stage / "usr/lib/coalloc/pyvenv.cfg"]
    assert len(ours) == 5
    for path in ours:
        if not path.is_symlink():
            assert str(ROOT) not in path.read_text("utf-8")
    assert os.readlink(stage / "usr/lib/coalloc/bin/python3") == "/usr/bin/python3"
    assert field(packages[1], "Version") == "1.1~dev1"


def test_the_rpm_as_far_as_debian_can_tell(stage: Path, tmp_path: Path) -> None:
    need("rpmbuild", "rpm2cpio", "cpio")
    env = {"COALLOC_VERSION": "1.0.dev1", "COALLOC_RPM_PAYLOAD": "w1.gzdio"}
    (built,) = re.findall(r"^dist/.*\.rpm$", build("packaging/rpm/build", **env), re.MULTILINE)
    package = Path(shutil.move(ROOT / built, tmp_path))

    def asked(*what: str) -> str:
        return build("rpm", "--query", *what, "--package", str(package))

    assert asked("--queryformat", "%{VERSION}").endswith("1.0~dev1")
    needs = asked("--requires").split("\n")
    (minor,) = re.findall(r"python3\.(\d+)$", os.readlink(tree_python(package, tmp_path)))
    assert f"/usr/bin/python3.{minor}" in needs
    assert [line for line in needs if line.startswith("glibc >= 2.")]
    assert not [line for line in needs if ".so" in line]  # libraries of the package are its own
    files = {line for line in asked("--list").split("\n") if line.startswith("/usr")}
    staged = {f"/{path.relative_to(stage)}" for path in stage.rglob("*") if path.is_file()}
    kept = {path for path in staged if path.startswith("/usr") and "vendor-comp" not in path}
    assert kept <= files
    assert "/usr/share/zsh/site-functions/_coalloc" in files
    assert asked("--configfiles").split() == ["/etc/coalloc/coallocd.toml"]
    said = asked("--scripts")
    for part in re.split(r"^\w+ \S*\(using (?:/bin/sh)\):$", said, flags=re.MULTILINE)[1:]:
        subprocess.run(["sh", "-n"], input=part, text=True, check=True)
    assert said.count("using /bin/sh") == 3
    program = tmp_path / "tree/usr/lib/coalloc/bin"
    version = build(str(program / "python3"), "-I", str(program / "coalloc"), "--version")
    assert version.startswith("coalloc ")


def tree_python(package: Path, folder: Path) -> Path:
    """The interpreter's link in the package, laid out in a folder."""
    tree = folder / "tree"
    tree.mkdir()
    unpack = 'rpm2cpio "$1" | cpio --quiet --extract --make-directories'
    subprocess.run(["sh", "-c", unpack, "sh", str(package)], cwd=tree, check=True)
    return tree / "usr/lib/coalloc/bin/python3"
