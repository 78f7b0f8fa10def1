"""``coallocd``: the daemon as a process.

SIGTERM and SIGINT stop it in good order (running jobs go on; their executors keep them),
SIGHUP reads the configuration again and keeps the old one if the new one is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import coalloc
from coalloc.core.base.accuracy import start_accuracy
from coalloc.core.base.events import SolverWarm, TimerFired
from coalloc.core.base.projects import DAY_S
from coalloc.daemon import watchdog
from coalloc.daemon.access.enrolment import Enrolment
from coalloc.daemon.access.enrolment_socket import EnrolmentSocket
from coalloc.daemon.access.key_table import KeyTableError
from coalloc.daemon.assembly import cache_dir, opened
from coalloc.daemon.config_checks import check
from coalloc.daemon.garbage import FrozenGarbage
from coalloc.daemon.monitoring.figures import (
    EVERY_S,
    Survey,
    cluster_figures,
    store_bytes,
    waiting_by_reason,
)
from coalloc.daemon.service import Service
from coalloc.daemon.store import upkeep
from coalloc.daemon.store.disk import disk_of
from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.timer import Timers
from coalloc.daemon.watchdog import Listener, Reachability
from coalloc.model.errors import ConfigError
from coalloc.model.settings import Config
from coalloc.option_text import add_options
from coalloc.runtime import logs, systemd
from coalloc.runtime.config.file import changes, find_config, load, needs_restart, toml_text
from coalloc.runtime.key_files import KeyFileError
from coalloc.runtime.systemd import go_before_jobs, set_process_name

M_MMAP_THRESHOLD, LARGE_BYTES = -3, 1 << 18
"""Of malloc.h; blocks of so many bytes go back to the system when they are freed."""


OPTIONS = """
--config FILE    configuration (TOML)
--check-config   read the configuration, say if it is right, end
--warm           compile what the solver needs, so that the daemon need not wait for it, end
--init [DIR]     look at this machine, write a configuration with the clusters found and make the
                 keys it needs, all in DIR (default: the usual folders), end; overwrites nothing
--mode           with --init (default: multi-user for root, else single-user)
"""


def build_parser() -> argparse.ArgumentParser:
    """The daemon's options."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="coallocd",
        description="The coalloc daemon: plans and starts jobs over several clusters.",
        epilog="example: coallocd --config /etc/coalloc/coallocd.toml --check-config",
    )
    add_options(parser, OPTIONS, config=Path, mode=("single-user", "multi-user"))
    parser.add_argument("--version", action="version", version=f"coalloc {coalloc.__version__}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; returns the exit code."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.mode and args.init is None:
        parser.error("--mode goes with --init")
    try:
        return _run(args)
    except (StoreError, OSError, ConfigError, KeyFileError, KeyTableError) as error:
        print(f"coallocd: error: {error}", file=sys.stderr)
        return 1


def _run(args: argparse.Namespace) -> int:
    if args.init is not None:
        from coalloc.daemon.initial import initialise

        return initialise(args.init, args.mode)
    path = find_config(args.config)
    try:
        config = load(path, check=check)
    except ConfigError as error:
        print(f"coallocd: error: {error}", file=sys.stderr)
        return 2
    if args.check_config:
        print(f"# {path or 'built-in defaults'}: ok, {len(config.clusters)} clusters; in use:")
        print(toml_text(config), end="")
        return 0
    if args.warm:
        directory = cache_dir(config)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.environ["NUMBA_CACHE_DIR"] = str(directory)
        # Loaded here: the compiler reads where its cache is, and takes a moment.
        from coalloc.daemon.solver import warming

        return warming.main()
    logs.configure(config.daemon.log_level, config.daemon.log_format)
    set_process_name("coallocd")
    if config.daemon.mode == "multi-user":
        go_before_jobs()
    # glibc keeps ever larger blocks of long messages, mallopt(3); other C libraries do not.
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
    gc.callbacks.append(FrozenGarbage())
    asyncio.run(_serve(config, path))
    return 0


async def _serve(config: Config, path: Path | None) -> None:
    log = logs.get_logger()
    loop = asyncio.get_running_loop()
    logs.report_callback_errors(loop)
    stop: asyncio.Future[None] = loop.create_future()
    async with AsyncExitStack() as stack:
        service = await opened(config, log, stack)
        reachability = Reachability(
            _listeners(service, config, stack), log, service.store.check_place
        )
        timers = Timers(lambda index: service.loop.offer(TimerFired(trigger=index)))
        timers.start(_periods(config))
        stack.push_async_callback(timers.stop)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _end, stop)
        loop.add_signal_handler(signal.SIGHUP, _reload, service, timers, path, config)
        beside = [
            _watched(reachability.watch(), stop),
            _watched(upkeep.examine(service.store, log), stop),
            _tended(service),
            _warmed(service),
            _surveyed(service),
        ]
        interval_s = systemd.watchdog_interval_s()
        if interval_s is not None:
            beside.append(watchdog.feed(service, interval_s, reachability))
        for work in beside:
            stack.callback(loop.create_task(work).cancel)
        state = service.core.state
        log.info(
            "daemon_started",
            version=coalloc.__version__,
            config=str(path or "defaults"),
            endpoint=config.daemon.endpoint,
            clusters=[cluster.name for cluster in config.clusters],
            policy=config.rounds.policy,
            epoch=state.epoch,
            waiting=len(state.waiting),
            placed=len(state.placed),
        )
        systemd.notify(systemd.READY, systemd.status("serving"))
        await stop
        service.is_stopping = True
        systemd.notify(systemd.STOPPING)
        log.info("daemon_stopping", waiting=len(state.waiting), placed=len(state.placed))
    log.info("daemon_stopped")


