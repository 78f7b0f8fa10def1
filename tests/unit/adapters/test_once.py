"""Commands that are started once: what each runner starts, and what a script is told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from coalloc.adapters.runner.node import deal_gpus, write
from coalloc.adapters.runner.once import HOLDS, is_holder, script_environment, started_once
from coalloc.adapters.runner.payload import VARIABLE, payload
from tests.support.part_specs import batch_spec


def spec(*hosts: tuple[str, int], **fields: Any) -> Any:
    env = {"PATH": "/bin", "SLURM_NTASKS": "9", "COALLOC_ARRAY_TASK_ID": "4"}
    given = {"once": True, "name": "model", "cwd": "/w", "env": env, "hosts": list(hosts)}
    return batch_spec(*hosts, **{**given, **fields})


def test_the_wrapper_fits_into_one_variable() -> None:
    """Linux takes no longer one, whatever there is room for beside it."""
    assert len(f"{VARIABLE}={payload()}") < 128 << 10


def test_the_first_process_alone_is_started_with_the_cpus_of_all() -> None:
    whole = spec(("a", 1), ("b", 2))
    for number, rank in enumerate(whole["ranks"]):
        rank["cpus"] = [number + 3]
    (place,) = started_once(whole)["ranks"]
    assert (place["rank"], place["node"], place["cpus"]) == (0, "a", [3, 4, 5])
    assert not is_holder(whole)
    assert started_once(spec(("a", 1)))["ranks"][0]["cpus"] is None


def test_what_processes_read_on_a_node_ends_with_its_wrapper(tmp_path: Path) -> None:
    script, hosts = '#!/bin/sh\ncat "$0" "$1"\n', "a slots=1\n"
    wrapper = spec(("a", 1), script_text=script, hostfile_text=hosts)
    write(wrapper, str(tmp_path))
    assert not [*tmp_path.iterdir()]
    words = [wrapper["script"], wrapper["hostfile"]]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == script + hosts
    for path in words:
        os.close(int(path.rpartition("/")[2]))
        assert not os.path.exists(path)


def test_gpus_of_a_wrapper_are_dealt_to_its_processes() -> None:
    """Those of the node to all, its own to each; what a script starts has those of all."""

    def dealt(each: str, visible: str) -> list[Any]:
        wrapper = spec(("a", 2), env={"COALLOC_GPUS_PER_TASK": each})
        deal_gpus(wrapper, visible)
        return [rank.get("gpus") for rank in wrapper["ranks"]]

    assert dealt("1", "0,1,2") == [["0", "1"], ["0", "2"]]
    assert dealt("2", "4,5,6,7") == [["4", "5"], ["6", "7"]]
    assert dealt("0", "0,1") == [["0", "1"]] * 2
    assert dealt("1", "") == [None, None]
    whole = spec(("a", 2), env={"COALLOC_GPUS_PER_TASK": "1"})
    deal_gpus(whole, "0,1,2")
    assert started_once(whole)["ranks"][0]["gpus"] == ["0", "1", "2"]


def test_on_other_nodes_one_process_waits() -> None:
    ranks = spec(("a", 1), ("b", 2))["ranks"][1:]
    other = spec(("b", 2), ranks=ranks)
    assert is_holder(other)
    assert started_once(other)["ranks"] == [ranks[0] | {HOLDS: True}]
    assert not is_holder(spec(("b", 2), ranks=ranks, once=False))


def test_a_script_within_slurm_finds_its_job() -> None:
    step = {
        "SLURM_JOB_ID": "12",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_STEP_ID": "0",
        "SLURM_CPU_BIND": "none",
        "SLURM_NTASKS": "2",
        "SLURM_JOB_CPUS_PER_NODE": "8(x3)",
    }
    env = script_environment(spec(("n3", 2), ("n1", 2), ("n2", 1)), step)
    expected = {
        "PATH": "/bin",
        "SLURM_JOB_ID": "12",
        "SLURM_JOBID": "12",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_NTASKS": "5",
        "SLURM_NNODES": "3",
        "SLURM_JOB_NODELIST": "n3,n1,n2",
        "SLURM_TASKS_PER_NODE": "2(x2),1",
        "SLURM_JOB_CPUS_PER_NODE": "8(x3)",
        "SLURM_SUBMIT_DIR": "/w",
        "SLURM_ARRAY_TASK_ID": "4",
        "SLURM_GTIDS": "0",
    }
    assert {name: env.get(name) for name in expected} == expected
    assert not {"SLURM_CPU_BIND", "SLURM_STEP_ID", "SLURM_OVERLAP"} & env.keys()
    step["SLURM_JOB_CPUS_PER_NODE"] = "2(x2),1"
    env = script_environment(spec(("n3", 1), ("n1", 2), ("n2", 2)), step)
    assert env["SLURM_JOB_CPUS_PER_NODE"] == "1,2(x2)", "in the order of the nodes"
    step |= {"SLURM_JOB_NODELIST": "n[9-10]", "SLURM_JOB_NUM_NODES": "2"}
    given = {
        order: script_environment(spec(*((name, 1) for name in order)), step)["SLURM_NODELIST"]
        for order in (("n9", "n10"), ("n10", "n9"), ("n9",))
    }
    assert list(given.values()) == ["n[9-10]", "n10,n9", "n9"], "Slurm's, where it is the same"


def test_a_script_is_told_of_its_shape() -> None:
    shape = {"cpus_per_proc": 4, "procs_per_node": 2, "per_proc": {"gpu:a": 1}}
    step = {"SLURM_JOB_ID": "12", "SLURM_STEP_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1"}
    env = script_environment(spec(("n1", 2), ("n2", 1), shape=shape), step)
    told = {
        "SLURM_CPUS_PER_TASK": "4",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_GPUS_PER_TASK": "a:1",
        "SLURM_JOB_GPUS": "0,1",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "SLURM_JOB_CPUS_PER_NODE": "8,4",
        "SLURM_TASKS_PER_NODE": "2,1",
    }
    assert {name: env.get(name) for name in told} == told


def test_tasks_of_whole_nodes_are_as_many_as_they_take() -> None:
    shape = {"cpus_per_proc": 2, "exclusive": True, "min_nodes": 2, "max_nodes": 2}
    step = {"SLURM_JOB_ID": "12", "SLURM_JOB_CPUS_PER_NODE": "16(x2)"}
    env = script_environment(spec(("n1", 1), ("n2", 1), shape=shape), step)
    assert (env["SLURM_TASKS_PER_NODE"], "SLURM_NTASKS" in env) == ("8(x2)", False)
    named = spec(("n1", 2), ("n2", 2), shape=shape)
    assert script_environment(named, step)["SLURM_NTASKS"] == "4"


def test_elsewhere_it_finds_the_numbers() -> None:
    env = script_environment(spec(("a", 2), ("b", 2)), {"JOB_ID": "3"})
    assert (env["NSLOTS"], env["NHOSTS"]) == ("4", "2")
    plain = spec(("a", 2))
    assert script_environment(plain, {}) == plain["env"]
