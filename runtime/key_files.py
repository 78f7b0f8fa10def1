"""Private keys on disk: one JSON file for each, readable by its owner alone."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from coalloc.adapters.runner import durable
from coalloc.runtime.user import user_folder, user_name
from coalloc.wire.curve import CurveClient, KeyPair, is_key, new_pair, public_of

FORMAT = "coalloc-key/1"
MAX_BYTES = 4096


class KeyFileError(Exception):
    """A private key cannot be used; the message is one line with the path."""


class KeyFile(Struct, frozen=True, kw_only=True):
    """Content of a key's file."""

    pair: KeyPair
    server: str = ""
    """Public key of the daemon it was enrolled with; empty: not known."""


def user_key_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Path of a user's key: ``$COALLOC_KEY``, else in his configuration folder.

    `KeyFileError`: he has no home.
    """
    if environ.get("COALLOC_KEY"):
        return Path(environ["COALLOC_KEY"])
    folder = user_folder(environ, "XDG_CONFIG_HOME", ".config")
    if folder is None:
        raise KeyFileError(f"user {user_name()} has no home; name the key's file in COALLOC_KEY")
    return folder / "coalloc" / "key.json"


def read_key(path: Path) -> KeyFile:
    """Read a private key; `KeyFileError`: not there, not a file of ours, or not ours alone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise KeyFileError(f"{path}: is not a regular file")
        if found.st_uid not in {os.geteuid(), 0}:
            raise KeyFileError(f"{path}: belongs to uid {found.st_uid}, not to uid {os.geteuid()}")
        if found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise KeyFileError(f"{path}: mode {mode:04o} lets others in; a private key is 0600")
        raw = file.read(MAX_BYTES)
    return parse_key(raw, path)


def parse_key(raw: bytes, path: Path) -> KeyFile:
    """Parse the bytes of a key's file; `KeyFileError` where they are none's."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise KeyFileError(f"{path}: is not JSON") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise KeyFileError(f"{path}: is not a key file ({FORMAT})")
    public, secret, server = (body.get(name, "") for name in ("public", "secret", "server"))
    if not is_key(secret) or public_of(secret) != public:
        raise KeyFileError(f"{path}: its two halves are no pair")
    if server and not is_key(server):
        raise KeyFileError(f"{path}: server: is no key")
    return KeyFile(pair=KeyPair(public=public, secret=secret), server=server)


def write_key(path: Path, key: KeyFile) -> None:
    """Write a private key, mode 0600 from its first byte on; durable on return."""
    body = {
        "format": FORMAT,
        "public": key.pair.public,
        "secret": key.pair.secret,
        "server": key.server,
    }
    try:
        durable.make_folder(path.parent)
        durable.write(path, json.dumps(body, indent=2).encode("ascii") + b"\n")
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from error


def kept_key(path: Path, server: str = "") -> KeyFile:
    """The key of this file, or a new one for the daemon of this public key, or of its own."""
    if not os.path.lexists(path):
        pair = new_pair()
        write_key(path, KeyFile(pair=pair, server=server or pair.public))
    return read_key(path)


def calling(key: KeyFile, server: str, path: Path) -> CurveClient:
    """Security for a connection to the daemon that a key's file names, else to this server.

    `KeyFileError`: neither is known.
    """
    if not (key.server or server):
        raise KeyFileError(f"{path}: does not name the daemon's key, nor does access.server_key")
    if server and not is_key(server):
        raise KeyFileError("access.server_key: is not a public key of 40 characters")
    return CurveClient(pair=key.pair, server=key.server or server)


def fingerprint(public: str) -> str:
    """The beginning of a public key, enough to tell keys apart in a log."""
    return public[:12]
