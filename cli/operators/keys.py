"""``coalloc keys``: make a key, have keys authorized and revoked, list them."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coalloc.cli.command import (
    BAD_USAGE,
    CONFIG,
    DONE,
    Command,
    CommandError,
    configuration,
    note,
    print_json,
)
from coalloc.cli.output import show_table
from coalloc.model.values import replace
from coalloc.option_text import add_options

if TYPE_CHECKING:
    from coalloc.model.settings import Config
    from coalloc.runtime.key_files import KeyFile
    from coalloc.wire.curve import KeyPair

ROLES = ("submit", "operator", "executor")

VERBS = {
    "new": (
        "make a key of one's own, and have it enrolled",
        """
--file           where it lies (default: $COALLOC_KEY, or the user's)
--offline        only make it; another has it authorized
--server KEY     with --offline: the daemon's public key
--role =submit   default: submit
--cluster NAME *   whose executor it is; may be repeated
""",
    ),
    "authorize": (
        "let a public key be used",
        """
PUBLIC @key      40 characters, as 'keys new' prints
-u --user NAME   whose it is (default: one's own)
--role =submit   default: submit
--cluster NAME *   whose executor it is; may be repeated
""",
    ),
    "revoke": (
        "take a key's rights away, at once and for ever",
        "KEY   its first 8 characters, or more",
    ),
    "list": ("one's own keys; for root, all", "--json   print JSON"),
}
"""Help and options of each verb."""


def _add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="new|authorize|revoke|list", required=True)
    for verb, (about, options) in VERBS.items():
        added = verbs.add_parser(verb, help=about)
        add_options(added, options, file=Path, role=ROLES)
        add_options(added, CONFIG, config=Path)


def _run(args: argparse.Namespace) -> int:
    run = {"new": _new, "authorize": _authorize, "revoke": _revoke, "list": _list}[args.verb]
    return run(args, configuration(args))


def ask_socket(config: Config, verb: str, **fields: Any) -> Mapping[str, Any]:
    """Ask the daemon's enrolment socket."""
    from coalloc.client.enrolment import EnrolmentError, ask

    try:
        return ask(Path(config.access.enrolment_socket), verb, **fields)
    except EnrolmentError as error:
        raise CommandError(str(error)) from error


def _new(args: argparse.Namespace, config: Config) -> int:
    from coalloc.runtime.key_files import KeyFileError, user_key_path, write_key
    from coalloc.runtime.user import user_name
    from coalloc.wire.curve import is_key

    if args.server is not None and not args.offline:
        raise CommandError("keys new: --server is for --offline", BAD_USAGE)
    if args.server is not None and not is_key(args.server):
        raise CommandError(
            f"keys new: --server: {args.server!r} is not a public key of 40 characters, as "
            "'coalloc keys list' and access.server_key have them",
            BAD_USAGE,
        )
    if (args.role == "executor") != bool(args.cluster):
        raise CommandError("keys new: --role executor goes with --cluster", BAD_USAGE)
    try:
        path = args.file or user_key_path()
        key, is_new = _own(path)
        if args.offline:
            key = replace(key, server=args.server or key.server)
            write_key(path, key)
        else:
            if is_new:
                write_key(path, key)
            answer = ask_socket(
                config,
                "authorize",
                pair=key.pair,
                key=key.pair.public,
                role=args.role,
                clusters=args.cluster,
                keep=args.role == "submit",
            )
            write_key(path, replace(key, server=answer["server"]))
    except KeyFileError as error:
        raise CommandError(str(error)) from error
    print(key.pair.public)
    note(f"{'made' if is_new else 'kept'} {path}{'; not enrolled yet' if args.offline else ''}")
    if args.offline:
        rest = "".join(f" --cluster {name}" for name in args.cluster)
        rest = f"--role {args.role}{rest}" if args.role != "submit" else f"--user {user_name()}"
        note(
            f"now, as root, where the daemon is: coalloc keys authorize '{key.pair.public}' {rest}"
        )
    elif args.role == "submit" and (os.geteuid() != 0 or config.access.root_jobs):
        note("now: coalloc submit -- hostname")
    return DONE


def _own(path: Path) -> tuple[KeyFile, bool]:
    from coalloc.runtime.key_files import KeyFile, read_key
    from coalloc.wire.curve import new_pair

    if os.path.lexists(path):
        return read_key(path), False
    return KeyFile(pair=new_pair()), True


def _pair_of(public: str) -> KeyPair | None:
    """One's own key, if that is the one with this public half."""
    from coalloc.runtime.key_files import KeyFileError, read_key, user_key_path

    try:
        pair = read_key(user_key_path()).pair
    except KeyFileError:
        return None
    return pair if pair.public == public else None


def _authorize(args: argparse.Namespace, config: Config) -> int:
    answer = ask_socket(
        config,
        "authorize",
        pair=_pair_of(args.key),
        key=args.key,
        user=args.user or "",
        role=args.role,
        clusters=args.cluster,
    )
    grant = answer["key"]
    clusters = ", ".join(grant["clusters"])
    purpose = f"speak for {clusters}" if clusters else grant["role"]
    note(f"{grant['key'][:12]} is {grant['user']}'s, to {purpose}")
    return DONE


def _revoke(args: argparse.Namespace, config: Config) -> int:
    grant = ask_socket(config, "revoke", key=args.key)["key"]
    note(f"{grant['key'][:12]} of {grant['user']} is revoked")
    return DONE


def _list(args: argparse.Namespace, config: Config) -> int:
    keys = ask_socket(config, "list")["keys"]
    if args.json:
        print_json(keys)
        return DONE
    rows = [
        (
            grant["key"],
            grant["user"],
            grant["role"],
            ",".join(grant["clusters"]) or "-",
            _day(grant["added"]),
            "-" if grant["revoked"] is None else _day(grant["revoked"]),
            grant["by"],
        )
        for grant in keys
    ]
    show_table(("KEY", "USER", "ROLE", "CLUSTERS", "ADDED", "REVOKED", "BY"), rows)
    return DONE


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


COMMANDS: Mapping[str, Command] = {
    "keys": Command(
        doc="make, authorize, revoke and list keys",
        about=(
            "Make, authorize, revoke and list the keys that tell users apart in multi-user mode.\n"
            "A user enrols keys of his own to submit with; root, or the daemon's user, decides\n"
            "over all keys and roles. To be run on the daemon's machine."
        ),
        example=(
            "coalloc keys new\n"
            "  coalloc keys authorize PUBLIC --user ada --role operator\n"
            "  coalloc keys new --file /var/lib/coalloc-executor/executors/alpha/key.json "
            "--role executor --cluster alpha\n"
            "  coalloc keys revoke 'Yne@$w-v'"
        ),
        add=_add,
        run=_run,
        asks=False,
    ),
}
