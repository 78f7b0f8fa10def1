"""Settings of an OAR cluster, for reader and launcher; ``docs/adapters.md`` explains them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from coalloc.adapters.batch.settings import BatchSettings, Folder, Wait, read_batch

Word = Annotated[str, Meta(pattern=r"^[\w.-]*$", extra={"kind": "a name in OAR"})]


class OarSettings(BatchSettings, frozen=True, kw_only=True, dict=True):
    """One OAR cluster."""

    queue: Word = ""
    """-q of what is submitted; default what OAR's admission rules say."""
    project: Word = ""
    """--project of what is submitted."""
    scripts: Folder = ""
    """Folder where users may write and nodes read, for jobs' scripts; default the user's home."""
    queue_wait_s: Wait = 60.0
    """A part that OAR has not started after this long is refused, s."""


def read_settings(value: Any, cluster: str, where: str = "") -> OarSettings:
    """Read the settings of the adapter ``oar``; see `read_batch`. Raises `InputError`."""
    return read_batch(value, OarSettings, cluster, where)
