"""``coalloc connect`` and ``disconnect``: a cluster of one's own, by a login there."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coalloc.adapters.ssh.master import OPEN, SshError
from coalloc.cli.command import DONE, Command, CommandError, configuration, connect
from coalloc.cli.connect.connections import Connection, connections, file_of, keep, reload, started
from coalloc.cli.connect.login import lines
from coalloc.cli.operators.keys import ask_socket
from coalloc.model.settings import ClusterConfig, Config
from coalloc.model.values import replace
from coalloc.programs import require_server
from coalloc.runtime.config.file import find_config
from coalloc.runtime.key_files import kept_key, read_key, write_key
from coalloc.runtime.user import user_name
from coalloc.wire.client import NoAnswerError

START_LIMIT_S = 60.0


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("login", metavar="LOGIN", help="USER@HOST, an alias of ssh, or NAME again")
    parser.add_argument("--name", help="of the cluster (default: from the host's name)")
    parser.add_argument(
        "--ssh-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="as in ssh's configuration: Port=2222; may be repeated",
    )


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")


def _connect(args: argparse.Namespace) -> int:
    require_server()
    config = configuration(args)
    file = file_of(config, find_config(args.config))
    found = _asked(args, config, file)
    try:
        state = found.master.open(terminal=True)
        if state.state != OPEN:
            raise CommandError(f"{found.name}: {found.login[0]}: {state.state}: {state.why}")
        keep(config, file, found.name, found.site)
        factors = "key and second factor" if state.asks else "key"
        for line in lines(found.shell, found.folder, factors):
            print(f"{found.name}: {line}", flush=True)
    except SshError as error:
        raise CommandError(f"{found.name}: {error}") from error
    if found.site.owner:
        _enrol(config, found)
    elif not reload(config):
        print(f"coallocd: {started('coallocd', 'daemon.main', file)}")
    how = "runs already"
    if not found.pid():
        what = f"executor-{found.name}"
        how = started(what, "executor.main", file, "--cluster", found.site.name)
    if not found.site.owner:
        args.config = file
    slots = _slots(args, found.site.name)
    print(f"{found.name}: executor {how}; {slots} slots; now: coalloc submit -n 4 -- hostname")
    return DONE


def _asked(args: argparse.Namespace, config: Config, file: Path) -> Connection:
    """The connection that is meant: one that stands in the file, or a new one."""
    for known in connections(file):
        if args.login in (known.name, known.login[0]) and args.name in (None, known.name):
            return known
    host = args.login.rpartition("@")[2]
    first, *rest = [host.replace(":", "-")] if host[-1:].isdigit() else host.split(".")
    name = args.name or (rest[0] if rest and first.startswith(("login", "ssh", "head")) else first)
    owner = user_name() if config.daemon.mode == "multi-user" else ""
    settings: dict[str, Any] = {"ssh": args.login, "qualified": True}
    if args.ssh_option:
        own = file.with_name(f"{name}.ssh")
        own.parent.mkdir(parents=True, exist_ok=True)
        told = (f"  {option.replace('=', ' ', 1)}\n" for option in args.ssh_option)
        usual = "Match all\n  Include ~/.ssh/config\n  Include /etc/ssh/ssh_config\n"
        own.write_text(f"Host *\n{''.join(told)}{usual}")
        settings["ssh_config"] = str(own)
    full = f"{name}@{owner}" if owner else name
    site = ClusterConfig(name=full, owner=owner, adapter="slurm", settings=settings)
    return Connection(file=file, site=site)


def _enrol(config: Config, found: Connection) -> None:
    path = found.folder / "key.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    key = kept_key(path)
    fields = {"key": key.pair.public, "role": "executor", "clusters": [found.site.name]}
    answer = ask_socket(config, "authorize", pair=key.pair, **fields)
    write_key(path, replace(key, server=answer["server"]))


def _slots(args: argparse.Namespace, cluster: str) -> int:
    """Slots of a cluster, once the daemon has read it."""
    end, why = time.monotonic() + START_LIMIT_S, "coallocd does not answer"
    while time.monotonic() < end:
        try:
            with connect(args) as client:
                rows = [row for row in client.known_nodes().clusters if row.cluster == cluster]
        except NoAnswerError:
            continue
        if rows and not rows[0].stale:
            return sum(node.slots for node in rows[0].nodes)
        why = rows[0].error if rows else "coallocd does not know it"
        time.sleep(0.2)
    raise CommandError(f"{cluster}: not read within {START_LIMIT_S:g} s: {why}")


def _disconnect(args: argparse.Namespace) -> int:
    config = configuration(args)
    known = {each.name: each for each in connections(file_of(config, find_config(args.config)))}
    found = known.get(args.name)
    if found is None:
        raise CommandError(f"there is no connection {args.name!r}; there are: {', '.join(known)}")
    found.stop()
    path = found.folder / "key.json"
    if found.site.owner and path.exists():
        ask_socket(config, "revoke", key=read_key(path).pair.public)
        path.unlink()
    keep(config, found.file, found.name, None)
    if not found.site.owner:
        reload(config)
    print(f"{found.name}: disconnected; what runs there goes on")
    return DONE


COMMANDS: Mapping[str, Command] = {
    "connect": Command(
        doc="use a cluster of one's own by a login there",
        about="Log in, look at the cluster, and start one's own executor for it; jobs of others "
        "never go there.\nWithout a daemon, one of one's own is started.",
        example="coalloc connect ada@login.alpha.example\n  coalloc connect alpha   # again",
        add=_add,
        run=_connect,
    ),
    "disconnect": Command(
        doc="give up a cluster of one's own; what runs there goes on",
        example="coalloc disconnect alpha",
        add=_add_name,
        run=_disconnect,
    ),
}
