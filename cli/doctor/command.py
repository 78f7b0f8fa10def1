"""``coalloc doctor``: looks at everything an installation needs, and says what to do."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from coalloc.cli.command import DONE, FAILED, Command, connect, print_json
from coalloc.cli.doctor.findings import Finding, Level, ok, problem
from coalloc.cli.output import is_terminal
from coalloc.runtime.texts import printable

if TYPE_CHECKING:
    from coalloc.model.settings import Config

SHOWN: Mapping[Level, str] = {
    Level.OK: "ok",
    Level.UNKNOWN: "?",
    Level.WARNING: "WARNING",
    Level.PROBLEM: "PROBLEM",
}
COLOURS: Mapping[Level, str] = {Level.OK: "32", Level.WARNING: "33", Level.PROBLEM: "31"}


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="only what is not in order")
    parser.add_argument("--strict", action="store_true", help="exit code 1 for warnings too")


def _run(args: argparse.Namespace) -> int:
    found = list(findings(args))
    if args.json:
        print_json([asdict(finding) for finding in found])
    else:
        _show(found, is_quiet=args.quiet)
    bad = {Level.PROBLEM, Level.WARNING} if args.strict else {Level.PROBLEM}
    return FAILED if any(finding.level in bad for finding in found) else DONE


def findings(args: argparse.Namespace) -> Iterator[Finding]:
    """Look at everything, the configuration first: without it there is nothing to look at."""
    from coalloc.daemon.config_checks import check
    from coalloc.model.errors import ConfigError
    from coalloc.runtime.config.file import find_config, load

    path = find_config(args.config)
    try:
        config = load(path, check=check)
    except ConfigError as error:
        yield problem("configuration", str(error), "mend it; coallocd --check-config says the next")
        return
    names = ", ".join(cluster.name for cluster in config.clusters)
    yield ok("configuration", f"{path or 'built-in defaults'}: clusters {names}")
    yield from _looked_at(args, config, path)


def _looked_at(args: argparse.Namespace, config: Config, path: Path | None) -> Iterator[Finding]:
    from coalloc.cli.connect.connections import connection_findings
    from coalloc.cli.doctor.files import commands_finding, file_findings, kernels_finding
    from coalloc.cli.doctor.live import daemon_findings, no_daemon
    from coalloc.wire.client import NoAnswerError

    yield from file_findings(config, path)
    try:
        with connect(args) as client:
            live = list(
                daemon_findings(
                    client,
                    sees_disk=Path(config.daemon.state_dir).exists(),
                    one_machine=config.daemon.executor_endpoint.startswith("ipc://"),
                    readers=config.readings.readers,
                )
            )
    except NoAnswerError as error:
        live = [no_daemon(error)]
    yield from live
    if not any(finding.about == "solver" for finding in live):
        yield kernels_finding(config)
    read = {finding.about for finding in live if finding.level is Level.OK}
    yield from connection_findings()
    for cluster in config.clusters:
        # One that is read has its commands, wherever its executor runs.
        commands = None if cluster.settings.get("ssh") else commands_finding(cluster)
        if commands is not None and f"cluster {cluster.name}" not in read:
            yield commands


def _show(found: Sequence[Finding], *, is_quiet: bool) -> None:
    coloured = is_terminal() and "NO_COLOR" not in os.environ
    shown = [each for each in found if not (is_quiet and each.level is Level.OK)]
    size = max((len(each.about) for each in shown), default=0)
    for each in shown:
        word = f"{SHOWN[each.level]:<7}"
        if coloured and each.level in COLOURS:
            word = f"\x1b[{COLOURS[each.level]}m{word}\x1b[0m"
        print(f"{word}  {each.about:<{size}}  {printable(each.line)}")
    counts = Counter(each.level for each in found)
    if not is_quiet or shown:
        print(f"problems: {counts[Level.PROBLEM]}, warnings: {counts[Level.WARNING]}")


COMMANDS: Mapping[str, Command] = {
    "doctor": Command(
        doc="look at the whole installation, and say what to do",
        about=(
            "Look at configuration, folders, keys, disk, daemon, clusters, clocks and versions: a\n"
            "line for each, with what to do. Exit code 1 where something does not work."
        ),
        example="coalloc doctor\n  coalloc doctor --quiet --strict   # for a monitoring system",
        add=_add,
        run=_run,
        query=True,
    )
}
