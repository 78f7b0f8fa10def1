"""Checks of a configuration by those who know: policies, adapters, batch accounts, speed-ups."""

from __future__ import annotations

from difflib import get_close_matches

from coalloc.adapters.local.settings import LocalSettings, refuse_collisions
from coalloc.adapters.registry import adapter_kind
from coalloc.core.jobs.eligibility import check_accounts
from coalloc.daemon.foreign_options import check_foreign_options, check_options
from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown
from coalloc.model.formats.job_json import read_speedup
from coalloc.model.formats.speedup_text import shape_of
from coalloc.model.settings import Config
from coalloc.policies.registry import POLICIES, foreign_names
from coalloc.wire.curve import is_key


def check_policies(config: Config) -> None:
    """Refuse unknown policies, and options that the configured one does not have."""
    rounds = config.rounds
    named = [("rounds.policy", rounds.policy)]
    named += [(f"rounds.fallbacks[{i}]", name) for i, name in enumerate(rounds.fallbacks)]
    named += [
        (f"rounds.trigger[{i}].policy", trigger.policy)
        for i, trigger in enumerate(rounds.trigger)
        if trigger.policy
    ]
    for where, name in named:
        if name not in POLICIES and name not in foreign_names():
            there = (*POLICIES, *foreign_names())
            near = get_close_matches(name, there, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(there)}"
            raise InputError(where, f"there is no policy {shown(name)}{hint}")
    if rounds.policy in POLICIES:
        form = POLICIES[rounds.policy].options
        check_options(rounds.policy, form, rounds.options, "rounds.options")
    else:
        check_foreign_options(rounds.policy, rounds.options, "rounds.options")


def check(config: Config) -> None:
    """Refuse what the reader of the configuration cannot know to be wrong, at the key's path."""
    if config.access.server_key and not is_key(config.access.server_key):
        raise InputError("access.server_key", "is not a public key of 40 characters")
    matches = {f"jobs.match[{i}]": match for i, match in enumerate(config.jobs.match)}
    for where, table in {"jobs.defaults": config.jobs.defaults, **matches}.items():
        if table.speedup is not None:
            _check_speedup(table.speedup, f"{where}.speedup")
    check_policies(config)
    local: dict[str, LocalSettings] = {}
    for i, cluster in enumerate(config.clusters):
        where = f"clusters[{i}]"
        check_accounts(cluster.accounts, f"{where}.accounts")
        kind = adapter_kind(cluster.adapter, f"{where}.adapter")
        settings = kind.check(dict(cluster.settings), cluster.name, f"{where}.settings")
        if isinstance(settings, LocalSettings):
            local[cluster.name] = settings
    refuse_collisions(local)


def _check_speedup(text: str, where: str) -> None:
    try:
        read_speedup({**shape_of(text), "time": 1.0}, text)
    except (ValueError, InputError) as error:
        raise InputError(where, str(error)) from error
