"""The daemon's table of public keys: whose each is, and what it may be used for.

Kept in one file, written whole and synchronised before anything relies on it. A revoked key stays
in the table for ever, so that nobody can enrol it again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from coalloc.wire.curve import is_key

FORMAT = "coalloc-keys/1"
MAX_KEYS_PER_USER = 20
MIN_PREFIX = 8
"""A key may be named by as many of its first characters, if no other begins so."""


class KeyTableError(Exception):
    """A key cannot be authorized or revoked, or the table cannot be read or written."""


class Role(StrEnum):
    """What a key is for."""

    SUBMIT = "submit"
    """To queue jobs, and to see and end one's own."""
    OPERATOR = "operator"
    """Everybody's jobs, and the service."""
    EXECUTOR = "executor"
    """To speak for clusters, and nothing else."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """One key.

    Attributes
    ----------
    key : str
        Public.
    clusters : tuple of str
        Those that an executor's key speaks for.
    by : str
        Who authorized it.
    added, revoked : float
        Seconds since 1970; None: it is not revoked.
    """

    key: str
    user: str
    uid: int
    gid: int
    role: Role = Role.SUBMIT
    clusters: tuple[str, ...] = ()
    by: str = ""
    added: float = 0.0
    revoked: float | None = None


class _File(msgspec.Struct, kw_only=True):
    format: str
    keys: tuple[Grant, ...]


def parse_table(raw: bytes, path: Path) -> dict[str, Grant]:
    """The grants by key that the bytes of a table hold.

    Raises
    ------
    KeyTableError
        They are no table's.
    """
    try:
        body = msgspec.json.decode(raw, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KeyTableError(f"{path}: {error}") from error
    if body.format != FORMAT:
        raise KeyTableError(f"{path}: format: {body.format!r} is not {FORMAT}")
    return {grant.key: grant for grant in body.keys}


class KeyTable:
    """Grants by key.

    Parameters
    ----------
    path : Path
        Absent: the table is empty.

    Raises
    ------
    KeyTableError
        The file is damaged, or others may write to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._grants: dict[str, Grant] = {}
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
        self._grants = parse_table(raw, self.path)

    def live(self, key: str) -> Grant | None:
        """The grant of a key that is not revoked."""
        grant = self._grants.get(key)
        return None if grant is None or grant.revoked is not None else grant

    def known(self, key: str) -> Grant | None:
        """The grant of a key, revoked or not."""
        return self._grants.get(key)

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._grants.values())

    def authorize(self, grant: Grant) -> None:
        """Take in a key, or give one that its owner has another role.

        Raises
        ------
        KeyTableError
        """
        if not is_key(grant.key):
            raise KeyTableError("key: is not a public key of 40 characters")
        if (grant.role is Role.EXECUTOR) != bool(grant.clusters):
            raise KeyTableError("clusters: an executor's key names its clusters, no other key does")
        old = self._grants.get(grant.key)
        if old is not None and old.revoked is not None:
            raise KeyTableError("key: was revoked, and stays so; make another")
        if old is not None and old.uid != grant.uid:
            raise KeyTableError("key: belongs to another user")
        mine = sum(other.uid == grant.uid and other.revoked is None for other in self)
        if old is None and mine >= MAX_KEYS_PER_USER:
            raise KeyTableError(f"{grant.user} has {mine} keys, at most {MAX_KEYS_PER_USER}")
        self._put(grant)

    def revoke(self, key: str, now: float) -> Grant:
        """Take away what a key may do, for ever; returns what it was."""
        grant = self._grants[key]
        if grant.revoked is None:
            grant = msgspec.structs.replace(grant, revoked=now)
            self._put(grant)
        return grant

    def named(self, text: str, uid: int | None) -> Grant:
        """The key with this beginning, among all or one user's.

        Raises
        ------
        KeyTableError
        """
        if len(text) < MIN_PREFIX:
            raise KeyTableError(f"key: name at least its first {MIN_PREFIX} characters")
        found = [g for g in self if g.key.startswith(text) and uid in {None, g.uid}]
        if len(found) != 1:
            many = "more than one key begins" if found else "no key that you may revoke begins"
            raise KeyTableError(f"key: {many} with {text!r}")
        return found[0]

    def _put(self, grant: Grant) -> None:
        """On disk first, then in memory."""
        grants = {**self._grants, grant.key: grant}
        body = msgspec.json.format(
            msgspec.json.encode(_File(format=FORMAT, keys=tuple(grants.values()))), indent=1
        )
        written = self.path.with_suffix(".tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(written, flags, 0o600), "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(written, self.path)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise KeyTableError(f"{self.path}: {error.strerror}; nothing was changed") from error
        self._grants = grants
