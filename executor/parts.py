"""Orders of the daemon as specifications for the launcher."""

from __future__ import annotations

import os

from coalloc.core.base.messages import Prepare
from coalloc.model.output_names import pattern_of_ranks
from coalloc.model.sites.parts import JobPart, Launch, PartSpec
from coalloc.model.values import replace


def spec_of(order: Prepare, cluster: str, epoch: int) -> PartSpec:
    """Specification of a part, for the launcher."""
    shared = {name: getattr(order, name) for name in JobPart.__struct_fields__}
    if order.launch is not None:
        launch = replace(order.launch, cwd=order.folder or order.launch.cwd)
        shared["launch"] = _filled_in(launch, order)
        shared["members"] = tuple(
            replace(each, stdout=out, stderr=err)
            for each in order.members
            for out, err in [_outputs(order.launch, each.job, order)]
        )
    return PartSpec(
        **shared,
        cluster=cluster,
        epoch=epoch,
        # Its groups are those of the account when it starts, not those of the enrolment.
        uid=None if order.uid in {os.getuid(), -1} else order.uid,
        chunks=(order.chunk_first, order.chunks, order.chunks_total) if order.chunks else None,
    )


def _filled_in(launch: Launch, order: Prepare) -> Launch:
    """The command with our variables, and with output files of which only ranks are left open."""
    env = dict(launch.env)
    if order.array_index is not None:
        env["COALLOC_ARRAY_TASK_ID"] = str(order.array_index)
        env["COALLOC_ARRAY_JOB_ID"] = order.job.partition("_")[0]
    if order.name:
        env["COALLOC_JOB_NAME"] = order.name
    if order.task:
        env["COALLOC_TASK"] = order.task
        env["COALLOC_WORKFLOW"] = order.job.partition(".")[0]
    out, err = _outputs(launch, order.job, order)
    return replace(launch, env=env, stdout=out, stderr=err)


def _outputs(launch: Launch, job: str, order: Prepare) -> tuple[str, str]:
    of = job, order.name, order.user
    out = pattern_of_ranks(launch.stdout, *of, once=order.once)
    return out, pattern_of_ranks(launch.stderr, *of, once=order.once)
