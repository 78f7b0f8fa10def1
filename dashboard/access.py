"""Access to the dashboard: its settings, what a request shows of itself, and what it may see.

| Set up | Let in | Sees the details of |
|---|---|---|
| nothing, loopback only | all users of the machine | no job; with the token of this run, all |
| `token_file` | holders of the token | all jobs |
| `user_header` | users whom a trusted proxy names | their own jobs; operators: all |

Details are what the daemon itself keeps from other users: command, folder, output file. An answer
without authentication is given to local names only, or a page elsewhere could have its own name
point to this machine and read it (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import stat
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
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


COOKIE = "coalloc_dashboard"
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::[0-9]*)?", re.ASCII)
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Viewer(Struct, frozen=True, kw_only=True):
    """A user who may look."""

    user: str = ""
    """As the reverse proxy says; empty: not known."""
    sees_all: bool = False
    """Every job's details."""

    def sees(self, owner: str) -> bool:
        return self.sees_all or bool(self.user and self.user == owner)


class Denied(Struct, frozen=True, kw_only=True):
    """A request that is not answered."""

    status: int
    """401 or 403."""
    message: str


class Gate:
    """Lets requests in; the owner of an open dashboard shows the token made for this run."""

    def __init__(self, settings: Settings, run_token: str = "") -> None:
        self._settings = settings
        self._token = settings.token or run_token
        mark = hmac.new(self._token.encode(), b"coalloc-dashboard-cookie", hashlib.sha256)
        self.cookie = mark.hexdigest()
        """Stands for the token in a browser."""

    def viewer(self, peer: str, headers: Mapping[str, str]) -> Viewer | Denied:
        """The sender of a request, by the other end's address, and headers by lower-case name."""
        if self._shows_token(headers):
            return Viewer(sees_all=True)
        settings = self._settings
        if settings.user_header and self._is_proxy(peer):
            user = headers.get(settings.user_header, "").strip()
            if user:
                return Viewer(user=user, sees_all=user in settings.operators)
        if not settings.is_open:
            return Denied(status=401, message="a token is needed, or a login at the proxy")
        if _host(headers.get("host", "")) not in LOCAL_NAMES:
            return Denied(status=403, message="without a token, ask by a local name: 127.0.0.1")
        return Viewer()

    def is_token(self, text: str) -> bool:
        return bool(self._token) and hmac.compare_digest(
            text.encode(errors="surrogatepass"), self._token.encode()
        )

    def is_encrypted(self, peer: str, headers: Mapping[str, str]) -> bool:
        """Whether the browser speaks TLS to a trusted proxy."""
        return self._is_proxy(peer) and headers.get("x-forwarded-proto") == "https"

    def _shows_token(self, headers: Mapping[str, str]) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        try:
            held = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        if held is None or not self._token:
            return False
        return hmac.compare_digest(held.value.encode(), self.cookie.encode())

    def _is_proxy(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self._settings.proxies)


def _host(text: str) -> str:
    """The name in a Host header; empty where it is none."""
    found = HOST.fullmatch(text.lower())
    return (found[1] or found[2]) if found else ""
