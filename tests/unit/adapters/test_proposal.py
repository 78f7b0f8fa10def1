"""Clusters that are proposed for a machine, by what its batch systems answer."""

from __future__ import annotations

from pathlib import Path

from coalloc.adapters.base import Proposal, plain_name
from coalloc.adapters.gridengine import proposal as gridengine
from coalloc.adapters.proposal import distinct, link_gbps, this_machine
from coalloc.adapters.registry import adapter_kind
from coalloc.adapters.slurm import proposal as slurm

CONFIG = """\
Configuration data as of 2026-11-22T22:40:01
ClusterName             = Big Iron
SelectType              = select/cons_tres
SLURM_CONF              = /etc/slurm/slurm.conf
SLURM_VERSION           = 22.05.8
"""
SINFO = "debug|up|2|4\nmain*|up|30|64\nmain*|up|2|128+\nold|inact|100|8\nbroken line\n"
ROUTE = "Iface\tDestination\tGateway\nlo\t0000007F\t0\nib0\t00000000\t010011AC\n"


def test_slurm_s_default_partition_is_proposed() -> None:
    partitions = slurm.read_partitions(SINFO)
    found = slurm.proposed("", slurm.read_config(CONFIG), partitions)
    assert (found.name, found.adapter) == ("Big-Iron", "slurm")
    assert found.settings == {"partitions": ["main"], "slots": "cpus"}
    assert found.found[0] == "Slurm 22.05.8, partition main: 32 nodes of up to 128 processors."
    assert found.found[1] == "Other partitions: debug (2 nodes), old (100 nodes)."


def test_without_a_default_the_largest_that_is_up_and_whole_nodes() -> None:
    partitions = slurm.read_partitions("a|up|2|4\nb|up|3|4\nc|down|9|4\n")
    found = slurm.proposed("/etc/slurm-b/slurm.conf", {"SelectType": "select/linear"}, partitions)
    assert found.name == "slurm"
    assert found.settings == {
        "conf": "/etc/slurm-b/slurm.conf",
        "partitions": ["b"],
        "slots": "node",
    }


def test_no_commands_no_proposal(tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path)}
    assert not list(slurm.proposals(nothing, tmp_path))
    assert not list(gridengine.proposals(nothing))


def test_a_cell_of_grid_engine() -> None:
    found = gridengine.proposed(["long.q", "all.q"], "smp", {"SGE_ROOT": "/opt/sge"})
    assert (found.name, found.adapter) == ("gridengine", "gridengine")
    assert found.settings == {
        "root": "/opt/sge",
        "queue": "all.q",
        "slots": "queue",
        "pe": "smp",
    }
    bare = gridengine.proposed(["long.q"], "", {"SGE_CELL": "west"})
    assert bare.name == "west"
    assert bare.settings == {"cell": "west", "queue": "long.q", "slots": "node"}


def test_a_parallel_environment_on_one_host() -> None:
    assert gridengine.keeps_together("pe_name smp\nallocation_rule    $pe_slots\nslots 99\n")
    assert not gridengine.keeps_together("pe_name mpi\nallocation_rule    $round_robin\n\n")


def test_the_machine_itself() -> None:
    found = this_machine()
    assert found.adapter == "local"
    assert found.settings["slots"] >= 1


def test_adapters_take_what_is_proposed_for_them() -> None:
    found = [
        slurm.proposed(
            "/etc/slurm/b.conf", slurm.read_config(CONFIG), slurm.read_partitions(SINFO)
        ),
        gridengine.proposed(["all.q"], "smp", {"SGE_ROOT": "/opt/sge", "SGE_CELL": "west"}),
        gridengine.proposed(["all.q"], "", {}),
        this_machine(),
    ]
    for each in found:
        adapter_kind(each.adapter).check(dict(each.settings), each.name, "settings")


def test_names() -> None:
    assert plain_name("a b/c\n") == "a-b-c"
    twice = [Proposal(name="a", adapter="local") for _ in range(3)]
    assert [each.name for each in distinct(twice)] == ["a", "a-2", "a-3"]


def test_the_link_of_the_default_route(tmp_path: Path) -> None:
    assert link_gbps(ROUTE, tmp_path) is None
    (tmp_path / "ib0").mkdir()
    (tmp_path / "ib0" / "speed").write_text("100000\n")
    assert link_gbps(ROUTE, tmp_path) == ("ib0", 100.0)
    (tmp_path / "ib0" / "speed").write_text("-1\n")
    assert link_gbps(ROUTE, tmp_path) is None
