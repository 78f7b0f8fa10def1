"""The Python client: submit jobs, ask about them, watch what happens.

>>> from coalloc import Client
>>> with Client() as client:  # doctest: +SKIP
...     job = client.submit(["./model", "input"], procs=64, time_limit=3600).job
...     print(client.wait(job))

A client belongs to one thread. Its requests are those of docs/PROTOCOL.md, and are written in
`coalloc.client.job_requests` and its neighbours; `coalloc.client.async_client` awaits the same.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from coalloc.client.accounting_requests import AccountingRequests
from coalloc.client.job_requests import JobRequests
from coalloc.client.operator_requests import OperatorRequests
from coalloc.wire.client import NoAnswerError, RefusedError

__all__ = ["Client", "NoAnswerError", "RefusedError"]


class Client(JobRequests, AccountingRequests, OperatorRequests):
    """One thread's connection to the daemon; see `BaseClient` for its parameters."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
