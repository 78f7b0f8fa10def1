"""Runs a command under as much of a unit's sandbox as can be had without a service manager.

``python -m tests.support.sandbox UNIT FOLDER[:FOLDER…] COMMAND…`` applies to itself, and then runs
the
command with:

- the unit's filters of system calls and address families (libseccomp; the sets come from
  ``systemd-analyze syscall-filter``), no new privileges, an empty capability bounding set;
- where name spaces may be made: everything read-only but the folders, which stand for the state,
  cache, runtime and temporary ones, as under ``ProtectSystem=strict``; it runs in the first.

Not tried: `ProtectProc`, `PrivateDevices`, cgroups, the lesser filters (`RestrictRealtime`,
`RestrictSUIDSGID`, `LockPersonality`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

ALLOW, ERRNO = 0x7FFF_0000, 0x0005_0000
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24
CLONE_NEWNS = 0x0002_0000
CMP_EQ = 4
LIBRARY = "libseccomp.so.2"
LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")


class Comparison(ctypes.Structure):
    """``struct scmp_arg_cmp`` of seccomp_rule_add(3)."""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


def missing() -> str:
    """What this machine lacks for a sandbox; empty: nothing."""
    if shutil.which("systemd-analyze") is None:
        return "systemd-analyze is not installed"
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return f"{LIBRARY} is not installed"
    return ""


def values(unit: Path, key: str) -> list[str]:
    """The assignments of a key in a unit, in order."""
    lines = unit.read_text(encoding="utf-8").splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]


def members(name: str) -> set[str]:
    """The system calls of a set such as ``@system-service``, or the one call."""
    if not name.startswith("@"):
        return {name}
    told = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager", name],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.strip() for line in told.stdout.splitlines()[1:]]
    found: set[str] = set()
    for line in lines:
        if line and not line.startswith("#"):
            found |= members(line)
    return found


def allowed_calls(unit: Path) -> set[str]:
    """What the unit's `SystemCallFilter` lines let through."""
    calls = members("@default")
    for line in values(unit, "SystemCallFilter"):
        for name in line.removeprefix("~").split():
            calls = calls - members(name) if line.startswith("~") else calls | members(name)
    return calls


def apply_filter(calls: set[str], families: list[str]) -> None:
    """Let these calls and address families through; the rest fails with EPERM.

    Raises
    ------
    OSError
        The filter cannot be loaded.
    """
    seccomp = ctypes.CDLL(LIBRARY)
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(ERRNO | errno.EPERM)))
    for call in calls:
        number = seccomp.seccomp_syscall_resolve_name(call.encode())
        if number < 0:
            continue  # not of this architecture
        rules = [()] if call != "socket" else [(int(socket.AddressFamily[f]),) for f in families]
        for rule in rules:
            match = (Comparison * len(rule))(*(Comparison(0, CMP_EQ, a, 0) for a in rule))
            code = seccomp.seccomp_rule_add_array(context, ALLOW, number, len(rule), match)
            if code < 0:
                raise OSError(-code, f"seccomp rule for {call}")
    code = seccomp.seccomp_load(context)
    if code < 0:
        raise OSError(-code, "seccomp_load")


def close_files(folders: list[Path]) -> bool:
    """Make all but these read-only for this process and its children; whether that worked."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0:
        return False
    steps = (
        ["mount", "--make-rprivate", "/"],
        *(["mount", "--bind", str(folder), str(folder)] for folder in folders),
        ["mount", "-o", "remount,bind,ro", "/"],
    )
    return all(subprocess.run(step, capture_output=True).returncode == 0 for step in steps)


def drop_privileges() -> None:
    """No capabilities from the next exec on, and none regained by it."""
    libc = ctypes.CDLL(None)
    for number in range(int(LAST_CAPABILITY.read_text()) + 1):
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError("no_new_privs")


def main() -> None:
    """Apply the sandbox and become the command."""
    unit, command = Path(sys.argv[1]), sys.argv[3:]
    folders = [Path(folder).resolve() for folder in sys.argv[2].split(":")]
    calls = allowed_calls(unit)
    families = values(unit, "RestrictAddressFamilies")[-1].split()
    if not close_files(folders):
        print("files are not closed: no name spaces here", file=sys.stderr)
    os.chdir(folders[0])
    os.environ["TMPDIR"] = str(folders[0])
    drop_privileges()
    apply_filter(calls, families)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
