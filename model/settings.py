"""The configuration: what ``coallocd.toml`` may say, with its defaults.

``etc/coallocd.toml`` shows every key with its default, unit and meaning. The core takes the same
values as its settings.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from math import inf
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, structs

from coalloc.model import ranges
from coalloc.model.ranges import SPAN, WEIGHT, Gbps, InsideGbps, Latency, Overrun, Range, Span

Text = Annotated[str, Meta(min_length=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Period = Annotated[float, Meta(ge=0.01, le=86_400)]
"""Between two rounds, two readings or two tries, seconds; shorter ones would keep us busy."""
Patience = Annotated[float, Meta(ge=0.1, le=86_400)]
"""For an answer of another process or another host, seconds."""
Pause = Annotated[float, Meta(ge=0, le=86_400)]
"""Seconds."""
Fraction = Annotated[float, Meta(ge=0, le=1)]
Share = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=0)]
Number = Annotated[int, Meta(ge=1)]
Doublings = Annotated[float, Meta(ge=0, le=30)]
"""Of a weight."""


VALUES_PER_TASK, MOST_VALUES = 25, 250_000


class DaemonConfig(Struct, frozen=True, kw_only=True):
    """``[daemon]``: where it keeps things, whom it talks to, what it says."""

    state_dir: str = ""
    runtime_dir: str = ""
    mode: Literal["single-user", "multi-user"] = "single-user"
    endpoint: Text = "ipc://{runtime_dir}/coalloc.sock"
    executor_endpoint: Text = "ipc://{runtime_dir}/executors.sock"
    publish_endpoint: Text = "ipc://{runtime_dir}/events.sock"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"
    metrics_address: str = ""
    keep_events: Number = 200_000
    keep_ended: Number = 1000
    keep_accounts_days: Count = 1100
    max_jobs_per_user: Count = 10_000
    max_array: Number = 1_000_000
    max_tasks: Number = 10_000
    max_message_bytes: Annotated[int, Meta(ge=4096)] = 16_777_216

    @property
    def max_values(self) -> int:
        """Of one request: enough for a workflow of as many tasks as may be."""
        return max(MOST_VALUES, VALUES_PER_TASK * self.max_tasks)


class AccessConfig(Struct, frozen=True, kw_only=True):
    """``[access]``: who may do what, and how much of it, in multi-user mode."""

    enrolment_socket: Text = "{runtime_dir}/enrol.sock"
    server_key: str = ""
    requests_per_s: NotNegative = 200.0
    burst: Annotated[float, Meta(ge=1)] = 400.0
    root_jobs: bool = False


NotifiedEvent = Literal["job_ended", "job_failed", "cluster_lost", "cluster_returned", "disk_low"]


class NotifyConfig(Struct, frozen=True, kw_only=True):
    """``[notify]``: what is told to whom; nothing, unless events and a way are named."""

    events: tuple[NotifiedEvent, ...] = ()
    command: tuple[Text, ...] = ()
    webhook: str = ""
    mail_to: tuple[Text, ...] = ()
    sendmail: Text = "/usr/sbin/sendmail"
    user_mail: bool = False
    user_mails_per_h: Number = 100
    lost_after_s: Patience = 60.0
    disk_low_mb: Count = 1024
    queue: Number = 1000
    timeout_s: Patience = 10.0


class TriggerConfig(Struct, frozen=True, kw_only=True):
    """``[[rounds.trigger]]``: one reason to start a round."""

    kind: Literal["timer", "queue_length", "job_finished", "cluster_returned"]
    every_s: Period = 30.0
    at_least: Number = 1
    count: Literal["jobs", "procs"] = "jobs"
    policy: str = ""


class RoundsConfig(Struct, frozen=True, kw_only=True):
    """``[rounds]``: how and when the queue is planned."""

    policy: Text = "auto"
    fallbacks: tuple[Text, ...] = ("easy", "fcfs", "plain")
    time_limit_s: Patience = 10.0
    min_interval_s: Pause = 0.2
    passed_over_limit: Number = 10
    commit_first_incumbent: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    task_tolerance: Annotated[float, Meta(ge=0, le=1e6)] = 0.2
    task_tolerance_s: Annotated[float, Meta(ge=0, le=SPAN.high)] = 1.0
    piece_s: Span = 600.0
    trigger: tuple[TriggerConfig, ...] = (
        TriggerConfig(kind="timer"),
        TriggerConfig(kind="queue_length"),
        TriggerConfig(kind="job_finished"),
        TriggerConfig(kind="cluster_returned"),
    )


class SolverConfig(Struct, frozen=True, kw_only=True):
    """``[solver]``: the processes that plan."""

    nice: Annotated[int, Meta(ge=0, le=19)] = 5
    memory_mb: Count = 0
    cache_dir: str = ""


class PowerConfig(Struct, frozen=True, kw_only=True):
    """``[power]``: from measured power to the power that planning sees."""

    step: Annotated[float, Range(low=1e-3, high=1.0, zero=True).meta] = 0.05
    hysteresis: Fraction = 0.5
    smoothing: Share = 0.3


class ReadingsConfig(Struct, frozen=True, kw_only=True):
    """``[readings]``: how often the clusters are looked at."""

    interval_s: Period = 5.0
    max_age_s: Patience = 30.0
    timeout_s: Patience = 5.0
    readers: tuple[str, ...] = ()
    """Owners' clusters of which each is read for all owners of the same machine."""


