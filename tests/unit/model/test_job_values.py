"""Jobs as values: JSON of each kind that reads back equal, with nothing said twice."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from coalloc.model.jobs import DivisibleJob, Edge, Job, MoldableJob, RigidJob, Task, WorkflowJob
from coalloc.model.speedup import AmdahlSpeedup, DowneySpeedup, TableSpeedup
from tests.properties.format_cases import jobs

ENCODER = msgspec.json.Encoder()
DECODER: msgspec.json.Decoder[Job] = msgspec.json.Decoder(Job)


@given(jobs("1"))
def test_a_job_reads_back_equal_from_its_json(job: Job) -> None:
    text = ENCODER.encode(job)
    again = DECODER.decode(text)
    assert again == job
    assert hash(again) == hash(job)
    assert ENCODER.encode(DECODER.decode(ENCODER.encode(again))) == ENCODER.encode(again)


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (
            RigidJob(id="1", procs=2, base_time=3.0),
            '{"kind":"rigid","id":"1","procs":2,"base_time":3.0}',
        ),
        (
            MoldableJob(
                id="1",
                speedup=AmdahlSpeedup(time_1=9.0, parallel_fraction=0.5),
                min_procs=1,
                max_procs=4,
            ),
            '{"kind":"moldable","id":"1","speedup":{"model":"amdahl","time":9.0,'
            '"parallel_fraction":0.5},"min_procs":1,"max_procs":4}',
        ),
        (
            DivisibleJob(id="1", work=9.0, chunk_s=3.0),
            '{"kind":"divisible","id":"1","work":9.0,"chunk_s":3.0}',
        ),
    ],
)
def test_kinds_and_models_are_tags_and_defaults_are_left_out(job: Job, text: str) -> None:
    assert ENCODER.encode(job).decode() == text


def test_words_of_the_formats_stand_for_ours() -> None:
    edges = (Edge(parent="a", child="b", gb=1.0),)
    tasks = (Task(id="a", work=1.0), Task(id="b", work=1.0))
    flow = msgspec.to_builtins(WorkflowJob(id="1", tasks=tasks, edges=edges))
    assert flow["edges"] == ({"from": "a", "to": "b", "gb": 1.0},)
    downey = msgspec.to_builtins(DowneySpeedup(time_1=1.0, parallelism=8.0, variance=0.5))
    assert downey == {"model": "downey", "time": 1.0, "A": 8.0, "sigma": 0.5}
    table = msgspec.to_builtins(TableSpeedup(procs=(1, 2), times=(2.0, 1.0)))
    assert table == {"model": "table", "procs": (1, 2), "times": (2.0, 1.0)}
