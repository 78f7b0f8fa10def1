"""Access to the dashboard, without any connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from coalloc.cli import dashboard
from coalloc.cli.main import main
from coalloc.dashboard.access import COOKIE, Denied, Gate, Settings, Viewer, settings_of
from coalloc.model.errors import ConfigError
from coalloc.model.settings import DashboardConfig

TOKEN = "f00d" * 8
LOCAL = {"host": "127.0.0.1:8642"}
OPEN = Settings(host="127.0.0.1", port=0)
KEYED = Settings(host="0.0.0.0", port=0, token=TOKEN)
ANYONE, ALL = Viewer(), Viewer(sees_all=True)


def proxied() -> Settings:
    config = DashboardConfig(
        address="0.0.0.0:80",
        user_header="X-Remote-User",
        trusted_proxies=("10.1.0.0/24", "::1"),
        operators=("ops",),
    )
    return settings_of(config)


def test_an_open_dashboard_answers_to_local_names_only() -> None:
    gate = Gate(OPEN, "run-token")
    for host in ("127.0.0.1:8642", "localhost", "[::1]:8642"):
        assert gate.viewer("127.0.0.1", {"host": host}) == ANYONE
    for host in (
        "evil.example:8642",
        "",
        "127.0.0.1.evil.example",
        "[::1].evil",
        "[::1]:80.evil",
        "localhost:80:evil",
        "localhost:evil",
        "[localhost",
    ):
        denied = gate.viewer("127.0.0.1", {"host": host})
        assert isinstance(denied, Denied)
        assert denied.status == 403


def test_the_token_of_a_run_shows_all() -> None:
    gate = Gate(OPEN, "run-token")
    assert gate.viewer("127.0.0.1", {**LOCAL, "authorization": "Bearer run-token"}) == ALL
    assert gate.viewer("127.0.0.1", {**LOCAL, "cookie": f"{COOKIE}={gate.cookie}"}) == ALL
    assert gate.viewer("127.0.0.1", {**LOCAL, "cookie": f"{COOKIE}=run-token"}) == ANYONE


@pytest.mark.parametrize(
    ("headers", "viewer"),
    [
        ({"authorization": f"Bearer {TOKEN}"}, ALL),
        ({"authorization": f"bearer {TOKEN}"}, ALL),
        ({"cookie": f"a=b; {COOKIE}={Gate(KEYED).cookie}"}, ALL),
        ({}, None),
        ({"authorization": "Bearer "}, None),
        ({"authorization": f"Bearer {TOKEN}x"}, None),
        ({"authorization": f"Basic {TOKEN}"}, None),
        ({"authorization": "Bearer \udce9"}, None),  # not ASCII, as latin-1 headers may be
        ({"cookie": f"{COOKIE}="}, None),
        ({"cookie": f"{COOKIE}={TOKEN}"}, None),
        ({"x-remote-user": "ann"}, None),  # nobody has asked for that header
    ],
)
def test_a_token_lets_in(headers: dict[str, str], viewer: Viewer | None) -> None:
    seen = Gate(KEYED).viewer("192.0.2.1", {**LOCAL, **headers})
    assert seen == viewer if viewer else isinstance(seen, Denied)


@pytest.mark.parametrize(
    ("peer", "headers", "viewer"),
    [
        ("10.1.0.7", {"x-remote-user": "ann"}, Viewer(user="ann")),
        ("::ffff:10.1.0.7", {"x-remote-user": "ann"}, Viewer(user="ann")),
        ("::1", {"x-remote-user": "ops"}, Viewer(user="ops", sees_all=True)),
        ("10.1.1.7", {"x-remote-user": "ops"}, None),  # not a trusted proxy
        ("10.1.0.7", {}, None),  # it has let in somebody without a name
        ("10.1.0.7", {"x-remote-user": " "}, None),
        ("", {"x-remote-user": "ann"}, None),
    ],
)
def test_a_proxy_names_the_user(peer: str, headers: dict[str, str], viewer: Viewer | None) -> None:
    seen = Gate(proxied()).viewer(peer, {"host": "coalloc.example", **headers})
    assert seen == viewer if viewer else isinstance(seen, Denied)


def test_users_see_the_details_of_their_own_jobs() -> None:
    assert Viewer(user="ann").sees("ann")
    assert not Viewer(user="ann").sees("bob")
    assert not Viewer().sees("")
    assert ALL.sees("bob")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (DashboardConfig(address="0.0.0.0:80"), "can be reached from outside"),
        (DashboardConfig(address="[::]:80"), "can be reached from outside"),
        (DashboardConfig(address="head.example:80"), "can be reached from outside"),
        (DashboardConfig(address="127.0.0.1"), "is not host:port"),
        (DashboardConfig(address="127.0.0.1:99999"), "is not host:port"),
        (DashboardConfig(user_header="X-User"), "needs dashboard.trusted_proxies"),
        (DashboardConfig(user_header="X User", trusted_proxies=("::1",)), "name of a header"),
        (DashboardConfig(user_header="X-User", trusted_proxies=("10.1",)), "trusted_proxies"),
        (DashboardConfig(token_file="/nonexistent/token"), "No such file"),
    ],
)
def test_settings_that_show_too_much_are_refused(config: DashboardConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of(config)


def test_a_token_file_is_private_and_long_enough(tmp_path: Path) -> None:
    path = tmp_path / "token"
    config = DashboardConfig(address="0.0.0.0:80", token_file=str(path))
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o640)
    assert settings_of(config).token == TOKEN
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="every user can read"):
        settings_of(config)
    path.chmod(0o600)
    for text in ("", "short", f"{TOKEN} {TOKEN}", f"{TOKEN}é"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="one word"):
            settings_of(config)


def test_what_is_missing_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dashboard, "NEEDS", ("starlette", "no_such_module"))
    assert main(["dashboard"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "no_such_module not installed; pip install '.[dashboard]'" in line
