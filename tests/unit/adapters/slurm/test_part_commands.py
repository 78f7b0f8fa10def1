"""The words by which Slurm is asked for a part, and what its answers mean."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from coalloc.adapters.runner.command import CommandRefusedError
from coalloc.adapters.runner.grant import dealt, settled
from coalloc.adapters.slurm.part_commands import (
    allocated,
    allocation,
    batch_script,
    explained,
    refusal,
)
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


def test_wrappers_start_on_every_node_there_is() -> None:
    script = batch_script(spec(("n1", 1)), "srun")
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


def test_processes_are_dealt_to_what_was_allocated() -> None:
    asked = spec(("x/n1", 3), ("x/n2", 1))
    assert dealt(asked, {"n5": 2, "n7": 9}) == [("x/n5", 2), ("x/n7", 2)]
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
