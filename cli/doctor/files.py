"""Findings that need no daemon: folders, keys, disk, compiled code, commands of batch systems."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from coalloc.cli.doctor.findings import Finding, Level, ok, problem, unknown, warning
from coalloc.model.settings import ClusterConfig, Config
from coalloc.runtime.key_files import KeyFileError, parse_key, read_key, user_key_path
from coalloc.runtime.user import user_name

EXECUTORS = Path("/var/lib/coalloc-executor")
"""State of the executors that systemd runs; users pass through it to their jobs."""
LITTLE_BYTES, NO_BYTES = 1 << 30, 100 << 20
"""A disk with less is soon full; with less than the second, as good as full."""
FEW_FILES = 1000
"""Inodes: a job's part takes some ten."""
OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO
WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "slurm": ("scontrol", "sinfo", "squeue", "sbatch", "salloc", "srun", "scancel"),
    "gridengine": ("qstat", "qsub", "qdel", "qconf", "qhost"),
    "oar": ("oarnodes", "oarstat", "oarsub", "oardel"),
}
"""What an executor calls, by adapter."""


def file_findings(config: Config, path: Path | None) -> Iterator[Finding]:
    """Look at everything of this machine that the configuration names."""
    if path is not None:
        yield _configuration_file(path)
    yield state_finding(config)
    if config.daemon.mode == "multi-user" and _is_there(EXECUTORS):
        modes = _state_modes(EXECUTORS, True, True)
        unseen = partial(unknown, todo="ask again as root")
        yield _folder_finding("executors' state folder", EXECUTORS, modes, unseen, "")
    yield _runtime_folder(config)
    yield from _disks(config)
    if config.daemon.mode == "multi-user":
        yield from _keys(config)
    yield _curve(config)


def _configuration_file(path: Path) -> Finding:
    """Others must not write to it: it names programs that the daemon runs."""
    mode = path.stat().st_mode
    if mode & stat.S_IWOTH:
        return problem("configuration file", f"{path}: all may write to it", f"chmod o-w {path}")
    return ok("configuration file", f"{path}, mode {stat.S_IMODE(mode):04o}")


class Mode(Struct, frozen=True):
    """A mode that a folder must have."""

    bits: int
    """Of which it has these."""
    wanted: int
    text: str
    """Meaning of another mode, and the command that mends it."""
    todo: str
    finding: Callable[[str, str, str], Finding] = problem


def state_finding(config: Config) -> Finding:
    """Judge the folder of the store: its file system and its mode."""
    from coalloc.daemon.store.beside import mount_of

    about, folder = "state folder", Path(config.daemon.state_dir)
    is_shared = config.daemon.mode == "multi-user"
    modes = _state_modes(folder, is_shared, is_shared and _is_there(folder / "executors"))
    unseen = partial(unknown, todo="ask again as the daemon's user")
    made = "the daemon makes it when it first starts"
    found = _folder_finding(about, folder, modes, unseen, made)
    mount = None if found.level is Level.UNKNOWN else mount_of(folder)
    if mount is not None and mount.is_network:
        return problem(
            about,
            f"{folder} lies on {mount.type}, on which locks do not hold",
            "name a folder on a local disk as daemon.state_dir",
        )
    return found


def _state_modes(folder: Path, is_shared: bool, is_passed: bool) -> list[Mode]:
    """The modes that a state folder must have; users pass through it where jobs lie in it."""
    mend = f"chmod {'711' if is_shared else '700'} {folder}"
    seen_into = 0o044 if is_shared else OPEN_TO_OTHERS
    passed = [Mode(0o011, 0o011, "users cannot pass to their jobs", mend)] if is_passed else []
    return [
        Mode(WRITTEN_BY_OTHERS, 0, "others may write", mend),
        *passed,
        Mode(seen_into, 0, "others may look in", mend, warning),
        Mode(0o700, 0o700, "its owner cannot write", mend),
    ]


def _runtime_folder(config: Config) -> Finding:
    folder, is_shared = Path(config.daemon.runtime_dir), config.daemon.mode == "multi-user"
    go, reach = f"chmod go-w {folder}", f"chmod 755 {folder}"
    modes = [Mode(WRITTEN_BY_OTHERS, 0, "others may put sockets there", go)]
    if is_shared:
        modes.append(Mode(stat.S_IXOTH, stat.S_IXOTH, "users cannot reach it", reach))
    unseen = partial(problem, todo="let users pass to it: chmod o+x")
    return _folder_finding(
        "socket folder", folder, modes, unseen, "the daemon makes it when it starts"
    )


def _folder_finding(
    about: str,
    folder: Path,
    modes: Sequence[Mode],
    unseen: Callable[[str, str], Finding],
    made: str,
) -> Finding:
    """Judge a folder by the first mode that it must have and has not.

    `unseen` makes the finding where it cannot be looked at; `made` says what makes it where it is
    not there.
    """
    try:
        found = folder.stat()
    except FileNotFoundError:
        return unknown(about, f"{folder} is not there", made)
    except OSError as error:
        return unseen(about, f"{folder}: {error.strerror}")
    bits = stat.S_IMODE(found.st_mode)
    for mode in modes:
        if bits & mode.bits != mode.wanted:
            return mode.finding(about, f"{folder}: mode {bits:04o}, {mode.text}", mode.todo)
    return ok(about, f"{folder}, mode {bits:04o}, {user_name(found.st_uid)}'s")


