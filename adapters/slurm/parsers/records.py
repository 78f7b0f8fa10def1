"""Records of nodes, jobs and reservations, whatever release of Slurm and command they come from."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from coalloc.adapters.batch.node_load import MeasuredNode
from coalloc.model.platform import NodeState
from coalloc.model.sites.site_rules import PartitionRules


class ParseError(ValueError):
    """An answer, or a place in it, that is not of the expected form."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{what} in {where[:160]!r}")
        self.where, self.what = where, what


class NodeRecord(MeasuredNode, frozen=True, kw_only=True):
    """One node."""

    states: tuple[str, ...] = ("UNKNOWN",)
    """Base state and flags in capitals, as `state_words` gives them."""
    cpus_per_core: int = 1
    memory_taken_mb: int = 0
    """Allocated to jobs, as the next."""
    gres_taken: Mapping[str, int] = field(default_factory=dict)
    memory_mb: int | None = None
    """Usable by jobs."""
    features: tuple[str, ...] = ()
    weight: int = 1
    partitions: tuple[str, ...] = ()
    address: str = ""
    reason: str = ""
    """Why it is drained or down."""
    gres: Mapping[str, int] = field(default_factory=dict)
    """Generic resources, with and without their type."""
    odd: str = ""
    """Parts of it that are not understood, in words; then it counts as down."""


class QueueEntry(Struct, frozen=True, kw_only=True):
    """One job, or one task of an array."""

    id: str
    """Number, or ``number_index`` for a task of an array."""
    number: str = ""
    """The job's own number: what the array's tasks are called once they run."""
    state: str = "UNKNOWN"
    """In capitals, long form; ``UNKNOWN`` where it is not known to us."""
    reason: str = ""
    """Why it waits, in one word."""
    said: str = ""
    """The same as Slurm says it, such as ``ReqNodeNotAvail,_UnavailableNodes:n4``."""
    partition: str = ""
    user: str = ""
    uid: int = -1
    gid: int = -1
    name: str = ""
    comment: str = ""
    cpus: int = 1
    node_count: int = 1
    """That it has, or asks for at the least."""
    nodes: tuple[str, ...] = ()
    """Where it runs."""
    expected_nodes: tuple[str, ...] = ()
    """Where Slurm expects to run it."""
    start: float | None = None
    """Seconds since 1970; of a pending job Slurm's estimate."""
    end: float | None = None
    """Seconds since 1970."""
    submitted: float | None = None
    """Seconds since 1970."""
    time_limit: float | None = None
    """Seconds; None is unlimited or not given."""
    features: str = ""
    exclusive: bool = False
    """Has its nodes for itself."""
    gres: Mapping[str, int] = field(default_factory=dict)
    """Generic resources on each node, as far as it asked for them so."""
    reservation: str = ""
    required_nodes: str = ""
    dependency: str = ""
    odd: str = ""
    """Parts of it that are not understood, in words; it counts as taking as much as it may."""
    is_lost: bool = False
    """Its nodes are not understood."""


class ReservationEntry(Struct, frozen=True, kw_only=True):
    """Nodes kept for some users, [start, end) in seconds since 1970."""

    name: str
    nodes: tuple[str, ...]
    start: float
    end: float
    users: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    odd: str = ""
    """Parts of it that are not understood, in words; then it has no end."""


class PartitionEntry(PartitionRules, frozen=True, kw_only=True):
    """One partition; it is open to the users of `groups`, all where there are none."""

    is_default: bool = False
    groups: tuple[str, ...] | None = None
    odd: str = ""
    """Parts of it that are not understood, in words; then it counts as closed."""


JOB_STATES = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "SE": "SPECIAL_EXIT",
    "SI": "SIGNALING",
    "SO": "STAGE_OUT",
    "ST": "STOPPED",
    "TO": "TIMEOUT",
    "PO": "POWER_UP_NODE",
    "EX": "EXPEDITING",
    "LF": "LAUNCH_FAILED",
    "RC": "RECONFIG_FAIL",
    "UR": "UPDATE_DB",
}
JOB_NAMES = frozenset(JOB_STATES.values())
HOLDS_NODES = frozenset(
    {
        "RUNNING",
        "COMPLETING",
        "CONFIGURING",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
        "SUSPENDED",
        "POWER_UP_NODE",
    }
)
"""A job in one of these states has its nodes; a suspended one may go on at any time."""
WAITS = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})

