"""coalloc makes several clusters work as one."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coalloc.client.async_client import AsyncClient
    from coalloc.client.client import Client
    from coalloc.client.futures.executor import Executor
    from coalloc.solving import check, read_snapshot, solve

__all__ = [
    "AsyncClient",
    "Client",
    "Executor",
    "__version__",
    "check",
    "read_snapshot",
    "solve",
]

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "coalloc.client.async_client",
    "Client": "coalloc.client.client",
    "Executor": "coalloc.client.futures.executor",
    **dict.fromkeys(("check", "read_snapshot", "solve"), "coalloc.solving"),
}


def __getattr__(name: str) -> object:
    """Load each name on first use, so that ``import coalloc`` stays cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(_HOMES[name])
    except ModuleNotFoundError as error:
        from coalloc.programs import missing_part

        todo = missing_part(error)
        raise ImportError(f"coalloc.{name}: {todo}" if todo else str(error)) from error
    return getattr(home, name)
