"""A clean Debian beside the running one: its essential packages and what one package needs, copied.

It is a file tree with name spaces of its own (mounts, processes, network), entered by chroot, so
that what is installed in it touches nothing of the machine. Its first process is systemd, in a
control group of its own; it has no network but loopback.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

STATUS = Path("/var/lib/dpkg/status")
INFO = Path("/var/lib/dpkg/info")
TOOLS = ("dpkg", "dpkg-deb", "unshare", "nsenter", "chroot", "tar", "ip")
APART = (
    *("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--fork"),
    "--kill-child",
)
ALSO = "systemd, systemd-sysv, dbus, apt"
"""What a machine has beside its essential packages."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
LEFT_OUT = ("/usr/share/doc/", "/usr/share/locale/", "/usr/share/info/")
LIMIT_S = 300.0

FIRST = f"""
ip link set lo up
mount --make-rprivate /
mount --bind . "$PWD"
cd "$PWD"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup sys/fs/cgroup
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=755 dev dev
for one in {" ".join(DEVICES)}; do
  touch dev/$one
  mount --bind /dev/$one dev/$one
done
mkdir -m 1777 dev/shm
mkdir dev/pts
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
chroot . dpkg --configure --pending >&2
echo ready
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
  chroot . /lib/systemd/systemd --show-status=no --log-target=null
"""
"""What the first process does before it becomes systemd, in the root's folder."""


def why_not() -> str:
    """What is missing for a root of this kind; empty: nothing."""
    if not STATUS.exists():
        return "this is no Debian"
    if os.geteuid() != 0:
        return "a chroot needs root"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"not installed: {', '.join(missing)}"
    try:
        group = _new_group()
    except OSError as error:
        return f"no control group for systemd: {error}"
    group.rmdir()
    tried = subprocess.run(
        [*APART, "mount", "-t", "cgroup2", "none", "/mnt"],
        capture_output=True,
        text=True,
    )
    return f"no name spaces here: {tried.stderr.strip()}" if tried.returncode else ""


def _new_group() -> Path:
    """A control group below this process's own, in the hierarchy of version 2."""
    mounts = re.findall(r"^\S+ (\S+) cgroup2 ", Path("/proc/mounts").read_text("utf-8"), re.M)
    own = re.search(r"^0::/(.*)$", Path("/proc/self/cgroup").read_text("utf-8"), re.M)
    if not mounts or own is None:
        raise OSError("no cgroup2 is mounted")
    group = Path(mounts[0], own[1], f"debian-{uuid.uuid4().hex}")
    group.mkdir()
    return group


def installed() -> dict[str, tuple[str, Mapping[str, str]]]:
    """By each name that a package has or provides: its stanza, and the stanza's fields."""
    found: dict[str, tuple[str, Mapping[str, str]]] = {}
    provided: dict[str, tuple[str, Mapping[str, str]]] = {}
    for stanza in STATUS.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", stanza, re.MULTILINE))
        if fields.get("Status") == "install ok installed":
            found.setdefault(fields["Package"], (stanza, fields))
            for name in names(fields.get("Provides", "")):
                provided.setdefault(name[0], (stanza, fields))
    return {**provided, **found}


def names(relation: str) -> list[list[str]]:
    """The alternatives of each term of a Depends field, without versions."""
    return [
        [re.sub(r"[\s(:].*", "", other.strip()) for other in term.split("|")]
        for term in relation.split(",")
        if term.strip()
    ]


def closure(depends: str) -> list[tuple[str, Mapping[str, str]]]:
    """The essential packages, those that ``depends`` names, and all that they need."""
    here = installed()
    waiting = [[name] for name, (_, fields) in here.items() if fields.get("Essential") == "yes"]
    waiting += names(depends)
    chosen: dict[str, tuple[str, Mapping[str, str]]] = {}
    while waiting:
        term = waiting.pop()
        name = next((name for name in term if name in here), None)
        if name is None:
            raise LookupError(f"none of {' | '.join(term)} is installed on this machine")
        stanza, fields = here[name]
        if fields["Package"] not in chosen:
            chosen[fields["Package"]] = (stanza, fields)
            waiting += names(fields.get("Pre-Depends", "")) + names(fields.get("Depends", ""))
    return list(chosen.values())