BASE_STATES = {
    "IDLE": NodeState.UP,
    "MIXED": NodeState.UP,
    "ALLOCATED": NodeState.UP,
    "COMPLETING": NodeState.UP,
    "PLANNED": NodeState.UP,
    "RESERVED": NodeState.UP,
    "DOWN": NodeState.DOWN,
    "ERROR": NodeState.DOWN,
    "FUTURE": NodeState.DOWN,
    "UNKNOWN": NodeState.DOWN,
    # short forms of sinfo, where they stand alone
    "ALLOC": NodeState.UP,
    "COMP": NodeState.UP,
    "MIX": NodeState.UP,
    "RESV": NodeState.UP,
    "UNK": NodeState.DOWN,
    "FUTR": NodeState.DOWN,
}
NODE_FLAGS = {
    "BLOCKED": NodeState.DRAINING,
    "CLOUD": NodeState.UP,
    "DRAIN": NodeState.DRAINING,
    "DRAINED": NodeState.DRAINING,
    "DRAINING": NodeState.DRAINING,
    "DRNG": NodeState.DRAINING,
    "DYNAMIC_FUTURE": NodeState.UP,
    "DYNAMIC_NORM": NodeState.UP,
    "EXTERNAL": NodeState.UP,
    "FAIL": NodeState.DRAINING,
    "FAILING": NodeState.DRAINING,
    "INVAL": NodeState.DRAINING,
    "INVALID_REG": NodeState.DRAINING,
    "MAINT": NodeState.DRAINING,
    "MAINTENANCE": NodeState.DRAINING,
    "NOT_RESPONDING": NodeState.DOWN,
    "NO_RESPOND": NodeState.DOWN,
    "PERFCTRS": NodeState.UP,
    # powered down, until 20.11
    "POWER": NodeState.DOWN,
    "POWERED_DOWN": NodeState.DOWN,
    "POWERING_DOWN": NodeState.DOWN,
    "POWERING_UP": NodeState.DOWN,
    "POWER_DOWN": NodeState.DOWN,
    "POWER_DRAIN": NodeState.DRAINING,
    "POWER_SAVING": NodeState.DOWN,
    "POWER_UP": NodeState.DOWN,
    "REBOOT": NodeState.DRAINING,
    "REBOOT_CANCEL": NodeState.UP,
    "REBOOT_ISSUED": NodeState.DOWN,
    "REBOOT_REQUESTED": NodeState.DRAINING,
    "RESUME": NodeState.UP,
    "RUNNING_JOB": NodeState.UP,
    "UNDRAIN": NodeState.UP,
}
"""A flag we do not know takes no node away: Slurm refuses a claim where it must."""
SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINT",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
    "+": "",
}
"""What sinfo and scontrol put behind a state."""
SEVERITY = {NodeState.UP: 0, NodeState.DRAINING: 1, NodeState.DOWN: 2}


def state_words(text: str) -> tuple[str, ...]:
    """The words of a node's state such as ``MIXED*+DRAIN``, suffixes spelt out."""
    words: list[str] = []
    for piece in text.upper().split("+"):
        word = piece.strip()
        while word and word[-1] in SUFFIXES:
            words.append(SUFFIXES[word[-1]])
            word = word[:-1]
        words.append(word)
    # The base state leads, as it does in every answer.
    base = [word for word in words if word in BASE_STATES]
    rest = [word for word in words if word and word not in BASE_STATES]
    return tuple(dict.fromkeys([*base, *rest])) or ("UNKNOWN",)


def node_state(words: tuple[str, ...]) -> tuple[NodeState, tuple[str, ...]]:
    """State of a node, and the words of it that are not known to us."""
    known = [BASE_STATES[word] for word in words if word in BASE_STATES]
    strange = tuple(w for w in words if w not in BASE_STATES and w not in NODE_FLAGS)
    if not known:
        # Nothing is assumed of a node whose base state has a new name.
        known = [NodeState.DOWN]
    known += [NODE_FLAGS[word] for word in words if word in NODE_FLAGS]
    return max(known, key=SEVERITY.__getitem__), strange


def job_state(text: str) -> str:
    """A job's state in long form; UNKNOWN where it is not known to us."""
    word = text.strip().upper().rstrip("+")
    word = JOB_STATES.get(word, word)
    return word if word in JOB_NAMES else "UNKNOWN"
