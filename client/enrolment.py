"""Asking the daemon's enrolment socket: which key belongs to whom."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_ANSWER_BYTES = 4 << 20
PATIENCE_S = 10.0


class EnrolmentError(Exception):
    """The daemon refuses, or nobody answers."""


def ask(path: Path, verb: str, **fields: Any) -> Mapping[str, Any]:
    """One question and its answer, which names the daemon's public key as ``server``.

    Raises
    ------
    EnrolmentError
    """
    line = json.dumps({"verb": verb, **fields}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(path))
            connection.sendall(line)
            with connection.makefile("rb") as file:
                raw = file.readline(MAX_ANSWER_BYTES)
        answer = json.loads(raw)
    except OSError as error:
        why = error.strerror or "no answer in time"
        raise EnrolmentError(
            f"{path}: {why}; is coallocd running in multi-user mode on this machine?"
        ) from error
    except ValueError as error:
        raise EnrolmentError(f"{path}: the answer cannot be understood") from error
    if "error" in answer:
        raise EnrolmentError(str(answer["error"]))
    found: Mapping[str, Any] = answer
    return found
