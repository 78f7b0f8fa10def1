"""The daemon's table of public keys: whose each is, and what it may be used for.

One file holds it: a header, then one line of JSON for each change, of which the last about a key
counts. A change appends its line and synchronises it before anything relies on it, so that it costs
the same in a table of any length. A revoked key is never forgotten: its thief could enrol it as his
own, and run what its owner's forgotten clients submit. Instead the keys that a user may enrol in
all are limited.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from coalloc.adapters.runner import durable
from coalloc.wire.curve import is_key

FORMAT = "coalloc-keys/1"
MAX_KEYS_PER_USER = 20
MAX_KEYS_EVER = 200
"""Of one user, the revoked ones included, that he may enrol without root's help."""
MIN_PREFIX = 8
"""A key may be named by as many of its first characters, if no other begins so."""


class KeyTableError(Exception):
    """A key cannot be authorized or revoked, or the table cannot be read or written.

    The `code` tells refusals apart whose texts contain what was asked.
    """

    def __init__(self, message: str, code: str = "unusable") -> None:
        super().__init__(message)
        self.code = code


class Role(StrEnum):
    """Purpose of a key."""

    SUBMIT = "submit"
    """To queue jobs, and to see and end one's own."""
    OPERATOR = "operator"
    """Everybody's jobs, and the service."""
    EXECUTOR = "executor"
    """To speak for clusters, and nothing else."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """One key."""

    key: str
    """Public."""
    user: str
    uid: int
    gid: int
    role: Role = Role.SUBMIT
    clusters: tuple[str, ...] = ()
    """Those that an executor's key speaks for."""
    by: str = ""
    """Who authorized it."""
    added: float = 0.0
    """Seconds since 1970; None: it is not revoked."""
    revoked: float | None = None


class _Header(msgspec.Struct, kw_only=True):
    format: str


def parse_table(raw: bytes, path: Path) -> tuple[dict[str, Grant], int]:
    """Read the bytes of a table; `KeyTableError` where they are none's.

    Returns its grants, and the bytes up to the end of the last whole line: what follows was never
    acknowledged.
    """
    size = raw.rfind(b"\n") + 1
    first, *rest = raw[:size].splitlines() or [b""]
    try:
        header = msgspec.json.decode(first, type=_Header)
        if header.format != FORMAT:
            raise ValueError(f"format: {header.format!r} is not {FORMAT}")
        grants = [msgspec.json.decode(line, type=Grant) for line in rest]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise KeyTableError(f"{path}: {error}") from error
    return {grant.key: grant for grant in grants}, size


class KeyTable:
    """Grants by key, none without its file; one that is damaged or open to others is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._grants: dict[str, Grant] = {}
        self._of_user: dict[int, dict[str, None]] = {}
        self._size = 0
        self._load()

    def _load(self) -> None:
        try:
            with open(self.path, "rb") as file:
                found = os.fstat(file.fileno())
                raw = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise KeyTableError(f"{self.path}: {error.strerror}") from error
        if found.st_uid not in {os.geteuid(), 0} or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise KeyTableError(f"{self.path}: others than the daemon may write to it")
        grants, self._size = parse_table(raw, self.path)
        for grant in grants.values():
            self._take_in(grant)

    def live(self, key: str) -> Grant | None:
        grant = self._grants.get(key)
        return None if grant is None or grant.revoked is not None else grant

    def known(self, key: str) -> Grant | None:
        return self._grants.get(key)

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._grants.values())

    def of_user(self, uid: int) -> list[Grant]:
        """All keys of one user, revoked ones too, in the order of their enrolment."""
        return [self._grants[key] for key in self._of_user.get(uid, ())]

    def check(self, grant: Grant, *, by_admin: bool = True) -> None:
        """Refuse a key that cannot be taken in, by `KeyTableError`.

        `by_admin`: root, or the daemon's user, asks; then only live keys are counted.
        """
        if not is_key(grant.key):
            raise KeyTableError("key: is not a public key of 40 characters", "not_a_key")
        if (grant.role is Role.EXECUTOR) != bool(grant.clusters):
            raise KeyTableError(
                "clusters: an executor's key names its clusters, no other key does", "bad_clusters"
            )
        old = self._grants.get(grant.key)
        if old is not None and old.revoked is not None:
            raise KeyTableError("key: was revoked, and stays so; make another", "revoked")
        if old is not None and old.uid != grant.uid:
            raise KeyTableError("key: belongs to another user", "anothers")
        if old is not None:
            return
        mine = self.of_user(grant.uid)
        live = sum(other.revoked is None for other in mine)
        if live >= MAX_KEYS_PER_USER:
            raise KeyTableError(
                f"{grant.user} has {live} keys, at most {MAX_KEYS_PER_USER}; revoke one",
                "too_many_keys",
            )
        if len(mine) >= MAX_KEYS_EVER and not by_admin:
            raise KeyTableError(
                f"{grant.user} has enrolled {len(mine)} keys, revoked ones included, at most "
                f"{MAX_KEYS_EVER}; root may authorize more",
                "too_many_keys",
            )

    def authorize(self, grant: Grant, *, by_admin: bool = True) -> None:
        """Take in a key that `check` lets pass, or give one that its owner has another role."""
        self.check(grant, by_admin=by_admin)
        self._put(grant)

    def revoke(self, key: str, now: float) -> Grant:
        """Take away what a key may do, for ever; returns what it was."""
        grant = self._grants[key]
        if grant.revoked is None:
            grant = msgspec.structs.replace(grant, revoked=now)
            self._put(grant)
        return grant

    def named(self, text: str, uid: int | None) -> Grant:
        """The key with this beginning, among all or one user's. Raises `KeyTableError`."""
        if len(text) < MIN_PREFIX:
            raise KeyTableError(
                f"key: name at least its first {MIN_PREFIX} characters", "not_named"
            )
        among = self if uid is None else self.of_user(uid)
        found = [grant for grant in among if grant.key.startswith(text)]
        if len(found) != 1:
            many = "more than one key begins" if found else "no key that you may revoke begins"
            raise KeyTableError(f"key: {many} with {text!r}", "not_named")
        return found[0]

    def _take_in(self, grant: Grant) -> None:
        self._grants[grant.key] = grant
        self._of_user.setdefault(grant.uid, {})[grant.key] = None

    def _put(self, grant: Grant) -> None:
        """On disk first, then in memory."""
        if not (self._size and self.path.exists()):
            self._write_anew()
        line = _line(grant)
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(descriptor, "r+b", buffering=0) as file:
                try:
                    # Also cuts off what a crash, or a full disk, has left of a line before.
                    file.truncate(self._size)
                    file.seek(self._size)
                    left = memoryview(line)
                    while left:
                        left = left[os.write(file.fileno(), left) :]
                    os.fsync(file.fileno())
                except OSError:
                    with suppress(OSError):
                        file.truncate(self._size)
                    raise
        except OSError as error:
            raise self._unwritable(error) from error
        self._size += len(line)
        self._take_in(grant)

    def _write_anew(self) -> None:
        """One line for each key, in a file that takes the place of the old one."""
        body = b"".join([_line(_Header(format=FORMAT)), *map(_line, self)])
        try:
            durable.write(self.path, body)
        except OSError as error:
            raise self._unwritable(error) from error
        self._size = len(body)

    def _unwritable(self, error: OSError) -> KeyTableError:
        return KeyTableError(f"{self.path}: {error.strerror}; nothing was changed", "storage")


def _line(value: Grant | _Header) -> bytes:
    return msgspec.json.encode(value) + b"\n"
