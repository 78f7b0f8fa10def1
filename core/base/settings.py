"""The numbers the core works with; the configuration fills them in."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Literal

from msgspec import Struct, field

from coalloc.core.base.projects import Project, UserLimits


class Trigger(Struct, frozen=True, kw_only=True):
    """One reason to start a round."""

    kind: Literal["timer", "queue_length", "job_finished", "cluster_returned"]
    every_s: float = 30.0
    """Period of a timer, seconds."""
    at_least: int = 1
    """Waiting jobs, or their processes, that start a round."""
    count: Literal["jobs", "procs"] = "jobs"
    policy: str = ""
    """Used in rounds this trigger starts; empty is the configured one."""


DEFAULT_TRIGGERS = (
    Trigger(kind="timer"),
    Trigger(kind="queue_length"),
    Trigger(kind="job_finished"),
    Trigger(kind="cluster_returned"),
)


class ClusterSettings(Struct, frozen=True, kw_only=True):
    """Settings of a cluster; readings say the rest."""

    name: str
    link_gbps: float = inf
    intra_gbps: float = inf
    link_latency_s: float = 0.0
    intra_latency_s: float = 0.0
    accounts: Mapping[str, str] = field(default_factory=dict)
    """From jobs' accounts to those of its batch system: see `core.jobs.batch_accounts`."""


class JobDefaults(Struct, frozen=True, kw_only=True):
    """Stands in for what a user leaves out; None leaves it to the history."""

    user: str = "*"
    """Shell pattern; the defaults apply where this and `command` match."""
    command: str = "*"
    """Shell pattern."""
    base_time: float | None = None
    time_limit: float | None = None
    sigma: float | None = None
    proc_gbps: float | None = None
    speedup: Mapping[str, Any] | None = None
    """Of a moldable job, in the snapshot format, but without ``time``."""


class PrioritySettings(Struct, frozen=True, kw_only=True):
    """Factors beside the submitted weight, see `core.sharing.priority`; doublings of the weight."""

    half_life_s: float = 604_800.0
    """Usage this long ago counts half."""
    shares: float = 0.0
    """The most that a project or user who is ahead of its share loses; 0: shares do not count."""
    step_s: float = 900.0
    """One doubling for each such lead, seconds of what a project is entitled to."""
    ahead_s: float = 3600.0
    """A running job is charged for so many seconds ahead."""
    age: float = 0.0
    """Gained by a job that has waited for `age_full_s`, in proportion until then."""
    age_full_s: float = 604_800.0
    size: float = 0.0
    """Gained by a job as wide as all clusters, in proportion; below 0, small jobs gain."""
    others_share: float = 1.0
    """Of users without a project, against the highest projects."""

    @property
    def has_factors(self) -> bool:
        """Whether any of them changes a weight."""
        return bool(self.shares or self.age or self.size)


class Settings(Struct, frozen=True, kw_only=True):
    """Everything the daemon's core is told."""

    clusters: tuple[ClusterSettings, ...] = ()
    policy: str = "auto"
    fallbacks: tuple[str, ...] = ("easy", "fcfs", "plain")
    triggers: tuple[Trigger, ...] = DEFAULT_TRIGGERS
    min_interval_s: float = 0.2
    """Between the starts of two rounds."""
    commit_first_incumbent: bool = True
    passed_over_limit: int = 10
    """A job passed over this often keeps a reservation."""
    power_step: float = 0.05
    """See `core.base.power`."""
    power_hysteresis: float = 0.5
    """See `core.base.power`."""
    power_smoothing: float = 0.3
    """See `core.base.power`."""
    reading_max_age_s: float = 30.0
    """An older reading makes its cluster stale."""
    prepare_timeout_s: float = 10.0
    """For every part of a job to be ready."""
    lease_s: float = 60.0
    """Executors release claims when the daemon is silent for this long."""
    max_waiting: int = 10
    """Claims of one user that wait in one cluster's queue."""
    max_wait_s: float = 3600.0
    """Then a claim that waits is given up for another combination; doubles with each try."""
    move_margin_s: float = 600.0
    """A claim that waits is withdrawn where another placement starts its job earlier by more than
    this, and twice as much with each further move; 0: none is (`core.starts.late_moves`)."""
    max_idle_node_s: float = 600.0
    """Node-seconds that the parts of a job may hold in one attempt, while others wait."""
    backoff_first_s: float = 1.0
    """Wait after a refused attempt; doubles each time."""
    backoff_max_s: float = 300.0
    """The longest such wait."""
    overrun_s: float = 60.0
    max_jobs_per_user: int = 0
    """Waiting jobs; 0 is unlimited."""
    max_array: int = 10_000
    keep_ended: int = 1000
    fallback_base_time: float = 3600.0
    """Planned for a job of which nothing is known, seconds."""
    max_tasks: int = 10_000
    """Of one workflow."""
    piece_s: float = 600.0
    """A piece of a divisible job is planned to run no longer than this, or for one chunk."""
    task_tolerance: float = 0.2
    """A task that ends off its planned run time by more than this share of it, and by more than
    `task_tolerance_s`, has the rest planned anew."""
    task_tolerance_s: float = 1.0
    defaults: tuple[JobDefaults, ...] = ()
    priority: PrioritySettings = PrioritySettings()
    projects: tuple[Project, ...] = ()
    users: tuple[UserLimits, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
