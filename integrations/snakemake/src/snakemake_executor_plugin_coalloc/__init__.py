"""``snakemake --executor coalloc``: a workflow's jobs on all clusters that coalloc makes one.

Each job of the workflow is a job of coalloc, carried by `coalloc.Executor`: it follows the
daemon's event stream, so that looking after many jobs costs no more than looking after one, and
outlives a restart of the daemon.
"""

from __future__ import annotations

import concurrent.futures
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings

from coalloc import Client
from coalloc import Executor as Jobs
from snakemake_executor_plugin_coalloc.fields import ResourceError, job_fields
from snakemake_executor_plugin_coalloc.settings import ExecutorSettings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

LOOK_S = 0.5
"""Between looks at the futures, which cost no question to the daemon, seconds."""
CANCEL_S = 60.0
"""How long the end of cancelled jobs is waited for, seconds."""
LOGS = Path(".snakemake", "coalloc_logs")
SCRIPT = """#!/bin/sh
[ "${{COALLOC_RANK:-0}}" = 0 ] || exit 0
{command}
"""


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=True,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
    pass_group_args=True,
)


class Executor(RemoteExecutor):
    """Submits Snakemake's jobs to coalloc."""

    def __post_init__(self) -> None:
        if self.workflow.remote_execution_settings.immediate_submit:
            raise WorkflowError("--immediate-submit is not possible with coalloc")
        settings = self.workflow.executor_settings or ExecutorSettings()
        self.next_seconds_between_status_checks = LOOK_S
        self.keep_logs = settings.keep_logs
        try:
            self.jobs = Jobs(
                client=lambda: Client(config=settings.config),
                folder=LOGS.parent / "coalloc",
                patience_s=float(settings.patience),
            )
        except (Client.NoAnswer, OSError, ValueError) as error:
            raise WorkflowError(f"coalloc: {error}") from error

    def run_jobs(self, jobs: list[JobExecutorInterface]) -> None:
        """Submit all that are ready at once; each is reported as it is queued."""
        sent = []
        for job in jobs:
            self.run_job_pre(job)
            sent.append(self._sent(job))
        for one in sent:
            self._told(one)

    def run_job(self, job: JobExecutorInterface) -> None:
        self._told(self._sent(job))

    def _sent(self, job: JobExecutorInterface) -> SubmittedJobInfo:
        rule = job.groupid if job.is_group() else job.name
        kind = "group" if job.is_group() else "rule"
        log = (LOGS / f"{kind}_{rule}").absolute()
        log.mkdir(parents=True, exist_ok=True)
        try:
            fields = job_fields(job.threads, dict(job.resources.items()))
        except ResourceError as error:
            raise WorkflowError(f"{kind} {rule}: {error}") from error
        future = self.jobs.run(
            [f"snakemake-{rule}"],
            script=SCRIPT.format(command=self.format_job_exec(job)),
            name=f"snakemake-{rule}",
            stdout=f"{str(log).replace('%', '%%')}/%j.log",
            **fields,
        )
        return SubmittedJobInfo(job, aux={"future": future, "folder": log})

    def _told(self, info: SubmittedJobInfo) -> None:
        """Report a job that is queued; of one that is refused, too, so that it can fail."""
        number = info.aux["future"].queued()
        if number:
            info.external_jobid = number
            info.aux["log"] = info.aux["folder"] / f"{number}.log"
        self.report_job_submission(info)
        self.logger.info(f"Job {info.job.jobid} is coalloc job {number or '(refused)'}.")

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the jobs that have ended; yield the others."""
        for info in active_jobs:
            future = info.aux["future"]
            if not future.done():
                yield info
            elif why := self._failure(future):
                self.report_job_error(info, msg=f"{why}. ", aux_logs=self._logs(info))
            else:
                if not self.keep_logs:
                    info.aux["log"].unlink(missing_ok=True)
                self.report_job_success(info)

    def _failure(self, future: concurrent.futures.Future[Any]) -> str:
        """Reason why a job is no success; empty if it is one."""
        try:
            done = future.result(0.0)
        except concurrent.futures.CancelledError:
            return "it was cancelled"
        except (Jobs.Failed, Client.Refused, Client.NoAnswer) as error:
            return f"coalloc: {error}"
        if done.exit_code == 0:
            return ""
        return f"coalloc job {done.job} ended with exit code {done.exit_code}"

    def _logs(self, info: SubmittedJobInfo) -> list[str]:
        log = info.aux.get("log")
        return [str(log)] if log is not None and log.exists() else []

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """End jobs, running or not, and wait until they have ended."""
        futures = [info.aux["future"] for info in active_jobs]
        for future in futures:
            future.end()
        concurrent.futures.wait(futures, CANCEL_S)

    def shutdown(self) -> None:
        """Stop looking after jobs; all have ended, or are given up."""
        super().shutdown()
        self.jobs.shutdown(wait=False)
        if not self.keep_logs and LOGS.exists() and not any(LOGS.rglob("*.log")):
            shutil.rmtree(LOGS, ignore_errors=True)
