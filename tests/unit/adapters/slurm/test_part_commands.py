"""The words by which Slurm is asked for a part, and what its answers mean."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from coalloc.adapters.runner.command import CommandRefusedError, UnreachableError
from coalloc.adapters.runner.grant import dealt, settled
from coalloc.adapters.runner.rank import FaultError
from coalloc.adapters.slurm import part_job
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.part_commands import (
    allocated,
    allocation,
    batch_script,
    explained,
    may_be_at_once,
    refusal,
    room_of,
)
from coalloc.adapters.ssh.shell import CommandOutput
from tests.support.part_specs import batch_spec


def spec(*nodes: tuple[str, int], exclusive: bool = True) -> Any:
    site = {
        "exclusive": exclusive,
        "names": {name: name.removeprefix("x/") for name, _ in nodes},
        "prefix": "x/" if any("/" in name for name, _ in nodes) else "",
        "avoid": "",
        "memory_mb": 0,
        "max_time_s": None,
        "passed": False,
    }
    queue = {"at_once": False, "begin_s": 0.0, "hold_s": 60.0, "avoid": [], "nice": 0}
    return batch_spec(*nodes, site=site, queue=queue, time_limit_s=60.0, rendezvous="n1:1")


@pytest.mark.parametrize("why", ["Connection reset by peer", "Unable to contact slurm controller"])
def test_a_submission_whose_connection_broke_may_have_come_through(why: str) -> None:
    said = f"sbatch: error: Batch job submission failed: {why}"
    error = Slurm().failure("sbatch", CommandOutput(code=1, out="", err=said))
    assert isinstance(error, UnreachableError)
    assert refusal(error) == "unreachable"


def test_a_claim_that_waits_names_no_node() -> None:
    asked = spec(("n1", 1), ("n2", 1))
    asked["site"]["avoid"] = "n[7-9]"
    asked["queue"]["begin_s"] = 30.4
    words = allocation(asked, is_shape=True)
    assert not [word for word in words if "nodelist" in word]
    assert words[2:] == [
        *("--chdir=/", "-n", "2", "--exclusive", "-N", "2", "--ntasks-per-node=1"),
        *("--exclude=n[7-9]", "--begin=now+30", "--time=1"),
    ]
    assert "--time=1" in allocation(asked)
    assert "--time=3" in allocation(asked | {"size": 3}, is_shape=True), "it holds them for others"


def test_cpus_are_asked_for_on_whatever_nodes() -> None:
    words = allocation(spec(("n1", 3), ("n2", 2), exclusive=False), is_shape=True)
    assert words[3:5] == ["-n", "5"]
    assert "-N" not in words


TWO = (("n1", 2), ("n2", 2))


def asked(
    nodes: Any, shape: dict[str, Any], *, memory_mb: int = 0, whole: bool = False, **fields: Any
) -> tuple[str, str]:
    """What is asked for at once and in the queue, without what every claim says."""
    part = spec(*nodes, exclusive=whole) | {"shape": shape} | fields
    part["site"]["memory_mb"] = memory_mb
    ways = (allocation(part, is_shape=is_shape) for is_shape in (False, True))
    at_once, queued = (" ".join(w for w in words[3:] if "--time" not in w) for words in ways)
    return at_once.replace("--nodelist=n1,n2 -N 2 ", "@ "), queued


@pytest.mark.parametrize(
    ("given", "at_once", "queued"),
    [
        (
            asked(TWO, {"cpus_per_proc": 4, "min_nodes": 2, "max_nodes": 2, "procs_per_node": 2}),
            "--cpus-per-task=8 @ -n 2 --ntasks-per-node=1",
            "-n 4 -c 4 -N 2 --ntasks-per-node=2",
        ),
        (
            asked((("n1", 3), ("n2", 1)), {"cpus_per_proc": 2, "min_nodes": 2}, memory_mb=1001),
            "@ -n 4 --cpus-per-task=2 --mem-per-cpu=501",
            "-n 4 -c 2 -N 2-4 --mem-per-cpu=501",
        ),
        (
            asked(TWO, {"cpus_per_proc": 1, "per_proc": {"gpu:a": 1}, "per_node": {"fast": 1}}),
            "--cpus-per-task=2 @ -n 2 --ntasks-per-node=1 --gres=fast:1,gpu:a:2",
            "-n 4 --gres=fast:1 --gpus-per-task=a:1",
        ),
        (
            asked(TWO, {"cpus_per_proc": 2, "exclusive": True, "all_memory": True}),
            "--exclusive --cpus-per-task=4 @ -n 2 --ntasks-per-node=1 --mem=0",
            "-n 4 -c 2 --exclusive --mem=0",
        ),
        (  # memory of whole nodes is for as many processes as they were planned to take
            asked(TWO, {"cpus_per_proc": 2, "memory_mb_per_node": 50}, memory_mb=100, whole=True),
            "--exclusive --cpus-per-task=4 @ -n 2 --ntasks-per-node=1 --mem=250",
            "-n 4 -c 2 --exclusive --ntasks-per-node=2 --mem=250",
        ),
        (  # the nodes of a job of several parts are counted over all of them
            asked(TWO, {"cpus_per_proc": 1, "min_nodes": 6, "max_nodes": 6}, size=12),
            "--cpus-per-task=2 @ -n 2 --ntasks-per-node=1",
            "-n 4 -N 2",
        ),
    ],
)
def test_what_is_asked_for_by_shape(given: tuple[str, str], at_once: str, queued: str) -> None:
    assert given == (at_once, queued)


def test_what_slurm_has_no_word_for() -> None:
    with pytest.raises(FaultError, match="fast for each process cannot be asked of Slurm"):
        asked(TWO, {"cpus_per_proc": 1, "per_proc": {"fast": 1}})


def test_what_a_claim_at_once_cannot_say() -> None:
    def may(nodes: Any, shape: dict[str, Any], **site: Any) -> bool:
        part = spec(*nodes, exclusive=False) | {"shape": shape}
        part["site"] |= site
        return may_be_at_once(part)

    uneven = (("n1", 2), ("n2", 1))
    assert may(TWO, {"cpus_per_proc": 4})
    assert may(uneven, {})
    assert not may(uneven, {"cpus_per_proc": 2})
    assert not may(TWO, {"exclusive": True})
    assert not may(TWO, {}, passed=True)


def test_processes_of_a_node_by_what_was_allocated_there() -> None:
    def room(shape: dict[str, Any], cpus: int, gres: str = "") -> int:
        return room_of(spec(*TWO, exclusive=False) | {"shape": shape}, cpus, gres)

    assert room({}, 3) == 3
    assert room({"cpus_per_proc": 4}, 9) == 2
    assert room({"cpus_per_proc": 1, "procs_per_node": 3}, 8) == 3
    gpus = "gpu:a:3(IDX:0-2),gpu:b:1(IDX:3)"
    assert room({"cpus_per_proc": 1, "per_proc": {"gpu:a": 2}}, 8, gpus) == 1
    assert room({"cpus_per_proc": 1, "per_proc": {"gpu": 1}}, 8, gpus) == 4
    assert room_of(spec(*TWO), 8, "") == 1


def test_wrappers_start_on_every_node_there_is() -> None:
    script = batch_script(spec(("n1", 1)), {"WORD": "it's"})
    assert """srun -N "$SLURM_JOB_NUM_NODES" -n "$SLURM_JOB_NUM_NODES" """ in script
    tried = script.replace("exec srun", "echo step").replace("exec 'python3'", "exec echo")
    for nodes, restarts, said in (("1", "0", "-I"), ("2", "0", "step"), ("1", "1", "")):
        env = {"SLURM_JOB_NUM_NODES": nodes, "SLURM_RESTART_COUNT": restarts}
        done = subprocess.run(
            ("sh", "-c", tried), env=env, capture_output=True, text=True, check=False
        )
        assert done.stdout.split(" ")[0].strip() == said


def test_what_was_allocated_is_read() -> None:
    text = "JobId=7 NodeList=a[1-3] \n Nodes=a[1-2] CPU_IDs=0-3,6 Mem=0 GRES= Nodes=a3 CPU_IDs=2"
    assert allocated(text) == [("a[1-2]", 5, ""), ("a3", 1, "")]
    assert allocated("x Nodes=a1 CPU_IDs=0 Mem=1 GRES=gpu:a:1(IDX:0)") == [
        ("a1", 1, "gpu:a:1(IDX:0)")
    ]


def test_processes_are_dealt_to_what_was_allocated() -> None:
    asked = spec(("x/n1", 3), ("x/n2", 1))
    assert dealt(asked, {"n5": 2, "n7": 9}) == [("x/n5", 2), ("x/n7", 2)]
    assert dealt(asked, {"n5": 4, "n7": 9}) == [("x/n5", 3), ("x/n7", 1)], "one is for the last"
    assert dealt(asked, {"n2": 1, "n1": 3}) == [("x/n1", 3), ("x/n2", 1)]
    with pytest.raises(ValueError, match="2 processes have no slot on n5"):
        dealt(asked, {"n5": 2})


def test_a_spec_is_settled_by_what_was_granted_and_told(tmp_path: Any) -> None:
    asked = spec(("x/n1", 1), ("x/n2", 1))
    assert settled(asked, str(tmp_path)) is asked
    (tmp_path / "grant.json").write_text('{"nodes": [["x/n4", 2]]}')
    (tmp_path / "layout.json").write_text(
        '{"hosts": [["x/n4", 2], ["b1", 1]], "nodelist": "b1,x/n4", "rendezvous": "n4:7"}'
    )
    done = settled(asked, str(tmp_path))
    assert [(r["rank"], r["node"], r["local_rank"]) for r in done["ranks"]] == [
        (0, "x/n4", 0),
        (1, "x/n4", 1),
    ]
    assert done["site"]["names"] == {"x/n4": "n4"}
    assert done["hostfile_text"] == "x/n4 slots=2\nb1 slots=1\n"
    assert (done["nodelist"], done["rendezvous"]) == ("b1,x/n4", "n4:7")


def test_others_that_go_first_are_told_from_nodes_that_are_busy() -> None:
    def reason(said: str) -> str:
        return refusal(CommandRefusedError("salloc", said, 1))

    first = "Immediate execution impossible, insufficient priority"
    assert reason(first) == "others_first"
    assert reason("Requested nodes are busy") == "nodes_taken"


@pytest.mark.parametrize(
    ("state", "why", "reason"),
    [
        ("PENDING", "BadConstraints", "no_such_nodes"),
        ("PENDING", "PartitionTimeLimit", "bad_time_limit"),
        ("CANCELLED", "Priority", "cancelled_there"),
    ],
)
def test_a_claim_that_never_starts(state: str, why: str, reason: str) -> None:
    assert explained(state, why)[0] == reason


@pytest.mark.parametrize("at_once", [True, False])
def test_a_claim_is_asked_for_once(monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    job: Any = object.__new__(part_job.SlurmJob)
    job._spec = {"queue": {"at_once": at_once}, "site": {}}
    asked: list[str] = []
    monkeypatch.setattr(part_job, "may_be_at_once", lambda spec: True)
    job.allocate = lambda port: asked.append("srun")
    job.submit = lambda port: asked.append("sbatch")
    assert job.claim(1, lambda: None) is not at_once
    assert asked == ["srun" if at_once else "sbatch"]
