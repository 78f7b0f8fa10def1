"""Kinds of entries of the event stream, each with the fields that it has."""

from __future__ import annotations

from enum import StrEnum


class EventKind(StrEnum):
    """Kinds of events, past participles of what has happened."""

    JOB_SUBMITTED = "job_submitted"
    """`user`, `name`"""
    JOB_HANDED_OVER = "job_handed_over"
    """`user`, `cluster`, `job_there`: submitted in a cluster's own batch system, for us to order"""
    JOB_HELD = "job_held"
    """`user`; or `why`, where a restored store is behind an executor, or no cluster takes it"""
    JOB_RELEASED = "job_released"
    """`user`"""
    JOB_UPDATED = "job_updated"
    """`user`, `changes`: what is new, such as `time_limit=60 procs=2`"""
    JOB_LIMIT_CHANGED = "job_limit_changed"
    """`cluster`, `time_limit`: so the limit is now in that batch system, where somebody has changed
    it, or where another one was `refused`, with the reason"""
    JOB_PRIORITY_SET = "job_priority_set"
    """`user`, `priority`"""
    JOB_SET_ASIDE = "job_set_aside"
    """`policy`, `why`: with it that policy fails, and the next rounds plan without it"""
    JOB_PLACED = "job_placed"
    """`attempt`, `round`, `policy`, `nodes`, `parts` (clusters): decided, and orders are out"""
    JOB_STARTED = "job_started"
    """`clusters`, and `skew_ms` if there are several: every part runs, and `idle_node_s`, held
    before it, if claims could wait, of which `idle_for_others_node_s` while parts waited for each
    other; of a piece also `chunks`, such as `0-79`; of a workflow or a divisible job only `task` or
    `chunks`, the first that was placed"""
    TASK_TRIED_AGAIN = "task_tried_again"
    """`task`, `failures`, `exit_code`, `detail`, `pause_s`: a task has failed, and waits for
    another run"""
    PIECE_TRIED_AGAIN = "piece_tried_again"
    """`chunks`, `failures`, `exit_code`, `detail`, `pause_s`: the same of a piece of a divisible
    job"""
    CLAIM_QUEUED = "claim_queued"
    """`cluster`: the claim waits in that cluster's queue"""
    CLAIM_GRANTED = "claim_granted"
    """`cluster`, `nodes`, `waited_s`: one that waited has its nodes"""
    CLAIMS_HASTENED = "claims_hastened"
    """`clusters`: the claims that were put off there may be granted from now on"""
    SIBLINGS_WITHDRAWN = "siblings_withdrawn"
    """`clusters`, where it waits no more; `granted`, the cluster that has it now, or `why`; and
    `idle_node_s`"""
    JOB_REQUEUED = "job_requeued"
    """`detail`, `pause_s`, and `idle_node_s` if claims could wait: an attempt was refused, nothing
    ran; or, with `ran`, the batch system has requeued a handed job, or preempted one that is to run
    again"""
    JOB_CANCELLING = "job_cancelling"
    """`user`, and `reason` if one was given: a running job is being ended"""
    JOB_ENDED = "job_ended"
    """`state`, `exit_code`, `detail`"""
    JOB_COPIED = "job_copied"
    """`detail`: what it was to bring back is here, and its folders on clusters are removed"""
    DRAINED = "drained"
    """`target`, `user`, `reason`"""
    RESUMED = "resumed"
    """`target`, `user`, `reason`"""
    RESERVED = "reserved"
    """`name`, `nodes`, `start`, `end` (or null), `users`, `user`, `reason`: nodes are kept"""
    UNRESERVED = "unreserved"
    """`name`, `user`: they are not any more; no user: its time is over"""
    ROUNDS_PAUSED = "rounds_paused"
    """`user`"""
    ROUNDS_RESUMED = "rounds_resumed"
    """`user`"""
    ROUND_REQUESTED = "round_requested"
    """`user`"""
    EXECUTOR_CONNECTED = "executor_connected"
    """`cluster`"""
    EXECUTOR_DISCONNECTED = "executor_disconnected"
    """`cluster`, `why`"""
    STORE_RESTORED = "store_restored"
    """`backup`, the file that took the store's place: older than what executors know"""
