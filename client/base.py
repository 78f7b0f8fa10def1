"""Base of the blocking and the asyncio client."""

from __future__ import annotations

from pathlib import Path

from coalloc.client.accounting_requests import AccountingRequests
from coalloc.client.endpoint import configured_endpoints, daemon_endpoint
from coalloc.client.job_requests import JobRequests
from coalloc.client.operator_requests import OperatorRequests
from coalloc.wire.client import NoAnswerError, RefusedError


class BaseClient(JobRequests, AccountingRequests, OperatorRequests):
    """A connection to the daemon.

    Parameters
    ----------
    endpoint : str, optional
        Such as ``ipc:///run/coalloc/coalloc.sock``. Default: that of the configuration.
    timeout_s : float
        For one answer, seconds.
    publish_endpoint : str, optional
        Where events are published. Default: that of the configuration.
    config : Path, optional
        The configuration file. Default: ``$COALLOC_CONFIG``, the user's, the system's.
    key : Path, optional
        The file of the key to connect with, where the daemon tells users apart. Default:
        ``$COALLOC_KEY``, or the user's.

    Raises
    ------
    ConfigError
        The configuration is needed and cannot be used.
    NoAnswerError
        A key is needed, and there is none that can be used.
    """

    Refused = RefusedError
    NoAnswer = NoAnswerError

    def __init__(
        self,
        endpoint: str | None = None,
        timeout_s: float = 10.0,
        *,
        publish_endpoint: str | None = None,
        config: Path | None = None,
        key: Path | None = None,
    ) -> None:
        found = daemon_endpoint(endpoint, config, key)
        self._security = found.security
        self.endpoint, self.timeout_s = found.endpoint, timeout_s
        self._publish_endpoint = publish_endpoint or found.publish_endpoint
        self._config = config

    @property
    def publish_endpoint(self) -> str:
        """Address of the events."""
        if self._publish_endpoint is None:
            _, self._publish_endpoint = configured_endpoints(self._config)
        return self._publish_endpoint
