"""``coallocd --init``: a first configuration by looking at the machine, and the keys it needs.

Nothing that is there is overwritten: a configuration ends it before anything is written, and keys
that exist are used.
"""

from __future__ import annotations

import json
import os
import pwd
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from coalloc.adapters.base import Proposal
from coalloc.adapters.proposal import link_gbps, proposals
from coalloc.daemon.access.key_table import Grant, KeyTable, Role
from coalloc.daemon.config_checks import check
from coalloc.daemon.store.beginning import former_store, new_store
from coalloc.model.errors import ConfigError
from coalloc.model.settings import Config
from coalloc.runtime.config.file import SYSTEM_PATH, load, parse, user_config, usual_folders
from coalloc.runtime.key_files import KeyFile, kept_key, user_key_path
from coalloc.runtime.user import user_name

Mode = Literal["single-user", "multi-user"]
UNITS = ("/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd/system")
SYSTEMD = Path("/run/systemd/system")
"""Is there where systemd runs, as sd_booted(3) has it."""
ACCOUNT = "coalloc"
"""The daemon's user where it is a service of systemd, see systemd/coalloc.sysusers."""
EXECUTORS = Path("/var/lib/coalloc-executor")
"""State of the executors there, see systemd/coalloc-executor@.service."""
NAME = "coallocd.toml"


class Layout(Struct, frozen=True, kw_only=True):
    """Folders and files of a new installation."""

    config: Path
    key: Path
    """An operator's own."""
    own_folders: bool = False
    """State, sockets and compiled code lie beside the configuration; else in the usual folders."""
    owner: pwd.struct_passwd | None = None
    """Who runs the daemon, where that is not who calls us."""
    executors: Path | None = None
    """State of the executors, where that is not the daemon's."""


def initialise(folder: str, mode: Mode | None) -> int:
    """Write a configuration and make keys; returns the exit code.

    All of it lies in the folder, or where none is named in the usual ones of the system or this
    user. Without a `mode`, root's is multi-user. Raises `ConfigError`, `OSError`, `KeyFileError`
    and `KeyTableError`.
    """
    layout = _layout(folder)
    if os.path.lexists(layout.config):
        print(
            f"coallocd: error: {layout.config} is there already; it was left as it is",
            file=sys.stderr,
        )
        return 1
    mode = mode or ("multi-user" if os.geteuid() == 0 else "single-user")
    found = proposals()
    text = configuration(found, layout, mode, "")
    folders = usual_folders(layout.config, os.environ, os.getuid())
    config = parse(text, str(layout.config), folders, check)
    made: list[str] = []
    if mode == "multi-user":
        server_key, made = make_keys(config, layout)
        text = configuration(found, layout, mode, server_key)
    layout.config.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    with open(layout.config, "x", encoding="utf-8") as file:
        file.write(text)
    load(layout.config, check=check)
    print("\n".join(_report(layout, found, mode, made)))
    return 0


def _layout(folder: str) -> Layout:
    if folder and Path(folder).resolve() != SYSTEM_PATH.parent:
        own = Path(folder).resolve()
        return Layout(config=own / NAME, key=own / "key.json", own_folders=True)
    key = user_key_path()
    if not folder and os.geteuid() != 0:
        config = user_config()
        if config is None:
            raise ConfigError(f"user {user_name()} has no home; name a folder: coallocd --init DIR")
        return Layout(config=config, key=key)
    if not any(Path(unit, "coallocd.service").exists() for unit in UNITS):
        return Layout(config=SYSTEM_PATH, key=key)
    try:
        owner = pwd.getpwnam(ACCOUNT)
    except KeyError:
        owner = None
    return Layout(config=SYSTEM_PATH, key=key, owner=owner, executors=EXECUTORS)


def configuration(found: Sequence[Proposal], layout: Layout, mode: Mode, server_key: str) -> str:
    """The text of a configuration for these clusters."""
    return "\n".join(_lines(found, layout, mode, server_key)) + "\n"


def _lines(found: Sequence[Proposal], layout: Layout, mode: Mode, server_key: str) -> Iterator[str]:
    yield f"# Written by coallocd --init on {socket.gethostname()}, by what it found there."
    yield '# "coallocd --check-config" prints every key with the value in use, and "coalloc doctor"'
    yield "# looks whether all of it works. All keys are explained in coallocd.toml(5)."
    yield ""
    yield "[daemon]"
    yield '# "single-user": every job runs as the daemon\'s user. "multi-user": every user of this'
    yield '# machine may submit with a key of their own ("coalloc keys new"), and jobs run as them.'
    yield f'mode = "{mode}"'
    if layout.own_folders:
        yield "# The store, which must lie on a local disk, and the sockets."
        yield f"state_dir = {_value(str(layout.config.parent / 'state'))}"
        yield f"runtime_dir = {_value(str(layout.config.parent / 'run'))}"
    yield "# Figures for Prometheus; etc/prometheus has alert rules and a dashboard for them."
    yield '#metrics_address = "127.0.0.1:9464"'
    if server_key:
        yield ""
        yield "[access]"
        yield "# The daemon's public key, for clients and executors."
        yield f"server_key = {_value(server_key)}"
    if layout.own_folders:
        yield ""
        yield "[solver]"
        yield '# Compiled code; "coallocd --warm" fills it.'
        yield f"cache_dir = {_value(str(layout.config.parent / 'cache'))}"
    for proposal in found:
        yield ""
        yield from _cluster(proposal)


