"""coalloc makes several clusters work as one."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coalloc.client.client import Client
    from coalloc.client.futures.executor import Executor

__all__ = ["Client", "Executor", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load client and executor on first use, so that ``import coalloc`` stays cheap."""
    if name == "Client":
        from coalloc.client.client import Client

        return Client
    if name == "Executor":
        from coalloc.client.futures.executor import Executor

        return Executor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
