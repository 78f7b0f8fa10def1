"""A configuration as TOML text: what ``coallocd --check-config`` prints."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from coalloc.model.settings import Config

TIMES = (datetime.datetime, datetime.date, datetime.time)
"""Values that TOML has and JSON has not."""


def toml_text(config: Config) -> str:
    """The configuration as it would be used, every key written out; it reads back equal."""
    import tomli_w  # the daemon itself writes none

    return tomli_w.dumps(_without_none(msgspec.to_builtins(config, builtin_types=TIMES)))


def _without_none(value: Any) -> Any:
    """The value without the keys that have none, for which TOML has no word."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value