def _disks(config: Config) -> Iterator[Finding]:
    seen: set[int] = set()
    folders = {"disk of the store": config.daemon.state_dir}
    folders["disk of compiled code"] = config.solver.cache_dir or config.daemon.state_dir
    for about, folder in folders.items():
        there = _nearest(Path(folder))
        try:
            device, free = there.stat().st_dev, os.statvfs(there)
        except OSError as error:
            yield unknown(about, f"{there}: {error.strerror}")
            continue
        if device not in seen:
            seen.add(device)
            # some file systems do not count their files
            inodes = free.f_favail if free.f_files else None
            yield disk_finding(about, there, free.f_bavail * free.f_frsize, inodes)


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def disk_finding(about: str, where: object, free_bytes: int, inodes: int | None) -> Finding:
    """Judge the room on a disk."""
    is_much = free_bytes >= LITTLE_BYTES
    amount = f"{free_bytes / (1 << 30):.1f} GiB" if is_much else f"{free_bytes >> 20} MiB"
    room = f"{amount} free at {where}"
    if inodes is not None and inodes < FEW_FILES:
        return problem(about, f"room for {inodes} more files at {where}", "remove some")
    if free_bytes < NO_BYTES:
        return problem(about, room, "make room: without it submits are refused")
    if free_bytes < LITTLE_BYTES:
        return warning(about, room, "make room before it is full")
    return ok(about, room)


def _keys(config: Config) -> Iterator[Finding]:
    """Every private key that can be seen from here, and the caller's own."""
    state = Path(config.daemon.state_dir)
    yield key_finding("the daemon's key", state / "server-key.json", "the daemon makes it")
    for cluster in config.clusters:
        places = [folder / "executors" / cluster.name for folder in (EXECUTORS, state)]
        path = next((p / "key.json" for p in places if _is_there(p / "key.json")), None)
        about = f"key of {cluster.name}"
        todo = (
            f"coalloc keys new --file {places[-1]}/key.json --role executor "
            f"--cluster {cluster.name}, where its executor runs"
        )
        if path is not None:
            yield key_finding(about, path, todo)
        elif os.access(state, os.R_OK):
            yield unknown(about, "is not on this machine", todo)
    if os.geteuid() == 0 and not config.access.root_jobs:
        todo = "submit as a user: coalloc keys new; coalloc submit -- hostname"
        yield warning("your jobs", "root's are refused (access.root_jobs)", todo)
    path = None
    try:
        path = user_key_path()
        read_key(path)
    except KeyFileError as error:
        todo = "coalloc keys new" if path is None or not path.exists() else f"chmod 600 {path}"
        yield problem("your key", str(error), todo)
    else:
        yield ok("your key", str(path))


def _is_there(path: Path) -> bool:
    with suppress(OSError):
        path.lstat()
        return True
    return False


def key_finding(about: str, path: Path, missing: str) -> Finding:
    """Judge a private key: its mode, its owner against that of its folder, its content."""
    try:
        found = path.stat()
        owners = {0, os.geteuid(), path.parent.stat().st_uid}
    except FileNotFoundError:
        return unknown(about, f"{path} is not there", missing)
    except OSError as error:
        return unknown(about, f"{path}: {error.strerror}", "ask again as root")
    mode = stat.S_IMODE(found.st_mode)
    if mode & OPEN_TO_OTHERS:
        return problem(
            about,
            f"{path}: mode {mode:04o} lets others in",
            f"chmod 600 {path}; who may have read it? docs/operations/keys.md",
        )
    if found.st_uid not in owners:
        return problem(
            about, f"{path} is {user_name(found.st_uid)}'s", f"chown it to {path.parent}'s owner"
        )
    try:
        parse_key(path.read_bytes(), path)
    except KeyFileError as error:
        return problem(about, str(error), "make another: coalloc keys new --help")
    except OSError:
        return ok(about, f"{path}, mode {mode:04o}")
    return ok(about, f"{path}, mode {mode:04o}, {user_name(found.st_uid)}'s")


def _curve(config: Config) -> Finding:
    from coalloc.wire.curve import is_supported

    if is_supported():
        return ok("encryption", "ZeroMQ has CURVE")
    text, todo = "this ZeroMQ has no CURVE", "install pyzmq from a wheel: pip install pyzmq"
    if config.daemon.mode == "multi-user":
        return problem("encryption", f"{text}, which multi-user mode needs", todo)
    return warning("encryption", text, todo)


def kernels_finding(config: Config) -> Finding:
    """Whether the solver finds compiled code, by the files in its cache."""
    folder = Path(config.solver.cache_dir or config.daemon.state_dir)
    count = sum(1 for _ in folder.rglob("*.nbi")) if os.access(folder, os.R_OK) else None
    if count is None and folder.exists():
        return unknown("compiled code", f"{folder} cannot be read", "ask as the daemon's user")
    if not count:
        return warning(
            "compiled code",
            f"none in {folder}; the first minutes are planned by arrival",
            "coallocd --warm, as the daemon's user",
        )
    return ok("compiled code", f"{count} kernels in {folder}")


def commands_finding(cluster: ClusterConfig) -> Finding | None:
    """Whether the batch system's commands are on this machine; None: it has none."""
    names = COMMANDS.get(cluster.adapter)
    if names is None:
        return None
    about, folder = f"commands of {cluster.name}", str(cluster.settings.get("bin") or "")
    missing = [name for name in names if shutil.which(name, path=folder or None) is None]
    if not missing:
        return ok(about, f"{', '.join(names)}")
    where = folder or "PATH"
    return problem(
        about,
        f"{', '.join(missing)} not found in {where}",
        f"install them, or name their folder as settings.bin of {cluster.name}, or run its "
        "executor on a machine that has them",
    )
