"""The identity of an executor's state, by which the daemon tells a new state from the former."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def kept_identity(state_dir: Path) -> str:
    """The identity of a state folder, which is made with it and on disk on return."""
    path = state_dir / "identity"
    try:
        found = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        found = ""
    if not found:
        found = uuid.uuid4().hex
        fresh = path.with_suffix(".tmp")
        with open(fresh, "w", encoding="ascii") as file:
            file.write(found)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    return found
