"""What a site says of a Slurm cluster, for both faces.

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

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from coalloc.adapters.batch.settings import (
    SHARED,
    BatchSettings,
    check_word,
    common_fields,
    read_batch,
)
from coalloc.model.errors import InputError
from coalloc.model.fields import Field, Table, shown

Slots = Literal["node", "cpus"]
LoadSource = Literal["auto", "slurm", "none"]
PendingUse = Literal["ignore", "respect"]
AnswerForm = Literal["text", "json"]
StartWay = Literal["auto", "salloc", "sbatch"]

SETTINGS: Table = {
    "conf": Field(
        kind="text",
        default="",
        doc="SLURM_CONF of every command; default that of the executor's environment.",
    ),
    "bin": Field(kind="text", default="", doc="Folder of Slurm's commands; default those on PATH."),
    "partitions": Field(
        kind="texts",
        default=[],
        doc="Only nodes of these; parts are submitted to the first. Default: all nodes, and the "
        "default partition.",
    ),
    "nodes": SHARED["nodes"],
    "slots": Field(
        kind="text",
        choices=("node", "cpus"),
        default="node",
        doc="A node takes one process and is claimed whole, or one for each CPU.",
    ),
    "qualified": SHARED["qualified"],
    "power": SHARED["power"],
    "power_by_feature": Field(
        kind="loads",
        low=0,
        above=True,
        high=1,
        default={},
        doc="Speed of nodes with a feature; of several the lowest.",
    ),
    "power_by_node": SHARED["power_by_node"],
    "load": Field(
        kind="text",
        choices=("auto", "slurm", "none"),
        default="auto",
        doc="Where load that is not ours is read: the probe where it runs, else CPULoad; only "
        "CPULoad; or nowhere.",
    ),
    "load_max_age_s": Field(
        kind="number",
        low=0,
        above=True,
        default=300.0,
        doc="A probe's reading that is older counts as none, s.",
    ),
    "pending": Field(
        kind="text",
        choices=("ignore", "respect"),
        default="ignore",
        doc="Whether local pending jobs keep the nodes and times that Slurm expects for them.",
    ),
    "answers": Field(
        kind="text",
        choices=("text", "json"),
        default="text",
        doc="Accepted, and without effect: nodes and queue are asked for as text.",
    ),
    "command_limit_s": Field(
        kind="number", low=0, above=True, default=4.0, doc="Time limit of one command, s."
    ),
    "start": Field(
        kind="text",
        choices=("auto", "salloc", "sbatch"),
        default="auto",
        doc="How parts are claimed: as the site lets us, at once or not at all, or as batch jobs "
        "that may wait.",
    ),
    "address": SHARED["address"],
    "ports": SHARED["ports"],
    "python": SHARED["python"],
    "partition": Field(
        kind="text", default="", doc="Where parts are submitted; default the first of partitions."
    ),
    "account": Field(kind="text", default="", doc="--account of what is submitted."),
    "qos": Field(kind="text", default="", doc="--qos of what is submitted."),
    "reservation": Field(kind="text", default="", doc="Reservation whose nodes are ours to use."),
    "max_share": Field(
        kind="number",
        low=0,
        high=1,
        default=0.0,
        doc="Share of the nodes on which our claims go before local jobs that wait; nothing is "
        "claimed beyond it. 0: our claims go before nobody.",
    ),
    "max_delay_s": Field(
        kind="number",
        low=0,
        default=0.0,
        doc="Claims pause while a local job waits that has been kept waiting by them for longer, "
        "s; 0: no bound.",
    ),
    "handover_partition": Field(
        kind="text", default="", doc="Jobs submitted to this partition are ordered by us."
    ),
    "handover_comment": Field(
        kind="text",
        default="",
        doc="Jobs submitted with --hold and this --comment are ordered by us.",
    ),
    "handover_wait_s": Field(
        kind="number",
        low=1,
        default=30.0,
        doc="A released job that has not started after this long is taken back, s.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings(BatchSettings):
    """One Slurm cluster.

    Attributes
    ----------
    conf : str
        SLURM_CONF; empty: the environment's.
    partitions : tuple of str
        Empty: all.
    power : float
        (0, 1]; `power_by_feature` and `power_by_node` come before it.
    command_limit_s, load_max_age_s, handover_wait_s, max_delay_s : float
        Seconds.
    max_share : float
        0..1.
    """

    conf: str = ""
    partitions: tuple[str, ...] = ()
    slots: Slots = "node"
    power_by_feature: Mapping[str, float] = field(default_factory=dict)
    load: LoadSource = "auto"
    load_max_age_s: float = 300.0
    pending: PendingUse = "ignore"
    answers: AnswerForm = "text"
    command_limit_s: float = 4.0
    start: StartWay = "auto"
    partition: str = ""
    qos: str = ""
    reservation: str = ""
    max_share: float = 0.0
    max_delay_s: float = 0.0
    handover_partition: str = ""
    handover_comment: str = ""
    handover_wait_s: float = 30.0

    @property
    def hands_over(self) -> bool:
        """Jobs that start in Slurm may join our queue."""
        return bool(self.handover_partition or self.handover_comment)


def read_settings(value: Any, cluster: str, where: str = "") -> SlurmSettings:
    """Read the settings of the adapter ``slurm``.

    Parameters
    ----------
    value : mapping
        As it stands in the configuration.
    cluster : str
    where : str
        Path of `value` in the configuration, for errors.

    Raises
    ------
    InputError
    """
    fields, prefix = read_batch(value, SETTINGS, where, ("conf", "bin"))
    for key in ("partition", "handover_partition", "account", "qos", "reservation"):
        check_word(fields.get(key, ""), f"{prefix}{key}", "Slurm")
    partitions = tuple(fields.get("partitions", ()))
    for i, partition in enumerate(partitions):
        if not partition:
            raise InputError(f"{prefix}partitions[{i}]", "is empty")
        check_word(partition, f"{prefix}partitions[{i}]", "Slurm")
    handed = fields.get("handover_partition", "")
    target = fields.get("partition") or (partitions[0] if partitions else "")
    if handed and not target:
        raise InputError(
            f"{prefix}handover_partition", "needs a partition in which to run its jobs"
        )
    if handed and handed == target:
        raise InputError(f"{prefix}handover_partition", f"{shown(handed)} is where parts run")
    if fields.get("max_share") and fields.get("reservation"):
        raise InputError(f"{prefix}max_share", "makes a reservation of its own: name none")
    given = common_fields(fields | {"partitions": partitions, "partition": target}, prefix)
    return SlurmSettings(cluster=cluster, **given)
