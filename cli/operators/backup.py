"""``coalloc backup`` and ``restore``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from coalloc.cli.command import CONFIG, DONE, Command, CommandError, configuration, connect, note
from coalloc.option_text import add_options

STORE = "coalloc.db"
BACKUP_S = 600.0
"""For a large store on a busy disk, seconds."""


def _backup(args: argparse.Namespace) -> int:
    from coalloc.client.client import NoAnswerError
    from coalloc.client.endpoint import await_listener, configured_endpoints

    path = Path(args.file).absolute()
    endpoint = args.endpoint or configured_endpoints(args.config)[0]
    try:
        await_listener(endpoint, 0.0)
    except NoAnswerError:
        if args.endpoint:
            raise
        return _backup_stopped(args, path)
    with connect(args) as client:
        answer = client.backup(path, timeout_s=max(BACKUP_S, args.timeout))
    print(f"{path}: {answer.bytes} bytes")
    return DONE


def _backup_stopped(args: argparse.Namespace, path: Path) -> int:
    """No daemon runs: its store is ours to read."""
    from coalloc.daemon.store.beside import StoreError, copy_stopped

    store = _store_path(args)
    if not store.exists():
        raise CommandError(f"{store}: there is no store, and no daemon runs")
    try:
        copy_stopped(store, path)
    except StoreError as error:
        raise CommandError(str(error)) from error
    print(f"{path}: {path.stat().st_size} bytes")
    return DONE


WITHOUT_BACKUP = """
--salvage   keep what is whole of a damaged FILE, by default of the store itself
--empty     begin a store without any job
"""


def _add_restore(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "FILE?   as 'coalloc backup' wrote it", file=Path)
    add_options(parser.add_mutually_exclusive_group(), WITHOUT_BACKUP)
    add_options(parser, CONFIG, config=Path)


def _restore(args: argparse.Namespace) -> int:
    from coalloc.daemon.store.beside import Source, StoreError, restore

    store = _store_path(args)
    if args.empty and args.file is not None:
        raise CommandError("--empty takes no FILE")
    if args.file is None and not (args.salvage or args.empty):
        raise CommandError("FILE is missing; without a backup: --salvage or --empty")
    source: Source = "damaged" if args.salvage else "empty" if args.empty else "backup"
    try:
        restored = restore(args.file or store, store, source=source)
    except StoreError as error:
        raise CommandError(str(error)) from error
    print(f"{store}: restored, {restored.active} jobs have not ended")
    if restored.left_out:
        print(f"damaged rows that were left out: {restored.left_out}")
    print(f"the next job is {restored.next_job}: above every number given since the backup")
    if restored.kept is not None:
        print(f"{restored.kept}: the former store")
    note("rounds are paused: start coallocd, look at 'coalloc queue', then 'coalloc resume rounds'")
    return DONE


def _store_path(args: argparse.Namespace) -> Path:
    return Path(configuration(args).daemon.state_dir) / STORE


COMMANDS: Mapping[str, Command] = {
    "backup": Command(
        doc="copy the daemon's store to a file, while it runs or not",
        about=(
            "Write a consistent copy of the daemon's store: jobs, orders, events. A running daemon"
            " writes it\nitself, as its own user, and goes on serving."
        ),
        example="coalloc backup /var/backups/coalloc.db",
        add=partial(add_options, text="FILE   a former backup is replaced", file=Path),
        run=_backup,
    ),
    "restore": Command(
        doc="put a backup in the place of the daemon's store",
        about=(
            "Put a backup in the place of the daemon's store, with the daemon stopped. The former"
            " store is\nkept beside it. Executors refuse the daemon that is replaced. Rounds are"
            " paused until\n'coalloc resume rounds', since waiting jobs may have run after the"
            " backup was made."
        ),
        example="coalloc restore /var/backups/coalloc.db",
        add=_add_restore,
        run=_restore,
        asks=False,
    ),
}
