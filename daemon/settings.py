"""From the configuration to what the core is told."""

from __future__ import annotations

from argparse import ArgumentTypeError
from difflib import get_close_matches
from math import inf
from typing import Any

from coalloc.adapters.local.settings import LocalSettings, refuse_collisions
from coalloc.adapters.registry import adapter_kind
from coalloc.core.base.projects import Limits, Project, UserLimits
from coalloc.core.base.settings import (
    ClusterSettings,
    JobDefaults,
    PrioritySettings,
    Settings,
    Trigger,
)
from coalloc.core.jobs.batch_accounts import check_accounts
from coalloc.daemon.foreign_options import check_foreign_options, check_options
from coalloc.model.decoded import shown
from coalloc.model.errors import InputError
from coalloc.model.job_json import read_speedup
from coalloc.policies.registry import POLICIES, foreign_names
from coalloc.runtime import texts
from coalloc.runtime.config.schema import Config, JobDefaultsConfig, LimitsConfig
from coalloc.wire.curve import is_key


def core_settings(config: Config) -> Settings:
    """The numbers the daemon's core works with.

    Raises
    ------
    InputError
        A default speed-up or an account cannot be read.
    """
    rounds, power, start = config.rounds, config.power, config.start
    return Settings(
        clusters=_clusters(config),
        policy=rounds.policy,
        fallbacks=rounds.fallbacks,
        triggers=tuple(
            Trigger(
                kind=trigger.kind,
                every_s=trigger.every_s,
                at_least=trigger.at_least,
                count=trigger.count,
                policy=trigger.policy,
            )
            for trigger in rounds.trigger
        ),
        min_interval_s=rounds.min_interval_s,
        commit_first_incumbent=rounds.commit_first_incumbent,
        passed_over_limit=rounds.passed_over_limit,
        power_step=power.step,
        power_hysteresis=power.hysteresis,
        power_smoothing=power.smoothing,
        reading_max_age_s=config.readings.max_age_s,
        prepare_timeout_s=start.prepare_timeout_s,
        lease_s=start.lease_s,
        max_waiting=start.max_waiting,
        max_wait_s=start.max_wait_s,
        move_margin_s=start.move_margin_s,
        max_idle_node_s=start.max_idle_node_s,
        backoff_first_s=start.backoff_first_s,
        backoff_max_s=start.backoff_max_s,
        overrun_s=start.overrun_s,
        max_jobs_per_user=config.daemon.max_jobs_per_user,
        max_array=config.daemon.max_array,
        max_tasks=config.daemon.max_tasks,
        task_tolerance=rounds.task_tolerance,
        task_tolerance_s=rounds.task_tolerance_s,
        piece_s=rounds.piece_s,
        keep_ended=config.daemon.keep_ended,
        fallback_base_time=config.jobs.fallback_base_time_s,
        defaults=_job_defaults(config),
        priority=_priority(config),
        projects=_projects(config),
        users=tuple(
            UserLimits(pattern=pattern, limits=_limits(limits))
            for pattern, limits in config.users.items()
        ),
        options=rounds.options,
    )


def _clusters(config: Config) -> tuple[ClusterSettings, ...]:
    return tuple(
        ClusterSettings(
            name=cluster.name,
            link_gbps=inf if cluster.link_gbps is None else cluster.link_gbps,
            intra_gbps=inf if cluster.intra_gbps is None else cluster.intra_gbps,
            link_latency_s=cluster.link_latency_s,
            intra_latency_s=cluster.intra_latency_s,
            accounts=_accounts(cluster.accounts, f"clusters[{i}].accounts"),
        )
        for i, cluster in enumerate(config.clusters)
    )


def _projects(config: Config) -> tuple[Project, ...]:
    return tuple(
        Project(
            name=name,
            parent=project.parent,
            share=project.share,
            users=project.users,
            limits=_limits(project),
            each_user=_limits(project.each_user),
            guarantees=dict(project.guarantees),
        )
        for name, project in config.projects.items()
    )


def _accounts(accounts: dict[str, Any], where: str) -> dict[str, str]:
    check_accounts(accounts, where)
    return accounts


SHARES = 16.0
"""Doublings that shares take at most, where there are projects and nothing else is said."""


def _priority(config: Config) -> PrioritySettings:
    given = config.priority
    shares = (SHARES if config.projects else 0.0) if given.shares is None else given.shares
    return PrioritySettings(
        half_life_s=given.half_life_s,
        shares=shares,
        step_s=given.step_s,
        ahead_s=given.ahead_s,
        age=given.age,
        age_full_s=given.age_full_s,
        size=given.size,
        others_share=given.others_share,
    )


def _limits(given: LimitsConfig) -> Limits:
    return Limits(**{name: getattr(given, name) for name in LimitsConfig.__struct_fields__})


def _job_defaults(config: Config) -> tuple[JobDefaults, ...]:
    """The matches in their order, then the defaults for everybody."""
    found = [
        _defaults(match, match.user, match.command, f"jobs.match[{i}]")
        for i, match in enumerate(config.jobs.match)
    ]
    if config.jobs.defaults != JobDefaultsConfig():
        found.append(_defaults(config.jobs.defaults, "*", "*", "jobs.defaults"))
    return tuple(found)


def _defaults(table: JobDefaultsConfig, user: str, command: str, where: str) -> JobDefaults:
    return JobDefaults(
        user=user,
        command=command,
        base_time=table.base_time_s,
        time_limit=table.time_limit_s,
        sigma=table.sigma,
        proc_gbps=table.proc_gbps,
        speedup=None if table.speedup is None else _speedup(table.speedup, where),
    )


def _speedup(text: str, where: str) -> dict[str, Any]:
    """A default speed-up, as ``--speedup`` has it."""
    try:
        model = texts.speedup(text)
        read_speedup({**model, "time": 1.0}, text)
    except (ArgumentTypeError, InputError) as error:
        raise InputError(f"{where}.speedup", str(error)) from error
    return model


def check_policies(config: Config) -> None:
    """Refuse policies that do not exist, and options that the configured policy does not have.

    Raises
    ------
    InputError
        At the key's path.
    """
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
        table = POLICIES[rounds.policy].options
        check_options(rounds.policy, table, rounds.options, "rounds.options")
    else:
        check_foreign_options(rounds.policy, rounds.options, "rounds.options")


def check(config: Config) -> None:
    """Refuse what the reader of the configuration cannot know to be wrong.

    Raises
    ------
    InputError
        At the key's path.
    """
    if config.access.server_key and not is_key(config.access.server_key):
        raise InputError("access.server_key", "is not a public key of 40 characters")
    core_settings(config)
    check_policies(config)
    local: dict[str, LocalSettings] = {}
    for i, cluster in enumerate(config.clusters):
        where = f"clusters[{i}]"
        kind = adapter_kind(cluster.adapter, f"{where}.adapter")
        settings = kind.check(dict(cluster.settings), cluster.name, f"{where}.settings")
        if isinstance(settings, LocalSettings):
            local[cluster.name] = settings
    refuse_collisions(local)
