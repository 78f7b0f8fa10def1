"""Asking the daemon's enrolment socket: which key belongs to whom."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coalloc.wire.curve import KeyPair

MAX_ANSWER_BYTES = 4 << 20
PATIENCE_S = 10.0
RETRY_S = 0.05


class EnrolmentError(Exception):
    """The daemon refuses, or nobody answers."""


def ask(path: Path, verb: str, *, pair: KeyPair | None = None, **fields: Any) -> Mapping[str, Any]:
    """One question and its answer, which names the daemon's public key as ``server``.

    A `pair` proves that its private half is here, where the daemon asks for that: root need not.
    """
    try:
        with _connected(path) as connection, connection.makefile("rb") as file:
            answer = _answer(connection, file, {"verb": verb, **fields})
            if "challenge" in answer:
                answer = _answer(connection, file, {"proof": _proof(answer["challenge"], pair)})
    except OSError as error:
        why = error.strerror or "no answer in time"
        raise EnrolmentError(
            f"{path}: {why}; is coallocd running in multi-user mode on this machine?"
        ) from error
    except ValueError as error:
        raise EnrolmentError(f"{path}: the answer cannot be understood") from error
    return answer


def _connected(path: Path) -> socket.socket:
    end = time.monotonic() + PATIENCE_S
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(str(path))
            return connection
        except BlockingIOError:  # So many wait there that no more may.
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(RETRY_S)
        except BaseException:
            connection.close()
            raise


def _answer(
    connection: socket.socket, file: IO[bytes], line: Mapping[str, Any]
) -> Mapping[str, Any]:
    with suppress(BrokenPipeError):  # Turned away unread, which the answer explains.
        connection.sendall(json.dumps(line).encode() + b"\n")
    answer = json.loads(file.readline(MAX_ANSWER_BYTES))
    if not isinstance(answer, dict):
        raise ValueError("is no object")
    if "error" in answer:
        raise EnrolmentError(str(answer["error"]))
    return answer


def _proof(challenge: object, pair: KeyPair | None) -> str:
    from coalloc.wire.key_proof import ProofError, nonce_of

    if pair is None:
        raise EnrolmentError(
            "the daemon requires proof that you hold the key's private half, which is not here: "
            "enrol it where it is with 'coalloc keys new', or ask root"
        )
    try:
        return nonce_of(challenge, pair, os.geteuid())
    except ProofError as error:
        raise EnrolmentError(str(error)) from error
