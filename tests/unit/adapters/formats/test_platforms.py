"""Reading platforms."""

import json
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from coalloc.adapters.formats.platforms import Platform, parse_platform, read_platform, spread
from coalloc.model.errors import InputError
from coalloc.model.formats.snapshot_json import write_cluster

ROOT = Path(__file__).resolve().parents[4]
TOML = """
name = "two"
[partitions]
3 = "beta"
[[clusters]]
name = "alpha"
link_gbps = 0.5
[[clusters.nodes]]
name = "a[1-3]"
power = 0.5
slots = 2
[[clusters]]
name = "beta"
nodes = [{name = "b1"}]
"""


def parsed(text: str, name: str = "p.toml") -> Platform:
    return parse_platform(text.encode(), name, name)


def test_toml_holds_the_snapshots_cluster_objects() -> None:
    platform = parsed(TOML)
    assert (platform.name, platform.slots, dict(platform.partitions)) == ("two", 7, {3: "beta"})
    alpha, beta = platform.clusters
    assert [(n.name, n.power, n.slots) for n in alpha.nodes] == [
        ("a1", 0.5, 2),
        ("a2", 0.5, 2),
        ("a3", 0.5, 2),
    ]
    assert (alpha.link_gbps, beta.link_gbps) == (0.5, inf)


def test_json_and_snapshots_read_the_same() -> None:
    clusters = [write_cluster(cluster) for cluster in parsed(TOML).clusters]
    plain = parsed(json.dumps({"clusters": clusters}), "p.json")
    snapshot = {"format": "coalloc-snapshot/1", "clusters": clusters, "queue": [{"id": "x"}]}
    assert plain.clusters == parsed(TOML).clusters == parsed(json.dumps(snapshot)).clusters
    assert plain.name == "p"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("clusters = 3", "clusters: 3 is not a list"),
        ("", "clusters: is missing"),
        ("nodes = 1", "nodes: unknown key"),
        ("a = [", "is no platform"),
        ("{", "is no platform"),
        ('[[clusters]]\nname = "a"\nnodes = []', "clusters: there is no node"),
        ('[[clusters]]\nname = "a"', "clusters[0].nodes: is missing"),
        (
            '[[clusters]]\nname = "a"\nnodes = [{name = "n", power = 2}]',
            "clusters[0].nodes[0].power: 2 is ",
        ),
        (
            '[[clusters]]\nname = "a"\nnodes = [{name = "n", slotz = 2}]',
            "clusters[0].nodes[0].slotz: unknown key",
        ),
        (f"{TOML}\n[partitionz]", "partitionz: unknown key"),
        (TOML.replace('3 = "beta"', '3 = "gamma"'), "partitions.3: there is no cluster 'gamma'"),
        (TOML.replace("3 =", "three ="), "partitions.three: is not the number of a partition"),
        ("\x00", "is no platform"),
    ],
)
def test_errors_say_where_and_what(text: str, fault: str) -> None:
    with pytest.raises(InputError) as caught:
        parsed(text)
    assert str(caught.value).startswith(f"p.toml: {fault}")


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(InputError, match="p: is not UTF-8 at byte 1"):
        parse_platform(b"a\xff", "p", "p")
    with pytest.raises(InputError, match="No such file"):
        read_platform("/nowhere/p.toml")


@pytest.mark.parametrize(
    ("cpus", "nodes", "groups"),
    [(8, 8, [(8, 1)]), (148, 36, [(32, 4), (4, 5)]), (80, 5, [(5, 16)]), (3, 2, [(1, 1), (1, 2)])],
)
def test_processors_are_spread_evenly(cpus: int, nodes: int, groups: list[tuple[int, int]]) -> None:
    assert spread(cpus, nodes) == groups


def test_machines_lists() -> None:
    platform = parsed("0 zewura 20 80 1 529426432\n1\tzegox\t48\t12\t0.5\t9\n", "w.machines")
    assert [(c.name, len(c.nodes), c.slots, c.nodes[0].power) for c in platform.clusters] == [
        ("zewura", 20, 1600, 1.0),
        ("zegox", 48, 576, 0.5),
    ]
    with pytest.raises(InputError, match=r"w\.machines: line 1: has 2 fields"):
        parsed("0 zewura", "w.machines")


def test_the_sidecar_of_metacentrum(shared_file: Callable[[str], Path]) -> None:
    platform = read_platform(shared_file("data/swf/METACENTRUM-2009-2.clusters.json"))
    assert platform.slots == 806
    assert [c.slots for c in platform.clusters] == [
        *(8, 16, 10, 80, 32, 64, 148, 70, 20, 6, 92, 152, 64, 44)
    ]
    powers = [c.nodes[0].power for c in platform.clusters]
    assert powers[0] == pytest.approx(1.5 / 3.2, abs=1e-4)
    assert max(powers) == powers[2] == 1.0