class StartConfig(Struct, frozen=True, kw_only=True):
    """``[start]``: how a decided job is started on its clusters."""

    prepare_timeout_s: Patience = 10.0
    lease_s: Annotated[float, Meta(ge=4, le=86_400)] = 60.0
    max_waiting: Count = 1000
    max_wait_s: Patience = 3600.0
    max_idle_node_s: Annotated[float, Meta(ge=1, le=1e9)] = 600.0
    backoff_first_s: Period = 1.0
    backoff_max_s: Period = 300.0
    overrun_s: Overrun = 60.0
    members_s: Annotated[float, Meta(ge=0, le=3600)] = 1.0


class JobDefaultsConfig(Struct, frozen=True, kw_only=True):
    """``[jobs.defaults]``: for what users leave out."""

    base_time_s: Span | None = None
    sigma: ranges.Share | None = None
    proc_gbps: Gbps | None = None
    time_limit_s: Span | None = None
    speedup: str | None = None


class JobMatchConfig(JobDefaultsConfig, frozen=True, kw_only=True):
    """``[[jobs.match]]``: the same for some users and commands; the first match decides."""

    user: Text = "*"
    command: Text = "*"


class JobsConfig(Struct, frozen=True, kw_only=True):
    """``[jobs]``."""

    fallback_base_time_s: Span = 3600.0
    defaults: JobDefaultsConfig = JobDefaultsConfig()
    match: tuple[JobMatchConfig, ...] = ()

    @property
    def in_order(self) -> tuple[JobMatchConfig, ...]:
        """The matches, then the defaults, which match every job."""
        return (*self.match, JobMatchConfig(**structs.asdict(self.defaults)))


class PriorityConfig(Struct, frozen=True, kw_only=True):
    """``[priority]``: what counts beside the weight that a job is submitted with."""

    half_life_s: Annotated[float, Meta(ge=60, le=SPAN.high)] = 604_800.0
    shares: Doublings | None = None
    step_s: Annotated[float, Meta(ge=1, le=SPAN.high)] = 900.0
    ahead_s: Annotated[float, Meta(ge=0, le=SPAN.high)] = 3600.0
    age: Doublings = 0.0
    age_full_s: Annotated[float, Meta(ge=1, le=SPAN.high)] = 604_800.0
    size: Annotated[float, Meta(ge=-30, le=30)] = 0.0
    others_share: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    weights: dict[str, Annotated[float, Meta(ge=0, le=1e6)]] = field(default_factory=dict)
    """Processors that one of a resource is charged as: ``gpu``, ``gpu:a100``, ``mem_gb``."""

    @property
    def has_factors(self) -> bool:
        """Whether any of them changes a weight."""
        return bool(self.shares or self.age or self.size)


class LimitsConfig(Struct, frozen=True, kw_only=True):
    """Limits of one user or project; what is left out is unlimited."""

    max_procs: Number | None = None
    max_running_jobs: Number | None = None
    max_waiting_jobs: Number | None = None
    max_proc_hours: Annotated[float, Meta(gt=0, le=1e12)] | None = None
    window_days: Annotated[int, Meta(ge=1, le=366)] = 30
    max_weight: Annotated[float, Meta(ge=WEIGHT.low, le=WEIGHT.high)] | None = None

    @property
    def holds_starts(self) -> bool:
        """Whether a job may have to wait for it."""
        most = (self.max_procs, self.max_running_jobs, self.max_proc_hours)
        return any(limit is not None for limit in most)


class ProjectConfig(LimitsConfig, frozen=True, kw_only=True):
    """``[projects.NAME]``: one project, with limits of its own and of each of its users."""

    parent: str = ""
    share: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    users: tuple[Text, ...] = ()
    each_user: LimitsConfig = LimitsConfig()
    guarantees: dict[str, Number] = field(default_factory=dict)

    def lists(self, user: str) -> bool:
        return any(fnmatchcase(user, pattern) for pattern in self.users)


class DashboardConfig(Struct, frozen=True, kw_only=True):
    """``[dashboard]``: the web page that ``coalloc dashboard`` serves."""

    address: Text = "127.0.0.1:8642"
    token_file: str = ""
    user_header: str = ""
    trusted_proxies: tuple[Text, ...] = ()
    operators: tuple[Text, ...] = ()
    keep_jobs: Number = 100_000


class ClusterConfig(Struct, frozen=True, kw_only=True):
    """``[[clusters]]``: one cluster and the adapter that reads it and launches on it."""

    name: Text
    owner: str = ""
    """Only this user's jobs may be placed there; empty: everybody's."""
    adapter: Literal["local", "trace", "slurm", "gridengine", "oar"] = "local"
    link_gbps: Gbps | None = None
    intra_gbps: InsideGbps | None = None
    link_latency_s: Latency = 0.0
    intra_latency_s: Latency = 0.0
    accounts: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def link_capacity_gbps(self) -> float:
        """Capacity of its link; infinite where none is given."""
        return inf if self.link_gbps is None else self.link_gbps

    @property
    def inner_capacity_gbps(self) -> float:
        """Bandwidth between two of its nodes; infinite where none is given."""
        return inf if self.intra_gbps is None else self.intra_gbps


class Config(Struct, frozen=True, kw_only=True):
    """The whole file."""

    daemon: DaemonConfig = DaemonConfig()
    access: AccessConfig = AccessConfig()
    notify: NotifyConfig = NotifyConfig()
    rounds: RoundsConfig = RoundsConfig()
    solver: SolverConfig = SolverConfig()
    power: PowerConfig = PowerConfig()
    readings: ReadingsConfig = ReadingsConfig()
    start: StartConfig = StartConfig()
    jobs: JobsConfig = JobsConfig()
    priority: PriorityConfig = PriorityConfig()
    projects: dict[str, ProjectConfig] = field(default_factory=dict)
    users: dict[str, LimitsConfig] = field(default_factory=dict)

    dashboard: DashboardConfig = DashboardConfig()
    clusters: tuple[ClusterConfig, ...] = (ClusterConfig(name="local"),)