class DebianRoot:
    """The root in ``folder``, which is made; `boot` and `close` are the machine's power switch."""

    def __init__(self, folder: Path, depends: str) -> None:
        self.folder = folder
        self._keeper: subprocess.Popen[bytes] | None = None
        self._copy(closure(f"{depends}, {ALSO}"))
        self._accounts()

    def _copy(self, packages: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        database = self.folder / "var/lib/dpkg"
        for folder in ("info", "updates", "triggers"):
            (database / folder).mkdir(parents=True)
        for name in LINKS:
            if Path("/", name).is_symlink():
                (self.folder / name).symlink_to(os.readlink(Path("/", name)))
                (self.folder / os.readlink(self.folder / name)).mkdir(parents=True, exist_ok=True)
        shutil.copy(INFO / "format", database / "info")
        paths: set[str] = {"/usr/bin/awk"}
        stanzas = []
        for stanza, fields in packages:
            stanzas.append(stanza)
            name = fields["Package"]
            lists = [INFO / f"{name}.list", INFO / f"{name}:{fields['Architecture']}.list"]
            start = next(path for path in lists if path.exists()).name.removesuffix("list")
            for path in INFO.glob(f"{start}*"):
                if "." not in path.name.removeprefix(start):  # "python3.", and not "python3.11."
                    shutil.copy(path, database / "info" / path.name)
            paths |= set((INFO / f"{start}list").read_text(encoding="utf-8").split("\n"))
        (database / "status").write_text("\n\n".join(stanzas) + "\n", encoding="utf-8")
        wanted = sorted(
            path
            for path in paths
            if path not in ("", "/.", *(f"/{name}" for name in LINKS))
            and not path.startswith(LEFT_OUT)
            and os.path.lexists(path)
        )
        listed = self.folder / "list"
        listed.write_text("\n".join([*wanted, "/etc/alternatives"]), encoding="utf-8")
        pack = ["tar", "-C", "/", "--no-recursion", "-cf", "-", "-T", str(listed)]
        unpack = ["tar", "-C", str(self.folder), "--keep-directory-symlink", "-xf", "-"]
        with subprocess.Popen(pack, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as packing:
            subprocess.run(unpack, stdin=packing.stdout, check=True)
        assert packing.returncode == 0
        shutil.copytree(
            "/etc/alternatives",
            self.folder / "etc/alternatives",
            symlinks=True,
            dirs_exist_ok=True,
        )
        listed.unlink()

    def _accounts(self) -> None:
        """What base-passwd writes when configured, the empty folders, the machine's number."""
        for name in ("passwd", "group"):
            master = self.folder / f"usr/share/base-passwd/{name}.master"
            shutil.copy(master, self.folder / "etc" / name)
        for name in ("dev", "proc", "run", "root", "sys", "tmp", "var/tmp"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for name in ("tmp", "var/tmp"):
            (self.folder / name).chmod(0o1777)
        (self.folder / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n", encoding="ascii")

    def boot(self) -> None:
        """Start systemd as the first process of new name spaces; return when all is started."""
        self._group = _new_group()
        join = f"echo $$ > {self._group}/cgroup.procs; exec {shlex.join(APART)} "
        self._keeper = subprocess.Popen(
            ["sh", "-ec", f"{join} sh -ec {shlex.quote(FIRST)}"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == b"ready\n", "the root could not be entered"
        end = time.monotonic() + LIMIT_S
        started = self.command("systemctl", "is-system-running", "--wait")
        while (said := subprocess.run(started, capture_output=True).stdout) != b"running\n":
            is_late = said == b"degraded\n" or time.monotonic() > end
            assert not is_late, self.run("systemctl", "--failed").stdout
            time.sleep(0.1)

    def _first(self) -> str:
        """Number of the first process in the root, seen from here."""
        assert self._keeper is not None
        children = Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}/children")
        return children.read_text(encoding="ascii").split()[0]

    def command(self, *words: str, env: Mapping[str, str] | None = None) -> list[str]:
        """The command that runs these words in the root, as root."""
        given = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
        pairs = [f"{name}={value}" for name, value in {**given, **(env or {})}.items()]
        inside = ["nsenter", "-t", self._first(), "--all", "--root", "--wd"]
        return [*inside, "env", "-i", "-C", "/tmp", *pairs, *words]

    def run(
        self, *words: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run them to their end, which must be 0."""
        done = subprocess.run(
            self.command(*words, env=env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}"
        return done

    def close(self) -> None:
        """End every process in it, and delete it."""
        if self._keeper is not None:
            os.kill(int(self._first()), signal.SIGKILL)
            self._keeper.wait()
            assert self._keeper.stdout is not None
            self._keeper.stdout.close()
            for group, _, _ in os.walk(self._group, topdown=False):
                Path(group).rmdir()
        shutil.rmtree(self.folder)
