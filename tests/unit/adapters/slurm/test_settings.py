"""What a site may say of a Slurm cluster, and how it is told what it may not."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.adapters.registry import adapter_kind
from coalloc.adapters.slurm.settings import SlurmSettings, read_settings
from coalloc.model.errors import InputError


def test_defaults() -> None:
    settings = read_settings({}, "alpha")
    assert settings == SlurmSettings(cluster="alpha")
    assert not settings.hands_over


def test_node_sets_are_expanded() -> None:
    settings = read_settings(
        {"nodes": "a[1-3]", "power_by_node": {"a[1-2]": 0.5, "b": 0.25}, "partitions": ["x", "y"]},
        "alpha",
    )
    assert settings.only == frozenset({"a1", "a2", "a3"})
    assert settings.power_by_node == {"a1": 0.5, "a2": 0.5, "b": 0.25}
    assert settings.partition == "x"


def test_names_are_published_and_stripped() -> None:
    plain, qualified = (read_settings({"qualified": given}, "alpha") for given in (False, True))
    assert plain.published("n1") == plain.plain("n1") == "n1"
    assert qualified.published("n1") == "alpha/n1"
    assert qualified.plain("alpha/n1") == "n1"


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"slot": 1}, "settings.slot: unknown key; did you mean slots?"),
        ({"slots": 4}, "settings.slots: 4 is not one of cpus, node"),
        ({"ssh": "-oProxyCommand=x"}, "settings.ssh: '-oProxyCommand=x' is not a login"),
        # what only an operator of the cluster may do, or what ends with the connection
        ({"ssh": "ada@a", "max_share": 0.5}, "settings.max_share: needs an operator of Slurm's"),
        ({"route": "files"}, "settings.route: 'files' is for clusters with ssh"),
        ({"ssh": "a", "route": "head"}, "settings.route: 'head' needs the address of this machine"),
        ({"ssh": "a", "route": "login", "address": "x"}, "settings.route: 'login' goes without an"),
        ({"ssh": "ada@a", "start": "salloc"}, "settings.start: a claim of salloc's ends with"),
        (
            {"ssh": "ada@a", "handover_comment": "x"},
            "settings.handover_comment: needs an operator of Slurm's: not with ssh",
        ),
        # the field that names the cluster is no key
        ({"cluster": "a"}, "settings.cluster: unknown key"),
        ({"partitions": [""]}, "settings.partitions[0]: is empty"),
        ({"handover_wait_s": 0.5}, "settings.handover_wait_s: 0.5 is outside 1..1e+09"),
        ({"slots": "cores"}, "settings.slots: 'cores' is not one of cpus, node"),
        ({"conf": "slurm.conf"}, "settings.conf: 'slurm.conf' is not an absolute path"),
        ({"power": 0}, "settings.power: 0 is outside above 0..1"),
        ({"power_by_feature": {"x": 2}}, "settings.power_by_feature.x: 2 is outside above 0..1"),
        ({"power_by_node": {"a[1-": 1}}, "settings.power_by_node.a[1-: 'a[1-' is not a node set"),
        (
            {"power_by_node": {"a[1-2]": 1, "a2": 1}},
            "settings.power_by_node.a2: node 'a2' is named twice",
        ),
        ({"nodes": "a[]"}, "settings.nodes: 'a[]' is not a node set"),
        ({"load": "probe"}, "settings.load: 'probe' is not one of auto, none, slurm"),
        # what would be taken for an option, or for two arguments
        ({"partition": "--uid=0"}, "settings.partition: '--uid=0' is not a name in Slurm"),
        ({"partitions": ["a,b"]}, "settings.partitions[0]: 'a,b' is not a name in Slurm"),
        ({"account": "x y"}, "settings.account: 'x y' is not a name in Slurm"),
        (
            {"handover_partition": "coalloc"},
            "settings.handover_partition: needs a partition in which to run its jobs",
        ),
        (
            {"handover_partition": "main", "partitions": ["main"]},
            "settings.handover_partition: 'main' is where parts run",
        ),
        ([], "settings: [] is not a table"),
    ],
)
def test_what_is_refused(value: Any, what: str) -> None:
    with pytest.raises(InputError) as caught:
        read_settings(value, "alpha", "settings")
    assert str(caught.value).startswith(what)


def test_the_registry_has_it() -> None:
    kind = adapter_kind("slurm")
    assert kind.check({"partitions": ["main"]}, "alpha", "settings") == read_settings(
        {"partitions": ["main"]}, "alpha"
    )