def _end(stop: asyncio.Future[None], error: StoreError | None = None) -> None:
    if stop.done():
        return
    if error is None:
        stop.set_result(None)
    else:
        stop.set_exception(error)


async def _watched(work: Awaitable[None], stop: asyncio.Future[None]) -> None:
    """Do this beside serving; where it finds the store unusable, the daemon stops."""
    try:
        await work
    except StoreError as error:
        _end(stop, error)


def _listeners(service: Service, config: Config, stack: AsyncExitStack) -> list[Listener]:
    """All sockets; where users are told apart, that of enrolment is opened here."""
    listeners: list[Listener] = [*service.server.listeners]
    if service.access is not None:
        enrolment = EnrolmentSocket(
            Path(config.access.enrolment_socket),
            Enrolment(
                service.access,
                config,
                on_change=service.server.key_changed,
                on_clusters=service.take_clusters,
            ),
        )
        enrolment.open()
        stack.push_async_callback(enrolment.close)
        listeners.append(enrolment)
    return listeners


async def _warmed(service: Service) -> None:
    """Plan again what a round without the solver has left waiting, once it is ready."""
    while not await service.solver.wait_warm(60.0):
        service.log.warning("solver_still_cold", policy_meanwhile="plain")
    service.loop.offer(SolverWarm())


async def _surveyed(service: Service) -> None:
    """Keep metrics up to date, and notify of what has changed, while either is wanted."""
    while True:
        notifiers = service.notifier.is_on, service.user_mail.is_on
        if service.config.daemon.metrics_address or any(notifiers):
            _look(service)
        await asyncio.sleep(EVERY_S)


def _look(service: Service) -> None:
    found = _survey(service)
    service.metrics.survey(found)
    service.metrics.sample(service.core.state, service.delivery.waiting(), service.server.faults)
    service.notifier.surveyed(found)
    service.user_mail.looked(service.core.state.placed_records(), found.time)


def _survey(service: Service) -> Survey:
    state, now = service.core.state, service.clock()
    path = service.store.path
    return Survey(
        time=now,
        clusters=cluster_figures(state, now),
        waiting=waiting_by_reason(state),
        solver_warm=service.solver.is_warm,
        solver_requests=dict(service.solver.outcomes),
        writable=service.writer.is_writable,
        store_bytes=store_bytes(path),
        disk=disk_of(path.parent),
        notifications=dict(service.notifier.counts + service.user_mail.counts),
        starts=start_accuracy(state.learning.calibration.newest()),
    )


def _periods(config: Config) -> dict[int, float]:
    triggers = enumerate(config.rounds.trigger)
    return {index: trigger.every_s for index, trigger in triggers if trigger.kind == "timer"}


def _reload(service: Service, timers: Timers, path: Path | None, begun: Config) -> None:
    """Read the configuration again; `begun` is the one that the daemon was started with."""
    log = service.log
    systemd.notify(*systemd.reloading())
    try:
        config = load(path, check=check)
    except ConfigError as error:
        log.error("reload_failed", why=str(error), kept="the old configuration")
        systemd.notify(systemd.READY)
        return
    changed = changes(service.config, config)
    later = [key for key in changes(begun, config) if needs_restart(key)]
    service.reconfigure(config)
    timers.configure(_periods(config))
    logs.configure(config.daemon.log_level, config.daemon.log_format)
    log.info("configuration_reloaded", changed=changed, needs_restart=later)
    systemd.notify(systemd.READY)


async def _tended(service: Service) -> None:
    while True:
        daemon = service.config.daemon
        days = daemon.keep_accounts_days
        before = service.clock() - days * DAY_S if days else None
        await upkeep.tend(service.store, daemon.keep_events, service.log, before)
        await asyncio.sleep(upkeep.EVERY_S)


if __name__ == "__main__":
    sys.exit(main())
