"""The daemon's look at itself, every few seconds."""

from __future__ import annotations

import asyncio

from coalloc.core.base.accuracy import start_accuracy
from coalloc.daemon.monitoring.figures import (
    EVERY_S,
    Survey,
    cluster_figures,
    store_bytes,
    waiting_by_reason,
)
from coalloc.daemon.service import Service
from coalloc.daemon.store.disk import disk_of


async def surveyed(service: Service) -> None:
    """Keep metrics up to date, and notify of what has changed, while either is wanted."""
    while True:
        notifiers = service.notifier.is_on, service.user_mail.is_on
        if service.config.daemon.metrics_address or any(notifiers):
            look(service)
        await asyncio.sleep(EVERY_S)


def look(service: Service) -> None:
    """Look once."""
    found = survey(service)
    service.metrics.survey(found)
    service.metrics.sample(service.core.state, service.delivery.waiting(), service.server.faults)
    service.notifier.surveyed(found)
    service.user_mail.looked(service.core.state.placed_records(), found.time)


def survey(service: Service) -> Survey:
    """The figures of this moment."""
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
