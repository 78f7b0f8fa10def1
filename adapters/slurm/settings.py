"""Settings of a Slurm cluster, for reader and launcher.

::

    conf = "/etc/slurm/slurm.conf"    # SLURM_CONF of every command
    partitions = ["main"]             # nodes of these; parts are submitted to the first
    slots = "node"                    # or "cpus": processes that a node takes
    power_by_feature = { skylake = 0.8, epyc = 1.0 }
    power_by_node = { "a[1-4]" = 0.5 }
    handover_partition = "coalloc"    # jobs submitted there are ordered by us

``docs/slurm.md`` explains them all.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from coalloc.adapters.batch.settings import (
    BatchSettings,
    CommandLimit,
    Folder,
    Power,
    Wait,
    read_batch,
)
from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown
from coalloc.model.values import replace

_NAME = {"kind": "a name in Slurm"}
Name = Annotated[str, Meta(pattern="^(?!-)[^\\s,|=\"']*$", extra=_NAME)]
"""Neither an option nor several arguments."""
Partition = Annotated[str, Meta(pattern="^(?!-)[^\\s,|=\"']+$", extra=_NAME)]


class SlurmSettings(BatchSettings, frozen=True, kw_only=True, dict=True):
    """One Slurm cluster."""

    conf: Folder = ""
    """SLURM_CONF of every command; default that of the executor's environment."""
    partitions: tuple[Partition, ...] = ()
    """Only nodes of these; parts are submitted to the first. Default: all nodes, and the default
    partition."""
    slots: Literal["node", "cpus"] = "node"
    """A node takes one process and is claimed whole, or one for each CPU."""
    power_by_feature: dict[str, Power] = field(default_factory=dict)
    """Speed of nodes with a feature; of several the lowest."""
    load: Literal["auto", "slurm", "none"] = "auto"
    """Where load that is not ours is read: the probe where it runs, else CPULoad; only CPULoad; or
    nowhere."""
    load_max_age_s: Annotated[float, Meta(gt=0, le=1000000000.0)] = 300.0
    """A probe's reading that is older counts as none, s."""
    pending: Literal["ignore", "respect"] = "ignore"
    """Whether local pending jobs keep the nodes and times that Slurm expects for them."""
    command_limit_s: CommandLimit = 4.0
    """Time limit of one command, s."""
    start: Literal["auto", "salloc", "sbatch"] = "auto"
    """How parts are claimed: as the site lets us, at once or not at all, or as batch jobs that may
    wait."""
    partition: Name = ""
    """Where parts are submitted; default the first of partitions."""
    account: Name = ""
    """--account of what is submitted."""
    qos: Name = ""
    """--qos of what is submitted."""
    reservation: Name = ""
    """Reservation whose nodes are ours to use."""
    max_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the nodes on which our claims go before local jobs that wait. A job that needs more
    waits its turn as a batch job. 0: our claims go before none."""
    max_delay_s: Annotated[float, Meta(ge=0, le=1000000000.0)] = 1800.0
    """Claims pause while a local job waits that has been kept waiting by them for longer, s; 0: no
    bound."""
    handover_partition: Name = ""
    """Jobs submitted to this partition are ordered by us."""
    handover_comment: str = ""
    """Jobs submitted with --hold and this --comment are ordered by us."""
    handover_wait_s: Wait = 30.0
    """A released job that has not started after this long is taken back, s."""

    @property
    def hands_over(self) -> bool:
        """Jobs that start in Slurm may join our queue."""
        return bool(self.handover_partition or self.handover_comment)


def read_settings(value: Any, cluster: str, where: str = "") -> SlurmSettings:
    """Read the settings of the adapter ``slurm``; see `read_batch`. Raises `InputError`."""
    settings = read_batch(value, SlurmSettings, cluster, where)
    prefix = f"{where}." if where else ""
    handed = settings.handover_partition
    target = settings.partition or (settings.partitions[0] if settings.partitions else "")
    if handed and not target:
        raise InputError(
            f"{prefix}handover_partition", "needs a partition in which to run its jobs"
        )
    if handed and handed == target:
        raise InputError(f"{prefix}handover_partition", f"{shown(handed)} is where parts run")
    for name, is_set, why in (
        ("handover_partition", handed, "needs an operator of Slurm's"),
        ("handover_comment", settings.handover_comment, "needs an operator of Slurm's"),
        ("max_share", settings.max_share, "needs an operator of Slurm's"),
        ("start", settings.start == "salloc", "a claim of salloc's ends with the connection"),
    ):
        if settings.ssh and is_set:
            raise InputError(f"{prefix}{name}", f"{why}: not with ssh")
    if settings.max_share and settings.reservation:
        raise InputError(f"{prefix}max_share", "makes a reservation of its own: name none")
    return replace(settings, partition=target)
