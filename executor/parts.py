"""Orders of the daemon as specifications for the launcher, and the refusal of one."""

from __future__ import annotations

import os

from coalloc.core.base.messages import Prepare
from coalloc.model.formats.nodeset import fold
from coalloc.model.output_names import pattern_of_ranks
from coalloc.model.sites.parts import PartReport, PartSpec, PartState


def refused(order: Prepare, reason: str, detail: str) -> PartReport:
    """The report of a claim that was not granted."""
    return PartReport(
        job=order.job,
        attempt=order.attempt,
        part=order.part,
        state=PartState.REFUSED,
        reason=reason,
        detail=detail,
    )


def spec_of(order: Prepare, cluster: str, epoch: int) -> PartSpec:
    """Specification of a part, for the launcher."""
    launch = order.once or order.launch
    env = {} if launch is None else dict(launch.env)
    if order.array_index is not None:
        env["COALLOC_ARRAY_TASK_ID"] = str(order.array_index)
        env["COALLOC_ARRAY_JOB_ID"] = order.job.partition("_")[0]
    if order.name:
        env["COALLOC_JOB_NAME"] = order.name
    if order.task:
        env["COALLOC_TASK"] = order.task
        env["COALLOC_WORKFLOW"] = order.job.partition(".")[0]
    return PartSpec(
        job=order.job,
        attempt=order.attempt,
        part=order.part,
        cluster=cluster,
        epoch=epoch,
        argv=() if launch is None else launch.argv,
        script="" if launch is None else launch.script,
        env=env,
        cwd="/" if launch is None else launch.cwd,
        stdout="" if launch is None else _output(launch.stdout, order),
        stderr="" if launch is None else _output(launch.stderr, order),
        # Its groups are those of the account when it starts, not those of the enrolment.
        uid=None if order.uid in {os.getuid(), -1} else order.uid,
        nodes=tuple(order.nodes.items()),
        first_rank=order.first_rank,
        size=order.size,
        nodelist=fold(order.all_nodes),
        hosts=tuple(order.all_nodes.items()),
        rendezvous=order.rendezvous,
        time_limit_s=order.time_limit,
        memory_mb_per_proc=order.memory_mb_per_proc,
        name=order.name,
        lease_s=order.lease_s,
        foreign=order.foreign,
        queue=order.queue,
        batch=order.batch,
        once=order.once is not None,
        chunks=(order.chunk_first, order.chunks, order.chunks_total) if order.chunks else None,
    )


def _output(pattern: str, order: Prepare) -> str:
    """The pattern of an output file, of which only the marks of the ranks are left."""
    return pattern_of_ranks(pattern, order.job, order.name, order.user)
