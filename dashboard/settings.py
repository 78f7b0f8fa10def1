"""Settings of the dashboard, checked: where it listens, and who is let in."""

from __future__ import annotations

import ipaddress
import re
import stat
from pathlib import Path

from msgspec import Struct

from coalloc.model.errors import ConfigError
from coalloc.model.settings import DashboardConfig

MIN_TOKEN = 16
"""Characters of a token, at least."""
HEADER = re.compile(r"[A-Za-z0-9-]+")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Settings(Struct, frozen=True, kw_only=True):
    """Address at which the dashboard listens, and the users that it lets in."""

    host: str
    port: int
    token: str = ""
    """Whoever shows it sees all that the dashboard sees; empty: there is none."""
    user_header: str = ""
    """Set by a reverse proxy to the name of the user, in lower case; empty: none is read."""
    proxies: tuple[Network, ...] = ()
    """Only from these addresses is the header believed."""
    operators: frozenset[str] = frozenset()
    """Users who see every job's details, as named by the proxy."""
    keep_jobs: int = 100_000
    """Ended jobs held for the pictures."""

    @property
    def is_open(self) -> bool:
        """Anyone on this machine may look."""
        return not self.token and not self.user_header


def settings_of(config: DashboardConfig, address: str = "", token_file: str = "") -> Settings:
    """The settings that a configuration and the options of the command make.

    Refused where they contradict each other, or would show the site to a network unasked.
    """
    host, port = _address(address or config.address)
    header = config.user_header.lower()
    if header and not HEADER.fullmatch(header):
        raise ConfigError(f"dashboard.user_header: {header!r} is not the name of a header")
    if header and not config.trusted_proxies:
        raise ConfigError("dashboard.user_header: needs dashboard.trusted_proxies")
    path = token_file or config.token_file
    settings = Settings(
        host=host,
        port=port,
        token=_token(Path(path)) if path else "",
        user_header=header,
        proxies=tuple(_network(text) for text in config.trusted_proxies),
        operators=frozenset(config.operators),
        keep_jobs=config.keep_jobs,
    )
    if settings.is_open and not _is_loopback(host):
        raise ConfigError(
            f"dashboard.address: {host} can be reached from outside; that needs "
            "dashboard.token_file or dashboard.user_header"
        )
    return settings


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"dashboard.address: {text!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigError(f"dashboard.trusted_proxies: {error}") from error


def _token(path: Path) -> str:
    """The token of a file that only its owner and group can read."""
    try:
        if path.stat().st_mode & stat.S_IRWXO:
            raise ConfigError(f"{path}: every user can read this token; chmod 600 it")
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"dashboard.token_file: {error}") from error
    if len(text) < MIN_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError(
            f"{path}: a token is one word of at least {MIN_TOKEN} ASCII characters, such as "
            "'openssl rand -hex 32' prints"
        )
    return text
