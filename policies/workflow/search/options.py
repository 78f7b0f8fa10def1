"""Options of `workflow`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from coalloc.policies.oas.options import PATIENCE, ExactWork, Patience
from coalloc.policies.options import CommonOptions, WorkflowLinks


class WorkflowPolicyOptions(CommonOptions, frozen=True, kw_only=True):
    """Workflows as a whole: the published heuristics, then a search, with bound and gap."""

    patience: Patience = PATIENCE
    exact_work: ExactWork = 10_000_000
    workflow_links: WorkflowLinks = "booked"
    max_coalloc_overhead: Annotated[float, Meta(ge=0)] = 0.25
    """How much longer a task may take for its communication between clusters, as a share of its
    time.
    """
