"""The seeded world of `tests.faults`, where some of what the client submits are workflows.

A task starts only when the ends of those it needs are on the daemon's disk; no task starts
twice but after a failure that is on disk, whatever is lost, doubled or killed. Users hold, release
and cancel workflows and tasks, some tasks fail, and their workflows with them.
"""

from __future__ import annotations

from coalloc.core.events import Requested
from coalloc.core.messages import Prepare
from coalloc.core.records import JobRecord, JobState, PartState
from coalloc.core.requests import Cancel, Command, Hold, Release, Submit
from coalloc.model.jobs import WorkflowJob
from tests.faults import Part, World
from tests.site import workflow

SHAPES = (
    ("a b c d e", "a>b a>c b>d c>d d>e"),
    ("a b c d e f", "a>d b>d b>e c>f"),
    ("a b c d", "a>b b>c c>d"),
    ("a b c d e f g h", ""),
)


class FlowWorld(World):
    """Daemon, executors, and a client that submits, holds and cancels jobs and workflows."""

    def submit_of(self, token: str) -> Submit:
        number = int(token[1:])
        if number % 3 == 0:
            return super().submit_of(token)
        tasks, edges = SHAPES[number % len(SHAPES)]
        return workflow(token, tasks, edges, keep_going=number % 2 == 0, retries=number % 4 // 2)

    def step(self) -> None:
        self.users_act()
        super().step()

    def users_act(self) -> None:
        """Somebody holds, releases or cancels; when faults have ceased, all is released."""
        flows = [job for job, r in self.disk.jobs.items() if isinstance(r.job, WorkflowJob)]
        if self.faults == 0.0:
            for job in flows:
                if self.disk.jobs[job].state is JobState.HELD:
                    self.ask(Release(job=job))
        elif flows and self.chance(0.03):
            job = self.dice.choice(flows)
            task = f"{job}.{self.dice.randrange(1, 5)}"
            holds: list[Command] = [Hold(job=job), Hold(job=job), Release(job=job)]
            cancels: list[Command] = [Cancel(job=job), Cancel(job=task), Cancel(job=task)]
            self.ask(self.dice.choice(holds + cancels))

    def ask(self, command: Command) -> None:
        event = Requested(origin=None, user="u", uid=1, gid=1, operator=False, command=command)
        self.tell(event)

    def code_of(self, order: Prepare) -> int:
        """Some tasks always fail, others when they run for the first time."""
        if not order.task:
            return 0
        luck = sum(map(ord, order.job)) % 9
        return int(luck == 0 or (luck == 1 and self.starts[order.job, order.part] == 1))

    def runs_allowed(self, job: str) -> int:
        record = self.disk.jobs.get(job)
        return 1 if record is None else 1 + record.failures

    def start(self, name: str, part: Part) -> None:
        if part.order.task and part.state is PartState.READY:
            flow = self.disk.jobs[part.order.job.partition(".")[0]]
            assert isinstance(flow.job, WorkflowJob)
            for edge in flow.job.edges:
                if edge.child == part.order.task:
                    state = self.task(flow, edge.parent).state
                    assert state is JobState.COMPLETED, f"{part.order.job} before {edge.parent}"
        super().start(name, part)

    def task(self, flow: JobRecord, name: str) -> JobRecord:
        """A task's record on disk."""
        assert isinstance(flow.job, WorkflowJob)
        number = next(n for n, task in enumerate(flow.job.tasks, 1) if task.id == name)
        return self.disk.jobs[f"{flow.id}.{number}"]

    def settle(self, steps: int = 8000) -> None:
        super().settle(steps)
        flows = [r for r in self.disk.jobs.values() if isinstance(r.job, WorkflowJob)]
        assert flows, "no workflow was submitted"
        for flow in flows:
            assert isinstance(flow.job, WorkflowJob)
            tasks = [r for r in self.disk.jobs.values() if r.flow == flow.id]
            completed = [r for r in tasks if r.state is JobState.COMPLETED]
            if flow.state is JobState.COMPLETED:
                assert len(completed) == len(flow.job.tasks), f"{flow.id} completed without tasks"
            elif flow.state is JobState.FAILED:
                assert len(completed) < len(tasks), f"{flow.id} failed without a failed task"
            else:
                assert flow.state is JobState.CANCELLED, f"{flow.id} is {flow.state}"
                assert flow.cancelled_by, f"{flow.id} was cancelled by nobody"
