"""``coalloc-executor``: one cluster's executor as a process.

SIGTERM stops it in good order; the parts it has started go on, and are adopted when it is
started again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import coalloc
from coalloc.adapters.base import AdapterError
from coalloc.adapters.registry import adapter_kind
from coalloc.executor.access import access_of
from coalloc.executor.service import ExecutorService
from coalloc.model.errors import ConfigError, InputError
from coalloc.model.settings import ClusterConfig, Config
from coalloc.runtime import logs, systemd
from coalloc.runtime.config.file import find_config, load
from coalloc.runtime.key_files import KeyFileError
from coalloc.runtime.systemd import go_before_jobs, set_process_name


def build_parser() -> argparse.ArgumentParser:
    """The executor's options."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="coalloc-executor",
        description="Reads one cluster and starts the parts of jobs on it, for coallocd.",
        epilog="example: coalloc-executor --cluster alpha",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="the daemon's configuration")
    parser.add_argument("--cluster", required=True, help="name of the cluster in the configuration")
    parser.add_argument("--version", action="version", version=f"coalloc {coalloc.__version__}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run an executor; returns the exit code."""
    args = build_parser().parse_args(argv)
    path = find_config(args.config)
    try:
        config = load(path)
        cluster = _cluster(config, args.cluster, path)
    except ConfigError as error:
        print(f"coalloc-executor: error: {error}", file=sys.stderr)
        return 2
    logs.configure(config.daemon.log_level, config.daemon.log_format)
    set_process_name("coalloc-executor")
    if config.daemon.mode == "multi-user" and cluster.adapter == "local":
        go_before_jobs()
    os.umask(0o066)  # nobody reads what is written here; a job's processes have one of their own
    state_dir = Path(config.daemon.state_dir) / "executors" / cluster.name
    try:
        # What lies above it is the daemon's, and as private, whoever is the first to start.
        is_shared = config.daemon.mode == "multi-user"
        for folder in reversed((state_dir, *state_dir.parents[:2])):
            folder.mkdir(parents=True, exist_ok=True, mode=0o711 if is_shared else 0o700)
        if is_shared:
            state_dir.chmod(0o711)  # users pass through it to the scripts of their jobs
        asyncio.run(_serve(config, cluster, state_dir))
    except InputError as error:
        print(f"coalloc-executor: error: {path}: {error}", file=sys.stderr)
        return 2
    except (AdapterError, OSError, KeyFileError) as error:
        print(f"coalloc-executor: error: {error}", file=sys.stderr)
        return 1
    return 0


def _cluster(config: Config, name: str, path: Path | None) -> ClusterConfig:
    for cluster in config.clusters:
        if cluster.name == name:
            return cluster
    known = ", ".join(cluster.name for cluster in config.clusters)
    raise ConfigError(f"{path or 'defaults'}: there is no cluster {name!r}; there are: {known}")


async def _serve(config: Config, cluster: ClusterConfig, state_dir: Path) -> None:
    log = logs.get_logger(cluster=cluster.name)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    logs.report_callback_errors(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(
        signal.SIGHUP,
        lambda: log.warning("reload_ignored", why="restart to use a new configuration"),
    )
    where = f"clusters.{cluster.name}"
    kind = adapter_kind(cluster.adapter, f"{where}.adapter")
    adapter = kind.open(dict(cluster.settings), cluster.name, f"{where}.settings", state_dir)
    executor = ExecutorService(
        cluster.name,
        adapter,
        config.daemon.executor_endpoint,
        state_dir,
        log,
        interval_s=config.readings.interval_s,
        timeout_s=config.readings.timeout_s,
        max_age_s=config.readings.max_age_s,
        access=access_of(config, state_dir / "key.json", cluster.owner),
    )
    executor.open()
    systemd.notify(systemd.READY, systemd.status(f"cluster {cluster.name}, pid {os.getpid()}"))
    beat = loop.create_task(_beat())
    refused = loop.create_task(executor.refused.wait())
    refused.add_done_callback(lambda _: stop.set())
    await stop.wait()
    beat.cancel()
    systemd.notify(systemd.STOPPING)
    is_refused = executor.refused.is_set()
    refused.cancel()
    await executor.close()
    if is_refused:
        raise KeyFileError(
            f"the daemon at {config.daemon.executor_endpoint} refuses the key of {state_dir}; "
            f"see coalloc keys --help"
        )


async def _beat() -> None:
    pause = systemd.watchdog_interval_s()
    while pause is not None:
        systemd.notify(systemd.WATCHDOG)
        await asyncio.sleep(pause)


if __name__ == "__main__":
    sys.exit(main())
