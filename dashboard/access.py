"""Access to the dashboard: what a request shows of itself, and what it may see.

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
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from msgspec import Struct

from coalloc.dashboard.settings import Settings

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
        """Whether the details of a user's jobs are shown."""
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
        """Whether this is the token."""
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
