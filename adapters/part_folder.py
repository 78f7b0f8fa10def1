"""The folder of one part: what the launcher puts in, orders, and reads back.

::

    STATE_DIR/news                      FIFO: the runners' hints that something changed
    STATE_DIR/part+JOB+ATTEMPT+PART/
        spec.json                       what to run (the runner's `spec`)
        grant.json, layout.json         of a claim that might wait: its nodes, all of its job
        limit.json                      its time limit, where that was changed
        barrier                         FIFO with orders for the runner
        lock                            flocked from the claim to the runner's end
        status                          see `runner.status`
        user/script, user/hostfile      what the job's processes read, and cannot change

Nothing in it belongs to the user of the job: this is the executor's disk.

The lock is taken by the launcher and handed to the runner: it is free only when the runner is
dead, whoever started it and whatever was restarted since, and no process id needs to be
remembered. Who finds it free and no end recorded, holds it, and records the end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

from msgspec import MsgspecError, convert, structs, to_builtins

from coalloc.adapters.base import AdapterError
from coalloc.adapters.fork_server import kill_marked
from coalloc.adapters.runner import cgroup
from coalloc.adapters.runner.grant import PER_NODE, per_node, ranks_on
from coalloc.adapters.runner.spec import OwnPlace, RunnerSpec
from coalloc.adapters.runner.status import (
    END,
    PAGE,
    READY,
    RUN,
    START,
    boot_id,
    decoded,
    encoded,
)
from coalloc.adapters.sweeper import removed
from coalloc.model.formats.nodeset import fold
from coalloc.model.shape import ONE_SLOT, Shape, is_gpu
from coalloc.model.sites.parts import (
    Launch,
    PartKey,
    PartReport,
    PartSpec,
    PartState,
    worst_exit_code,
)
from coalloc.model.values import replace

NEW = ".new-"
# linux/posix_acl.h, linux/posix_acl_xattr.h
ACL_VERSION = 2
ACL_USER_OBJ, ACL_USER, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
ACL_UNDEFINED = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFolder:
    """One part on disk."""

    path: Path
    key: PartKey
    nodes: Mapping[str, int]
    """Processes on each node, in rank order."""
    claim: str = ""
    """Marks its processes' environments."""
    cgroup: str = ""
    """Folder of the cgroup in which they are; empty: none."""
    shape: Shape = ONE_SLOT
    memory_mb_per_proc: int = 0
    places: Sequence[Mapping[str, Any]] = ()
    """Of processes that have CPUs or GPUs of their node for themselves."""
    members: Sequence[PartKey] = ()
    """Members that run behind it."""

    @classmethod
    def create(
        cls,
        root: Path,
        spec: PartSpec,
        *,
        places: Mapping[str, Sequence[OwnPlace]] | None = None,
        extra: Mapping[str, object] | None = None,
        claim: str = "",
        address: str = "",
    ) -> Self:
        """Write the folder of a new part; it appears complete or not at all. Raises `OSError`.

        `places` are what each process on a node has for itself, `extra` is what this kind of runner
        needs to know besides; `address` reaches all nodes, where nothing resolves their names.
        """
        claim = claim or secrets.token_hex(16)
        path, draft = root / spec.key.folder, root / f"{NEW}{claim}"
        try:
            draft.mkdir(mode=0o711)
            record = {**_runner_spec(spec, path / "user", places or {}, claim), **(extra or {})}
            _write(draft / "spec.json", json.dumps(record), 0o600)
            _write(draft / "lock", "", 0o600)
            os.mkfifo(draft / "barrier", 0o600)
            write_users(draft / "user", spec, address)
            draft.rename(path)
        except Exception:
            removed(draft)
            raise
        return cls._of(path, spec.key, record)

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Read a folder that an earlier launcher wrote; None if it is not a part's."""
        key = PartKey.of_folder(path.name)
        if key is None or not path.is_dir():
            return None
        # After a loss of power the spec may be empty; the status is what counts.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, MsgspecError):
            return cls._of(path, key, json.loads((path / "spec.json").read_bytes()))
        return cls(path=path, key=key, nodes={})

    @classmethod
    def _of(cls, path: Path, key: PartKey, record: Mapping[str, Any]) -> Self:
        """The folder of a part with this specification."""
        return cls(
            path=path,
            key=key,
            nodes=dict(Counter(rank["node"] for rank in record["ranks"])),
            claim=record["claim"],
            cgroup=record.get("cgroup", ""),
            shape=convert(record.get("shape", {}), Shape),
            memory_mb_per_proc=record.get("memory_mb_per_proc", 0),
            places=[rank for rank in record["ranks"] if rank.get("cpus") or rank.get("gpus")],
            members=[
                PartKey(job=each["job"], attempt=each["attempt"], part=0)
                for each in record.get("members", ())
            ],
        )

    def order(self, line: str) -> bool:
        """Send the runner one line; False where none lives, `AdapterError` where it reads none."""
        try:
            fd = os.open(self.path / "barrier", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno == errno.ENXIO:
                return False
            raise
        try:
            os.write(fd, line.encode(errors="replace")[: PAGE // 2] + b"\n")
        except BlockingIOError as error:
            raise AdapterError(f"{self.key.folder}: its runner does not read its orders") from error
        except BrokenPipeError:
            return False
        finally:
            os.close(fd)
        return True

    def report(self) -> PartReport:
        """Report on the part; records the end of one whose runner is dead."""
        status = self.status()
        end = decoded(status[END * PAGE :])
        if end is not None:
            return ended_report(self.key, end)
        with self.locked() as is_ours:
            if is_ours:  # looked for once more: it may have been written meanwhile
                status = self.status()
                end = decoded(status[END * PAGE :])
                return self._sealed(status) if end is None else ended_report(self.key, end)
        if not self.path.is_dir():
            return self._vanished()
        return self.reached(status)

    def reached(self, status: bytes, reason: str = "") -> PartReport:
        """The newest step of a part that has not ended."""
        run = decoded(status[RUN * PAGE : END * PAGE])
        # Between START and RUN it is still reported ready: its start time is not yet known.
        is_ready = decoded(status[READY * PAGE : START * PAGE]) is not None
        state = PartState.READY if is_ready else PartState.PREPARING
        report = self.key.report(state, reason=reason)
        running = PartState.RUNNING
        return report if run is None else replace(report, state=running, started=run["started"])

    def left(self) -> int:
        """Processes that lived when the part's end was written without theirs, and live on."""
        end = decoded(self.status()[END * PAGE :]) or {}
        if not end.get("left"):
            return 0
        with self.locked() as is_ours:
            return 0 if is_ours else int(end["left"])

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the lock, if no runner does; says whether it is held."""
        try:
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # forgotten meanwhile
            yield False
            return
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours = True
            except BlockingIOError:
                is_ours = False
            yield is_ours
        finally:
            os.close(fd)

    def status(self) -> bytes:
        try:
            return (self.path / "status").read_bytes()
        except FileNotFoundError:
            return b""

    def _sealed(self, status: bytes) -> PartReport:
        """The end of a part whose runner died, which is written."""
        if not cgroup.end(self.cgroup):
            return self.reached(status)
        start = status[START * PAGE : RUN * PAGE]
        begun = decoded(start)
        is_rebooted = begun is not None and begun.get("boot") != boot_id()
        if not start.strip(b"\0"):
            state, reason = PartState.REFUSED, "runner_died"
            detail = "its runner died before anything was started"
        elif is_rebooted:
            state, reason = PartState.LOST, "restarted"
            detail = "the machine was restarted while it ran"
        else:
            state, reason = PartState.LOST, "runner_died"
            detail = "its runner was killed; how its processes ended is not known"
        if self.claim and not is_rebooted:
            kill_marked(f"COALLOC_CLAIM={self.claim}")
        run = decoded(status[RUN * PAGE : END * PAGE]) or {}
        end = {"state": str(state), "reason": reason, "detail": detail, "ended": time.time(), **run}
        with contextlib.suppress(OSError):  # a full disk: it is worked out anew next time
            fd = os.open(self.path / "status", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(fd, encoded(end), END * PAGE)
                os.fdatasync(fd)
            finally:
                os.close(fd)
        return ended_report(self.key, end)

    def _vanished(self) -> PartReport:
        """The end of a part whose folder somebody removed: nobody can direct it any more."""
        cgroup.kill(self.cgroup)
        if self.claim:
            kill_marked(f"COALLOC_CLAIM={self.claim}")
        return self.key.report(
            PartState.LOST,
            ended=time.time(),
            reason="state_removed",
            detail=f"{self.path} was removed while it ran",
        )


def ended_report(key: PartKey, end: Mapping[str, Any]) -> PartReport:
    """A report from the record of an end."""
    codes = tuple(end.get("codes", ()))
    return key.report(
        PartState(end["state"]),
        exit_code=worst_exit_code(codes),
        codes=codes,
        started=end.get("started"),
        ended=end["ended"],
        reason=end["reason"],
        detail=end["detail"],
        cpu_s=end.get("cpu_s"),
        max_rss_mb=end.get("max_rss_mb"),
    )


def _runner_spec(
    spec: PartSpec, user: Path, places: Mapping[str, Sequence[OwnPlace]], claim: str
) -> RunnerSpec:
    launch = spec.launch or Launch(argv=())
    given = {**structs.asdict(launch), **structs.asdict(spec)}
    own = {
        "claim": claim,
        "script": str(user / "script") if launch.script else "",
        "env": _environment(spec, launch),
        "ranks": ranks_on(spec.nodes.items(), spec.first_rank, places),
        "nodelist": fold(spec.all_nodes),
        "hostfile": str(user / "hostfile"),
        "time_limit_s": spec.time_limit,
        "queue": None if spec.queue is None else structs.asdict(spec.queue),
        "shape": to_builtins(spec.shape),
    }
    if spec.members:
        own["members"] = to_builtins(spec.members)
    keys = RunnerSpec.__required_keys__ & given.keys()
    return cast("RunnerSpec", {**{name: given[name] for name in keys}, **own})


def _environment(spec: PartSpec, launch: Launch) -> dict[str, str]:
    """The user's variables, and those that tell of the shape, none of which an outer job left."""
    cpus = spec.shape.cpus_per_proc
    gpus = (count for name, count in spec.shape.per_proc.items() if is_gpu(name))
    told = {"COALLOC_CPUS_PER_TASK": cpus, "COALLOC_GPUS_PER_TASK": sum(gpus)}
    old = {PER_NODE, "COALLOC_GPUS", *told}
    return {
        # a script of one CPU for each process may start one that uses them all
        **({"OMP_NUM_THREADS": str(cpus)} if cpus > spec.once else {}),
        **{name: value for name, value in launch.env.items() if name not in old},
        **{name: str(count) for name, count in told.items() if count},
        **per_node(spec.all_nodes.values()),
    }


def write_users(folder: Path, spec: PartSpec, address: str = "") -> None:
    """Write the files that the job's processes read, closed to others and to writing."""
    folder.mkdir(mode=0o700)
    own = dict.fromkeys(spec.nodes, address) if address else {}
    slots = Counter[str]()
    for node, count in spec.all_nodes.items():
        slots[own.get(node, node)] += count
    hosts = "".join(f"{host} slots={count}\n" for host, count in slots.items())
    _write(folder / "hostfile", hosts, 0o600)
    if spec.launch is not None and spec.launch.script:
        encoding = "latin-1" if spec.launch.script_bytes else "utf-8"
        _write(folder / "script", spec.launch.script, 0o700, encoding)
    if spec.uid is not None and os.geteuid() == 0:
        for path in [*folder.iterdir(), folder]:
            _let_read(path, spec.uid)


def _let_read(path: Path, uid: int) -> None:
    """Let a user read a file of root's, and execute it where root may.

    A file of its own, however small, a user could enlarge.
    """
    mode = path.stat().st_mode
    rights = (mode >> 6) & 0o5
    entries = (
        (ACL_USER_OBJ, (mode >> 6) & 0o7, ACL_UNDEFINED),
        (ACL_USER, rights, uid),
        (ACL_GROUP_OBJ, 0, ACL_UNDEFINED),
        (ACL_MASK, rights, ACL_UNDEFINED),
        (ACL_OTHER, 0, ACL_UNDEFINED),
    )
    packed = struct.pack("<I", ACL_VERSION) + b"".join(struct.pack("<HHI", *e) for e in entries)
    os.setxattr(path, "system.posix_acl_access", packed)


def _write(path: Path, text: str, mode: int, encoding: str = "utf-8") -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(fd, "w", encoding=encoding, errors="surrogateescape", newline="") as file:
        os.fchmod(fd, mode)
        file.write(text)