def test_our_metacentrum_is_the_sidecar(shared_file: Callable[[str], Path]) -> None:
    ours = read_platform(ROOT / "etc/platforms/metacentrum-14.toml")
    theirs = read_platform(shared_file("data/swf/METACENTRUM-2009-2.clusters.json"))
    for mine, other in zip(ours.clusters, theirs.clusters, strict=True):
        assert [(n.power, n.slots) for n in mine.nodes] == [(n.power, n.slots) for n in other.nodes]
        assert mine.link_gbps == 1.0
    assert [ours.partitions[k] for k in range(1, 15)] == [c.name for c in ours.clusters]


def test_our_other_platforms() -> None:
    kth = read_platform(ROOT / "etc/platforms/kth-sp2.toml")
    assert [(len(c.nodes), c.slots) for c in kth.clusters] == [(100, 100)]
    das2 = read_platform(ROOT / "etc/platforms/das2.toml")
    assert [(c.name, c.slots) for c in das2.clusters] == [
        *(("fs0", 144), ("fs1", 64), ("fs2", 64), ("fs3", 64), ("fs4", 64))
    ]


def test_das3() -> None:
    das3 = read_platform(ROOT / "etc/platforms/das3.toml")
    assert [(c.name, c.slots, c.nodes[0].power) for c in das3.clusters] == [
        *(("vu", 85, 0.923), ("lu", 32, 1.0), ("uva", 41, 0.846), ("tud", 68, 0.923)),
        ("mn", 46, 0.923),
    ]
    assert das3.slots == 272
    assert {(c.link_gbps, c.intra_gbps) for c in das3.clusters} == {(0.8, 8.0)}


def test_the_table_of_das2(shared_file: Callable[[str], Path]) -> None:
    platform = read_platform(shared_file("data/platforms/das2_clusters.json"))
    assert [c.slots for c in platform.clusters] == [144, 64, 64, 64, 64]


@pytest.mark.parametrize(
    ("name", "clusters", "slots"),
    [
        ("simgrid/cluster_backbone.xml", 1, 100),
        ("simgrid/cluster_multi.xml", 3, 8 + 16 + 32),  # several cores
        ("simgrid/griffon.xml", 3, 92),  # a radical with ranges and single numbers
        ("simgrid/data_center.xml", 3, 120),  # several speeds
        ("simgrid/g5k.xml", 40, 1528),
        ("batsim/graphene.xml", 4, 144),  # speed in flops
    ],
)
def test_simgrid(shared_file: Callable[[str], Path], name: str, clusters: int, slots: int) -> None:
    platform = read_platform(shared_file(f"data/platforms/{name}"))
    assert (len(platform.clusters), platform.slots) == (clusters, slots)


def test_simgrid_units(shared_file: Callable[[str], Path]) -> None:
    (cluster,) = read_platform(shared_file("data/platforms/simgrid/cluster_backbone.xml")).clusters
    assert cluster.link_gbps == pytest.approx(18.0)  # 2.25 GBps
    assert cluster.intra_gbps == pytest.approx(1.0)  # 125 MBps
    assert cluster.link_latency_s == pytest.approx(500e-6)
    assert cluster.nodes[0].name == "node-0.simgrid.org"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("batsim/properties_example.xml", "is no XML: XML or text declaration not at start"),
        ("simgrid/small_platform.xml", "there is no <cluster>"),
    ],
)
def test_xml_that_is_refused(shared_file: Callable[[str], Path], name: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        read_platform(shared_file(f"data/platforms/{name}"))


def test_xml_entities_are_refused() -> None:
    bomb = (
        '<!DOCTYPE p [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'
        '<p><cluster id="&b;" radical="0-1"/></p>'
    )
    with pytest.raises(InputError, match="XML entities are refused"):
        parsed(bomb, "p.xml")


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ('radical="0-1"', "has no id"),
        ('id="a" radical="0-999999999"', "names more than"),
        ('id="a" radical="x"', "is not a list of numbers"),
        ('id="a" radical="0-1" speed="1Zf"', "is not in f"),
        ('id="a" radical="0-1" speed="0f"', "a speed is not above 0"),
        ('id="a" radical="0-1" bw="fast"', "is not a quantity"),
        ('id="a" radical="0-1" lat="1parsec"', "is not a time"),
        ('id="a" radical="0-1" core="two"', "is not a whole number"),
    ],
)
def test_bad_simgrid_clusters(row: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        parsed(f"<platform>\n<cluster {row}/></platform>", "p.xml")
