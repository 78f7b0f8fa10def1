"""Settings of the adapter ``local``: what they mean, and what is said of wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.adapters.local.settings import (
    LocalNode,
    read_cpus,
    read_settings,
    refuse_collisions,
)
from coalloc.model.errors import InputError


def test_one_node_is_the_whole_machine() -> None:
    settings = read_settings({}, "alpha", cpu_count=8)
    (node,) = settings.nodes
    assert node == LocalNode(name="alpha1", slots=8, memory_mb=node.memory_mb)
    assert node.memory_mb


def test_a_number_of_nodes_shares_the_machine() -> None:
    settings = read_settings({"nodes": 3, "memory_mb": 500}, "alpha", cpu_count=8)
    assert [node.name for node in settings.nodes] == ["alpha1", "alpha2", "alpha3"]
    assert {(node.slots, node.memory_mb) for node in settings.nodes} == {(2, 500)}
    more = read_settings({"nodes": 30}, "alpha", cpu_count=8)
    assert {node.slots for node in more.nodes} == {1}


def test_node_sets_with_and_without_a_table() -> None:
    settings = read_settings(
        {
            "nodes": [
                "a[1-2]",
                {"name": "b[1-2]", "power": 0.5, "cpus": ["0-1", "3"], "features": ["slow"]},
            ],
            "power": 0.9,
            "features": ["x86"],
            "memory_mb": None,
        },
        "alpha",
        cpu_count=4,
    )
    assert settings.nodes == (
        LocalNode(name="a1", power=0.9, features=("x86",)),
        LocalNode(name="a2", power=0.9, features=("x86",)),
        LocalNode(name="b1", slots=2, power=0.5, features=("slow",), cpus=2, pinned=(0, 1)),
        LocalNode(name="b2", slots=1, power=0.5, features=("slow",), cpus=1, pinned=(3,)),
    )


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ([], "at: [] is not a table"),
        ({"node": 3}, "at.node: unknown key; did you mean nodes?"),
        ({"nodes": 0}, "at.nodes: 0 is outside 1..100000"),
        ({"nodes": True}, "at.nodes: true is neither a number nor a list"),
        ({"nodes": "a[1-2]"}, "at.nodes: 'a[1-2]' is neither a number nor a list"),
        ({"nodes": []}, "at.nodes: is empty"),
        ({"nodes": [""]}, "at.nodes[0]: is empty"),
        ({"nodes": [3]}, "at.nodes[0]: 3 is not a table"),
        ({"nodes": ["a", "a"]}, "at.nodes: a is named twice"),
        ({"nodes": ["a[1-200000]"]}, "at.nodes: 200000 nodes are more than 100000"),
        (
            {"nodes": ["a", {"name": "b", "powr": 1}]},
            "at.nodes[1].powr: unknown key; did you mean power?",
        ),
        ({"nodes": [{"power": 1}]}, "at.nodes[0].name: is missing"),
        ({"power": 1.5}, "at.power: 1.5 is outside"),
        ({"slots": 0}, "at.slots: 0 is outside 1..1e+06"),
        (
            {"nodes": [{"name": "b[1-2]", "cpus": ["0"]}]},
            "at.nodes[0].cpus: has 1 entries for 2 nodes",
        ),
        (
            {"nodes": [{"name": "b", "cpus": ["0-"]}]},
            "at.nodes[0].cpus[0]: '0-' is not a list of CPUs such as 0-3,8",
        ),
        ({"nodes": [{"name": "b", "cpus": ["3-1"]}]}, "at.nodes[0].cpus[0]: 3-1 is not a range"),
    ],
)
def test_errors_say_where_and_what(value: Any, error: str) -> None:
    with pytest.raises(InputError) as caught:
        read_settings(value, "alpha", "at")
    assert str(caught.value).startswith(error)


def test_resources_of_nodes() -> None:
    given = {"nodes": ["a", {"name": "b", "gres": "gpu:3090:2,nvme:900,fpga"}], "gres": "gpu:4"}
    first, second = read_settings(given, "c").nodes
    assert (first.resources, first.gpus) == ({"gpu": 4}, ["gpu"] * 4)
    assert second.resources == {"gpu:3090": 2, "nvme": 900, "fpga": 1}
    assert second.gpus == ["gpu:3090"] * 2
    for wrong in ("gpu:a100:x:2", "gpu:a100:", ":4", "gpu:1,,"):
        with pytest.raises(
            InputError, match=r"^gres: .* is not a list such as gpu:a100:4,nvme:900"
        ):
            read_settings({"gres": wrong}, "c")


def test_cpu_lists() -> None:
    assert read_cpus("8, 0-2,1", "at") == (0, 1, 2, 8)


def test_clusters_on_one_machine_must_not_share_names() -> None:
    settings = {
        name: read_settings({"nodes": ["n[1-2]"]}, name, cpu_count=2) for name in ("alpha", "beta")
    }
    with pytest.raises(InputError) as caught:
        refuse_collisions(settings)
    assert str(caught.value) == ("beta.nodes: alpha has a node n1 too; set qualified = true")
    settings["beta"] = read_settings({"nodes": ["n[1-2]"], "qualified": True}, "beta")
    refuse_collisions(settings)
    assert [node.name for node in settings["beta"].nodes] == ["beta/n1", "beta/n2"]


def test_the_address_of_the_machine_is_for_ranks_elsewhere() -> None:
    assert read_settings({}, "c").address == "127.0.0.1"
    assert read_settings({"address": "head.example"}, "c").address == "head.example"
    for wrong in ("", "a b", "\n"):
        with pytest.raises(InputError, match=r"address: (is empty|.* is not a host name)"):
            read_settings({"address": wrong}, "c")
