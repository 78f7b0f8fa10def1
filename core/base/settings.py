"""The numbers the core works with; the configuration fills them in."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Literal

from msgspec import Struct, field

from coalloc.core.base.projects import Project, UserLimits


class Trigger(Struct, frozen=True, kw_only=True):
    """One reason to start a round.

    Attributes
    ----------
    kind : str
        ``timer``, ``queue_length``, ``job_finished`` or ``cluster_returned``.
    every_s : float
        Period of a timer, seconds.
    at_least : int
        Waiting jobs, or their processes, that start a round.
    count : str
        ``jobs`` or ``procs``.
    policy : str
        Used in rounds this trigger starts; empty is the configured one.
    """

    kind: Literal["timer", "queue_length", "job_finished", "cluster_returned"]
    every_s: float = 30.0
    at_least: int = 1
    count: Literal["jobs", "procs"] = "jobs"
    policy: str = ""


DEFAULT_TRIGGERS = (
    Trigger(kind="timer"),
    Trigger(kind="queue_length"),
    Trigger(kind="job_finished"),
    Trigger(kind="cluster_returned"),
)


class ClusterSettings(Struct, frozen=True, kw_only=True):
    """Settings of a cluster; readings say the rest.

    Attributes
    ----------
    accounts : mapping
        From jobs' accounts to those of its batch system: see `core.jobs.batch_accounts`.
    """

    name: str
    link_gbps: float = inf
    intra_gbps: float = inf
    link_latency_s: float = 0.0
    intra_latency_s: float = 0.0
    accounts: Mapping[str, str] = field(default_factory=dict)


class JobDefaults(Struct, frozen=True, kw_only=True):
    """Stands in for what a user leaves out; None leaves it to the history.

    Attributes
    ----------
    user, command : str
        Shell patterns; a set of defaults applies where both match.
    speedup : mapping
        Of a moldable job, in the snapshot format, but without ``time``.
    """

    user: str = "*"
    command: str = "*"
    base_time: float | None = None
    time_limit: float | None = None
    sigma: float | None = None
    proc_gbps: float | None = None
    speedup: Mapping[str, Any] | None = None


class PrioritySettings(Struct, frozen=True, kw_only=True):
    """Factors beside the submitted weight, see `core.sharing.priority`; doublings of the weight.

    Attributes
    ----------
    half_life_s : float
        Usage this long ago counts half.
    shares : float
        The most that a project or user who is ahead of its share loses; 0: shares do not count.
    step_s : float
        One doubling for each such lead, seconds of what a project is entitled to.
    ahead_s : float
        A running job is charged for so many seconds ahead.
    age, age_full_s : float
        Gained by a job that has waited so long, in proportion until then.
    size : float
        Gained by a job as wide as all clusters, in proportion; below 0, small jobs gain.
    others_share : float
        Of users without a project, against the highest projects.
    """

    half_life_s: float = 604_800.0
    shares: float = 0.0
    step_s: float = 900.0
    ahead_s: float = 3600.0
    age: float = 0.0
    age_full_s: float = 604_800.0
    size: float = 0.0
    others_share: float = 1.0

    @property
    def has_factors(self) -> bool:
        """Whether any of them changes a weight."""
        return bool(self.shares or self.age or self.size)


class Settings(Struct, frozen=True, kw_only=True):
    """Everything the daemon's core is told.

    Attributes
    ----------
    min_interval_s : float
        Between the starts of two rounds.
    passed_over_limit : int
        A job passed over this often keeps a reservation.
    power_step, power_hysteresis, power_smoothing : float
        See `core.power`.
    reading_max_age_s : float
        An older reading makes its cluster stale.
    prepare_timeout_s : float
        For every part of a job to be ready.
    lease_s : float
        Executors release claims when the daemon is silent for this long.
    max_waiting : int
        Claims of one user that wait in one cluster's queue.
    max_wait_s : float
        Then a claim that waits is given up for another combination; doubles with each try.
    move_margin_s : float
        A claim that waits is withdrawn where another placement starts its job earlier by more than
        this, and twice as much with each further move; 0: none is (`core.starts.late_moves`).
    max_idle_node_s : float
        Node-seconds that the parts of a job may hold in one attempt, while others wait.
    backoff_first_s, backoff_max_s : float
        Wait after a refused attempt; doubles each time.
    overrun_s : float
    max_jobs_per_user : int
        Waiting jobs; 0 is unlimited.
    fallback_base_time : float
        Planned for a job of which nothing is known, seconds.
    max_tasks : int
        Of one workflow.
    piece_s : float
        A piece of a divisible job is planned to run no longer than this, or for one chunk.
    task_tolerance, task_tolerance_s : float
        A task that ends off its planned run time by more than this share of it, and by more than
        these seconds, has the rest planned anew.
    """

    clusters: tuple[ClusterSettings, ...] = ()
    policy: str = "auto"
    fallbacks: tuple[str, ...] = ("easy", "fcfs", "plain")
    triggers: tuple[Trigger, ...] = DEFAULT_TRIGGERS
    min_interval_s: float = 0.2
    commit_first_incumbent: bool = True
    passed_over_limit: int = 10
    power_step: float = 0.05
    power_hysteresis: float = 0.5
    power_smoothing: float = 0.3
    reading_max_age_s: float = 30.0
    prepare_timeout_s: float = 10.0
    lease_s: float = 60.0
    max_waiting: int = 10
    max_wait_s: float = 3600.0
    move_margin_s: float = 600.0
    max_idle_node_s: float = 600.0
    backoff_first_s: float = 1.0
    backoff_max_s: float = 300.0
    overrun_s: float = 60.0
    max_jobs_per_user: int = 0
    max_array: int = 10_000
    keep_ended: int = 1000
    fallback_base_time: float = 3600.0
    max_tasks: int = 10_000
    piece_s: float = 600.0
    task_tolerance: float = 0.2
    task_tolerance_s: float = 1.0
    defaults: tuple[JobDefaults, ...] = ()
    priority: PrioritySettings = PrioritySettings()
    projects: tuple[Project, ...] = ()
    users: tuple[UserLimits, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
