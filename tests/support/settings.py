"""Settings of the core from a few values, wherever in the configuration they stand."""

from typing import Any

from coalloc.model.settings import Config
from coalloc.model.values import replace

SECTIONS = ("rounds", "power", "readings", "start", "jobs", "daemon")


def core_settings(config: Config | None = None, /, **given: Any) -> Config:
    """A configuration with these values; one that is no section is of the section that has it."""
    config = Config() if config is None else config
    for key, value in given.items():
        if key in Config.__struct_fields__:
            config = replace(config, **{key: value})
            continue
        named = [name for name in SECTIONS if key in getattr(config, name).__struct_fields__]
        (section,) = named
        changed = replace(getattr(config, section), **{key: value})
        config = replace(config, **{section: changed})
    return config
