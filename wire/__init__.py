"""The protocol between our processes: frames, codec, sockets, server, client, publisher."""

from importlib import import_module
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """The answers, which take a while to load, are loaded when a client first reads one."""
    if name not in ("answers", "share_answers"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
