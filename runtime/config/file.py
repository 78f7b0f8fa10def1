"""The configuration file: found, read, checked, and completed for this user or system."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import tomli
from msgspec import inspect
from msgspec.structs import replace

from coalloc.model.errors import ConfigError, InputError
from coalloc.model.formats.decoded import shown
from coalloc.model.formats.structs import Fault, faults, key_text
from coalloc.model.formats.structs import Path as KeyPath
from coalloc.model.settings import Config
from coalloc.runtime.user import user_folder, user_name

SYSTEM_PATH = Path("/etc/coalloc/coallocd.toml")
DEFAULTS = "built-in defaults"
"""Stands for the file where there is none."""
USER_PATH = Path("coalloc/coallocd.toml")
CONNECTIONS = "connections.toml"
"""Beside it: what ``coalloc connect`` writes."""
MAX_IPC_BYTES = 107
"""``sun_path`` of unix(7), less the terminating zero."""

CONFIG_TYPE = inspect.type_info(Config)
MIN_MEMORY_MB = 1024
"""Below, compiled code itself runs out of address space, MiB."""
TIMES = (datetime.datetime, datetime.date, datetime.time)
"""Values that TOML has and JSON has not."""
Check = Callable[[Config], None]
"""Raises InputError, naming the key, for what only the caller can know to be wrong."""

SHARES = 16.0
"""Doublings that shares take at most, where there are projects and nothing else is said."""
ENDPOINTS = ("endpoint", "executor_endpoint", "publish_endpoint")
NEEDS_RESTART = (
    *(f"daemon.{name}" for name in ("state_dir", "runtime_dir", "mode", *ENDPOINTS)),
    *("daemon.metrics_address", "daemon.max_message_bytes", "solver"),
    "access.enrolment_socket",
)
"""Keys and sections that a reload does not apply."""


def find_config(explicit: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file to read: named, $COALLOC_CONFIG, the user's, the system's, his connections, or none.

    A file that was named, on the command line or in the environment, need not exist: reading it
    then says so.
    """
    if explicit is not None:
        return explicit
    if environ.get("COALLOC_CONFIG"):
        return Path(environ["COALLOC_CONFIG"])
    for path in (user_config(environ), SYSTEM_PATH, connections_file(environ)):
        if path is not None and os.path.exists(path):  # false where we may not look
            return path
    return None


