"""Logging: lines for people on a terminal, JSON lines otherwise; the standard library's too.

Event names are past tense and ``snake_case``; everything else is a key.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "console", "json"]

MAX_KEYS = 1000
# Frames hold the jobs' environments: a log shows where an error arose, never with which values.
TRACEBACKS = structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=20)
# Chatty about every job they run; what goes wrong is a warning.
QUIET = ("apscheduler", "asyncio")


def configure(level: Level = "info", format: Format = "auto", stream: TextIO | None = None) -> None:
    """Set up logging for this process, on standard error by default; may be called again.

    The format ``auto`` is ``console`` on a terminal, else ``json``.
    """
    stream = stream or sys.stderr
    is_console = format == "console" or (format == "auto" and stream.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        # not cached: a reload changes what is configured here
        cache_logger_on_first_use=False,
    )
    renderers: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if is_console:
        renderers.append(_one_line)
        renderers.append(
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(),
                sort_keys=False,
                # Not the default: where rich is installed, that shows local variables.
                exception_formatter=structlog.dev.plain_traceback,
            )
        )
    else:
        is_utf8 = (stream.encoding or "utf-8").lower().replace("-", "") == "utf8"
        renderers += [
            structlog.processors.ExceptionRenderer(TRACEBACKS),
            _headed,
            # JSON has an escape for what the stream cannot show, which is not the stream's own
            structlog.processors.JSONRenderer(sort_keys=False, ensure_ascii=not is_utf8),
        ]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=renderers, foreign_pre_chain=shared)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # A log that cannot be written is no reason to print a traceback where it cannot be either.
    logging.raiseExceptions = False
    logging.captureWarnings(True)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def report_callback_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Log what a loop's callbacks and tasks raise without their arguments, which asyncio shows."""

    def report(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        what = str(context.get("message", "")).partition("<")[0].partition("(")[0].strip()
        get_logger().error("callback_failed", what=what, exc_info=error)

    loop.set_exception_handler(report)


def _one_line(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """Leave nothing in texts, such as users' names of jobs, that a terminal would act on."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[key] = "".join(c if c.isprintable() else "?" for c in value)
    return event


def _headed(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    """Put first what a reader looks for first."""
    head = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
    return {**head, **event}


def get_logger(**values: object) -> structlog.stdlib.BoundLogger:
    """A logger; the values go into each of its lines."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger()
    return logger.bind(**values) if values else logger


class RateLimit:
    """Counts what may happen often, and says when to log it: once per key in so many seconds.

    >>> limit = RateLimit(60.0)
    >>> if count := limit.once_per("frame_too_long"):
    ...     log.warning("frame_refused", count=count)
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        # key to the time of its last line, and what was counted since
        self._seen: dict[str, tuple[float, int]] = {}

    def once_per(self, key: str) -> int:
        """Count one occurrence: how often since the last line, this included; 0: do not log now."""
        now = self._clock()
        last, count = self._seen.get(key, (None, 0))
        if last is not None and now - last < self.seconds:
            self._seen[key] = (last, count + 1)
            return 0
        # whoever makes up keys must not fill the memory: the oldest go
        self._seen.pop(key, None)
        if len(self._seen) >= MAX_KEYS:
            self._seen.pop(next(iter(self._seen)))
        self._seen[key] = (now, 0)
        return count + 1