def _cluster(proposal: Proposal) -> Iterator[str]:
    yield from (f"# {line}" for line in proposal.found)
    yield "[[clusters]]"
    yield f"name = {_value(proposal.name)}"
    yield f"adapter = {_value(proposal.adapter)}"
    yield "# Capacity to the other clusters, each way, Gbit/s; without it no job is limited by it."
    link = None
    with suppress(OSError):
        link = link_gbps(Path("/proc/net/route").read_text(encoding="ascii"))
    if link is None:
        yield "#link_gbps = 1.0"
    else:
        yield f"# This machine's own interface {link[0]} has {link[1]:g}."
        yield f"#link_gbps = {link[1]}"
    yield "[clusters.settings]"
    for key, value in proposal.settings.items():
        yield f"{key} = {_value(value)}"


def _value(value: object) -> str:
    """A text, a number or a list in TOML, which writes these as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def make_keys(config: Config, layout: Layout) -> tuple[str, list[str]]:
    """Make the daemon's key, one for each executor and one for an operator, as far as they lack.

    Returns the daemon's public key, and a line for each that was made.
    """
    state = Path(config.daemon.state_dir)
    state.mkdir(parents=True, exist_ok=True, mode=0o711)
    state.chmod(0o711)
    own = user_name(os.geteuid())
    store = state / "coalloc.db"
    if former_store(store) is None and not store.exists():
        new_store(store)  # before the keys, which tell later that there was one
    path = state / "server-key.json"
    server = kept_key(path)
    made = [f"{path}: the daemon's"]
    table = KeyTable(state / "keys.json")
    for cluster in config.clusters:
        folder = (layout.executors or state) / "executors" / cluster.name
        folder.mkdir(parents=True, exist_ok=True, mode=0o711)
        for passed in (folder, folder.parent, layout.executors or state):
            passed.chmod(0o711)
        path = folder / "key.json"
        key = kept_key(path, server.pair.public)
        made.append(f"{path}: the executor's of {cluster.name}")
        table.authorize(_grant(key, own, Role.EXECUTOR, (cluster.name,)))
    key = kept_key(layout.key, server.pair.public)
    made.append(f"{layout.key}: an operator's, {own}")
    if key.server not in {"", server.pair.public}:
        made.append(f"{layout.key}: names another daemon; 'coalloc keys new' learns this one's")
    table.authorize(_grant(key, own, Role.OPERATOR))
    if layout.owner is not None:
        for each in (state, state / "server-key.json", table.path, *state.glob(store.name)):
            os.chown(each, layout.owner.pw_uid, layout.owner.pw_gid)
    return server.pair.public, made


def _grant(key: KeyFile, owner: str, role: Role, clusters: tuple[str, ...] = ()) -> Grant:
    return Grant(
        key=key.pair.public,
        user=owner,
        uid=os.geteuid(),
        gid=os.getegid(),
        role=role,
        clusters=clusters,
        by=owner,
        added=time.time(),
    )


def _report(
    layout: Layout, found: Sequence[Proposal], mode: Mode, made: Sequence[str]
) -> Iterator[str]:
    for proposal in found:
        yield f"{proposal.name} ({proposal.adapter}): {proposal.found[0]}"
    yield f"wrote {layout.config}, {mode}"
    yield from (f"key {line}" for line in made)
    yield "next:"
    names = [proposal.name for proposal in found]
    if layout.executors is not None and SYSTEMD.is_dir():
        units = " ".join(f"coalloc-executor@{name}" for name in names)
        yield f"  systemctl enable --now coallocd {units}"
    else:
        # As the units have it.
        owner = layout.owner.pw_name if layout.owner is not None else ""
        as_owner = f"setpriv --reuid={owner} --regid={owner} --clear-groups " if owner else ""
        with_state = f"STATE_DIRECTORY={layout.executors} " if layout.executors is not None else ""
        if owner:
            yield f"  install -d -o {owner} -g {owner} /run/coalloc /var/cache/coalloc"
        yield f"  {as_owner}coallocd --config {layout.config} &"
        yield from (
            f"  {with_state}coalloc-executor --config {layout.config} --cluster {name} &"
            for name in names
        )
    is_asked_for = mode == "multi-user" and layout.own_folders
    before = f"COALLOC_KEY={layout.key} " if is_asked_for else ""
    yield f"  {before}coalloc doctor --config {layout.config}"
    if mode == "multi-user" and os.geteuid() == 0:
        where = f"export COALLOC_CONFIG={layout.config}; " if layout.own_folders else ""
        yield f"  as a user: {where}coalloc keys new; coalloc submit -- hostname"
