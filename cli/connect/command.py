"""``coalloc connect`` and ``disconnect``: a cluster of one's own, by a login there."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coalloc.adapters.ssh.master import OPEN, SshError, SshMaster
from coalloc.adapters.ssh.shell import Shell
from coalloc.cli.command import BAD_USAGE, DONE, Command, CommandError, configuration, connect
from coalloc.cli.connect import connections as kept
from coalloc.cli.connect.login import look
from coalloc.cli.nodes import ready
from coalloc.cli.operators.keys import ask_socket
from coalloc.model.settings import ClusterConfig, Config
from coalloc.model.values import replace
from coalloc.programs import require_server
from coalloc.runtime.config.file import find_config
from coalloc.runtime.key_files import kept_key, read_key, write_key
from coalloc.runtime.user import user_name

START_LIMIT_S = 60.0


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("login", metavar="LOGIN", help="USER@HOST, an alias of ssh, or NAME again")
    parser.add_argument("--name", help="of the cluster (default: from the host's name)")
    route = parser.add_argument("--route", choices=["auto", "login", "head", "files"])
    route.help = "how nodes are told and read (default: as a test job finds out)"
    option = parser.add_argument("--ssh-option", action="append", default=[], metavar="NAME=VALUE")
    option.help = "as in ssh's configuration: Port=2222; may be repeated"


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")


def _connect(args: argparse.Namespace) -> int:
    require_server()
    config = configuration(args)
    file = kept.file_of(config, find_config(args.config))
    if config.daemon.mode == "multi-user":  # a user without a key hears of it first
        with connect(args) as client:
            client.status()
    site = _asked(args, config, file)
    if args.route:
        site = replace(site, settings={**site.settings, "route": args.route, "address": ""})
    name, login = kept.short(site), kept.login(site)
    try:
        state = SshMaster(*login).open(terminal=True)
        if state.state != OPEN:
            raise CommandError(f"{name}: {login[0]}: {state.state}: {state.why}")
        kept.keep(config, file, site.name, site)
        folder = kept.folder_of(site)
        factors = "key and second factor" if state.asks else "key"
        seen = look(Shell.of(*login), str(folder), factors, site.settings.get("route", "auto"))
        for line in seen.lines:
            print(f"{name}: {line}", flush=True)
        site = replace(site, settings={**site.settings, **seen.settings})
        kept.keep(config, file, site.name, site)
    except SshError as error:
        raise CommandError(f"{name}: {error}") from error
    if site.owner:
        _enrol(config, site, folder / "key.json")
    elif not kept.reload(config):
        print(f"coallocd: {kept.started('coallocd', 'daemon.main', file)}")
    words = f"executor-{name}", "executor.main", file, "--cluster", site.name
    how = "runs already" if kept.pid_of(folder) else kept.started(*words)
    args.wait, args.clusters = START_LIMIT_S, [site.name]
    with connect(args) as client:
        rows = ready(client, args).clusters
    slots = sum(node.slots for row in rows if row.cluster == site.name for node in row.nodes)
    print(f"{name}: executor {how}; {slots} slots; now: coalloc submit -n 4 -- hostname")
    return DONE


def _asked(args: argparse.Namespace, config: Config, file: Path) -> ClusterConfig:
    """The connection that is meant: one that stands in the file, or a new one."""
    for known in kept.connections(file):
        name = kept.short(known)
        if args.login in (name, known.settings["ssh"]) and args.name in (None, name):
            return known
    host = args.login.rpartition("@")[2]
    first, *rest = [host.replace(":", "-")] if host[-1:].isdigit() else host.split(".")
    name = args.name or (rest[0] if rest and first.startswith(("login", "ssh", "head")) else first)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}", name):
        raise CommandError(f"connect: --name: {name!r} is no name of letters and digits", BAD_USAGE)
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
    return ClusterConfig(name=full, owner=owner, adapter="slurm", settings=settings)


def _enrol(config: Config, site: ClusterConfig, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    key = kept_key(path)
    fields = {"key": key.pair.public, "role": "executor", "clusters": [site.name]}
    answer = ask_socket(config, "authorize", pair=key.pair, **fields)
    write_key(path, replace(key, server=answer["server"]))


def _disconnect(args: argparse.Namespace) -> int:
    config = configuration(args)
    file = kept.file_of(config, find_config(args.config))
    known = {kept.short(site): site for site in kept.connections(file)}
    if args.name not in known:
        raise CommandError(f"no connection {args.name!r}; there are: {', '.join(known) or 'none'}")
    site = known[args.name]
    folder = kept.folder_of(site)
    kept.stop(folder)
    Shell.of(*kept.login(site)).end()
    SshMaster(*kept.login(site)).close()
    path = folder / "key.json"
    if site.owner and path.exists():
        ask_socket(config, "revoke", key=read_key(path).pair.public)
        path.unlink()
    kept.keep(config, file, site.name)
    if not site.owner:
        kept.reload(config)
    print(f"{args.name}: disconnected; what runs there goes on")
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