def user_config(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Path of a user's own file, if there is one; None: he has no home."""
    folder = user_folder(environ, "XDG_CONFIG_HOME", ".config")
    return None if folder is None else folder / USER_PATH


def connections_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Path of the file of a user's connections; None: he has no home."""
    path = user_config(environ)
    return None if path is None else path.with_name(CONNECTIONS)


def load(
    path: Path | None,
    environ: Mapping[str, str] = os.environ,
    uid: int | None = None,
    check: Check | None = None,
) -> Config:
    """Read a configuration, and settle the folders and end points it leaves open.

    Without a path it has the defaults. The environment has the XDG folders, and those that systemd
    hands to a service. `check` is called last; its error gets the file. Raises `ConfigError`.
    """
    uid = os.getuid() if uid is None else uid
    folders = usual_folders(path, environ, uid)
    if path is None:
        return _housed(_completed(Config(), DEFAULTS, folders, check), DEFAULTS)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8 text") from error
    return _housed(parse(text, str(path), folders, check), str(path))


def _housed(config: Config, name: str) -> Config:
    """The configuration, where no folder is missing for want of a home."""
    for key in ("state_dir", "runtime_dir"):
        if not getattr(config.daemon, key):
            what = f"is missing, and user {user_name()} has no home; name a folder, or set HOME"
            raise _refused(name, (("daemon", key), what))
    return config


def parse(
    text: str,
    name: str,
    folders: tuple[str, str, str] = ("", "", ""),
    check: Check | None = None,
) -> Config:
    """Read a configuration from a text, which errors call `name`.

    `folders` are those for state, runtime and cache where the text names none.
    """
    try:
        value = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        found = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        line = int(found[1]) if found else max(1, len(text.splitlines()))
        what = re.sub(r" \(at [^()]*\)$", "", str(error))
        raise ConfigError(f"{name}:{line}: {what[:1].lower()}{what[1:]}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: holds a number too long or is nested too deeply") from error
    # in the order of the file, so that the first mistake is the first to be told
    wrong = sorted(faults(value, CONFIG_TYPE), key=lambda fault: _place(value, fault[0]))
    if wrong:
        raise _refused(name, wrong[0])
    try:
        # lax only for what `faults` lets pass: whole numbers that were written as 2.0
        config = msgspec.convert(value, Config, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {error}") from error
    return _completed(config, name, folders, check)


def _place(value: Any, path: KeyPath) -> tuple[int, ...]:
    """Place of a key in the file: that of each of its parts in its table or array.

    A key that is missing comes where its table begins.
    """
    places = []
    for part in path:
        if isinstance(value, dict) and part in value:
            places.append(list(value).index(part))
            value = value[part]
        elif isinstance(value, list) and isinstance(part, int):
            places.append(part)
            value = value[part]
    return tuple(places)


def _refused(name: str, fault: Fault) -> ConfigError:
    where, what = fault
    return ConfigError(f"{name}: {key_text(where)}: {what}")


def _completed(
    config: Config, name: str, folders: tuple[str, str, str], check: Check | None
) -> Config:
    """The configuration with its folders and end points, if nothing contradicts anything."""
    for fault in _contradictions(config):
        raise _refused(name, fault)
    config = _settled(config, folders, name)
    try:
        if check is not None:
            check(config)
    except InputError as error:
        raise ConfigError(f"{name}: {error}") from error
    return config


def _contradictions(config: Config) -> Iterator[Fault]:
    """Values that are right alone and wrong together."""
    if not config.clusters:
        yield ("clusters",), "is empty"
    seen: set[str] = set()
    for i, cluster in enumerate(config.clusters):
        if cluster.name in seen:
            yield ("clusters", i, "name"), f"{shown(cluster.name)} is used twice"
        if "/" in cluster.name or not cluster.name.isprintable() or " " in cluster.name:
            yield ("clusters", i, "name"), f"{shown(cluster.name)} has a slash, space or control"
        if "@" in cluster.name and not cluster.name.endswith(f"@{cluster.owner}"):
            yield ("clusters", i, "name"), f"{shown(cluster.name)} is a cluster of its owner's"
        seen.add(cluster.name)
    readings, start = config.readings, config.start
    if readings.max_age_s < readings.interval_s:
        what = f"{readings.max_age_s:g} is below interval_s {readings.interval_s:g}"
        yield ("readings", "max_age_s"), f"{what}: every reading would be stale"
    for i, reader in enumerate(readings.readers):
        if not all(reader.partition("@")):
            yield ("readings", "readers", i), f"{shown(reader)} is no owner's cluster NAME@USER"
    if start.backoff_max_s < start.backoff_first_s:
        what = f"{start.backoff_max_s:g} is below backoff_first_s {start.backoff_first_s:g}"
        yield ("start", "backoff_max_s"), what
    if start.lease_s < start.prepare_timeout_s:
        what = f"{start.lease_s:g} is below prepare_timeout_s {start.prepare_timeout_s:g}"
        yield ("start", "lease_s"), f"{what}: claims would go while parts are awaited"
    for i, policy in enumerate(config.rounds.fallbacks):
        if policy in config.rounds.fallbacks[:i]:
            yield ("rounds", "fallbacks", i), f"{shown(policy)} is named twice"
    if 0 < config.solver.memory_mb < MIN_MEMORY_MB:
        what = f"{config.solver.memory_mb} is below {MIN_MEMORY_MB}, which compiled code needs"
        yield ("solver", "memory_mb"), what
    yield from _unsendable(config)
    yield from _project_faults(config)
    address = config.daemon.metrics_address
    if address and not _is_address(address):
        yield ("daemon", "metrics_address"), f"{shown(address)} is not host:port"


def _project_faults(config: Config) -> Iterator[Fault]:
    """Parents that are not there or lie in a circle, and guarantees of no cluster."""
    projects, clusters = config.projects, {cluster.name for cluster in config.clusters}
    for name, project in projects.items():
        if not name or not name.isprintable() or any(c in name for c in " /,"):
            yield ("projects", name), f"{shown(name)} is empty, or has a slash, comma or space"
        if project.parent and project.parent not in projects:
            yield ("projects", name, "parent"), f"there is no project {shown(project.parent)}"
        above, step = {name}, project.parent
        while step in projects and step not in above:
            above.add(step)
            step = projects[step].parent
        if step in above:
            yield ("projects", name, "parent"), f"{shown(name)} lies in a circle of parents"
        for cluster in project.guarantees:
            if cluster not in clusters:
                yield ("projects", name, "guarantees", cluster), "there is no such cluster"


def _unsendable(config: Config) -> Iterator[Fault]:
    """Ways of notification that can reach nobody, or somebody else."""
    notify = config.notify
    if notify.command and not notify.command[0].startswith("/"):
        what = f"{shown(notify.command[0])} is not an absolute path"
        yield ("notify", "command", 0), what
    if notify.webhook and not notify.webhook.startswith(("https://", "http://")):
        yield ("notify", "webhook"), f"{shown(notify.webhook)} is neither https:// nor http://"
    for i, address in enumerate(notify.mail_to):
        if address.startswith("-") or not address.isprintable() or " " in address:
            yield ("notify", "mail_to", i), f"{shown(address)} is not an address"
    if notify.events and not (notify.command or notify.webhook or notify.mail_to):
        yield ("notify", "events"), "there is no command, webhook or mail_to to tell them"


def _is_address(address: str) -> bool:
    host, colon, port = address.rpartition(":")
    return bool(host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536)


def usual_folders(path: Path | None, environ: Mapping[str, str], uid: int) -> tuple[str, str, str]:
    """State, runtime and cache folder: systemd's, the system's, or the user's; empty: no home."""
    given = [
        environ.get(name, "").partition(":")[0]
        for name in ("STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CACHE_DIRECTORY")
    ]
    # a client that reads the system's file must find the system's sockets
    if uid == 0 or (path is not None and path.is_relative_to(SYSTEM_PATH.parent)):
        usual = ["/var/lib/coalloc", "/run/coalloc", "/var/cache/coalloc"]
    else:
        state, cache, runtime = (
            f"{folder}/coalloc" if folder is not None else ""
            for folder in (
                user_folder(environ, "XDG_STATE_HOME", ".local/state"),
                user_folder(environ, "XDG_CACHE_HOME", ".cache"),
                environ.get("XDG_RUNTIME_DIR") or None,
            )
        )
        usual = [state, runtime or (state and f"{state}/run"), cache]
    state_dir, runtime_dir, cache_dir = (g or u for g, u in zip(given, usual, strict=True))
    return state_dir, runtime_dir, cache_dir


def _settled(config: Config, folders: tuple[str, str, str], name: str) -> Config:
    daemon = config.daemon
    paths = {
        "state_dir": daemon.state_dir or folders[0],
        "runtime_dir": daemon.runtime_dir or folders[1],
    }
    cache = config.solver.cache_dir or folders[2]
    for key, folder in (*paths.items(), ("cache_dir", cache)):
        if folder and not folder.startswith("/"):
            section = "solver" if key == "cache_dir" else "daemon"
            raise _refused(name, ((section, key), f"{shown(folder)} is not an absolute path"))
    ends: dict[str, str] = {}
    for key in ENDPOINTS:
        end = _filled(getattr(daemon, key), paths)
        what = _endpoint_fault(end)
        if what:
            raise _refused(name, (("daemon", key), what))
        if end in ends.values():
            raise _refused(name, (("daemon", key), f"{shown(end)} is used twice"))
        ends[key] = end
    enrolment = _filled(config.access.enrolment_socket, paths)
    what = _endpoint_fault(f"ipc://{enrolment}")
    if what:
        raise _refused(name, (("access", "enrolment_socket"), what))
    shares = config.priority.shares
    if shares is None:
        shares = SHARES if config.projects else 0.0
    return replace(
        config,
        priority=replace(config.priority, shares=shares),
        access=replace(config.access, enrolment_socket=enrolment),
        daemon=replace(daemon, **paths, **ends),
        solver=replace(config.solver, cache_dir=cache),
    )


def _filled(text: str, paths: Mapping[str, str]) -> str:
    for variable, folder in paths.items():
        text = text.replace(f"{{{variable}}}", folder)
    return text


def _endpoint_fault(end: str) -> str:
    if end.startswith("ipc://"):
        size = len(os.fsencode(end.removeprefix("ipc://")))
        if size > MAX_IPC_BYTES:
            return f"{size} bytes long; the path of a socket holds at most {MAX_IPC_BYTES}"
        return "" if end.startswith("ipc:///") else f"{shown(end)} is not an absolute path"
    if end.startswith("tcp://") and _is_address(end.removeprefix("tcp://")):
        return ""
    return f"{shown(end)} is neither ipc:///path nor tcp://host:port"


def changes(old: Config, new: Config) -> list[str]:
    """Keys whose values differ, as written in the file; tables by name and arrays as a whole."""
    out = []
    for section in Config.__struct_fields__:
        a, b = getattr(old, section), getattr(new, section)
        if a == b:
            continue
        if isinstance(a, tuple | dict):
            out.append(section)
            continue
        out += [f"{section}.{k}" for k in a.__struct_fields__ if getattr(a, k) != getattr(b, k)]
    return out


def needs_restart(key: str) -> bool:
    """Whether a reload leaves this key as it was until the daemon is restarted."""
    return key in NEEDS_RESTART or key.partition(".")[0] in NEEDS_RESTART


def toml_text(config: Config) -> str:
    """The configuration as it would be used, every key written out; it reads back equal."""
    import tomli_w  # the daemon itself writes none

    return tomli_w.dumps(_without_none(msgspec.to_builtins(config, builtin_types=TIMES)))


def _without_none(value: Any) -> Any:
    # TOML has no word for none
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value
