"""What a policy of one's own is made of, and the values that it plans: names that stay.

`docs/policies/writing-a-policy.md` shows how; `docs/FORMATS.md` has the values, with these names.
"""

from coalloc.model.errors import InputError
from coalloc.model.jobs import DivisibleJob, Edge, MoldableJob, RigidJob, Task, WorkflowJob
from coalloc.model.plan import Deferred, Objective, Placement, Plan, Reason, Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Reservation, Running, Snapshot
from coalloc.model.speedup import AmdahlSpeedup, DowneySpeedup, TableSpeedup
from coalloc.policies.base import Budget, OnIncumbent, Policy
from coalloc.policies.bounds.lower import Bound
from coalloc.policies.contract import faults
from coalloc.policies.incumbent import Incumbent
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.options import CommonOptions

__all__ = [
    "AmdahlSpeedup",
    "Bound",
    "Budget",
    "Cluster",
    "CommonOptions",
    "Deferred",
    "DivisibleJob",
    "DowneySpeedup",
    "Edge",
    "Incumbent",
    "InputError",
    "MoldableJob",
    "Node",
    "Objective",
    "OnIncumbent",
    "Placement",
    "Plan",
    "Planner",
    "Policy",
    "Reason",
    "Reservation",
    "RigidJob",
    "Running",
    "Schedule",
    "Snapshot",
    "Status",
    "TableSpeedup",
    "Task",
    "WorkflowJob",
    "faults",
]
