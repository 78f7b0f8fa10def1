"""Platforms that cannot be read: tables, lists of machines and SimGrid's XML say where and what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coalloc.adapters.formats import platforms
from coalloc.adapters.formats.platforms import Platform, parse_platform
from coalloc.model.errors import InputError

SIMGRID = (
    '<?xml version="1.0"?>\n<platform version="4.1">\n'
    '<zone id="z" routing="Full">\n{}\n</zone></platform>'
)
CLUSTER = '<cluster id="c" prefix="c-" suffix=".x" radical="{}" speed="{}" bw="{}" lat="{}"/>'


def parsed(text: str, name: str) -> Platform:
    return parse_platform(text.encode(), name, name)


def fault(text: str, name: str) -> str:
    with pytest.raises(InputError) as caught:
        parsed(text, name)
    return str(caught.value)


def table(**fields: Any) -> str:
    row = {"name": "a", "cpus": 4, **fields}
    return json.dumps({"clusters": [{k: v for k, v in row.items() if v is not None}]})


def simgrid(radical: str = "0-3", speed: str = "1Gf", bw: str = "1Gbps", lat: str = "1us") -> str:
    return SIMGRID.format(CLUSTER.format(radical, speed, bw, lat))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"cpus": "4"}, "clusters[0].cpus: '4' is not a whole number"),
        ({"cpus": True}, "clusters[0].cpus: true is not a whole number"),
        ({"cpus": 0}, "clusters[0].cpus: 0 is outside 1.."),
        ({"nodes": 5}, "clusters[0].nodes: 5 nodes have only 4 processors"),
        ({"nodes": -1}, "clusters[0].nodes: -1 is outside 1.."),
        ({"swf_partition": 0}, "clusters[0].swf_partition: 0 is outside 1.."),
        ({"name": "a b"}, "clusters[0].name: 'a b' is not the name of a cluster"),
        ({"name": 7}, "clusters[0].name: 7 is not the name of a cluster"),
        ({"name": None}, "clusters[0].name: '' is not the name of a cluster"),
    ],
)
def test_a_row_of_a_table(fields: dict[str, Any], what: str) -> None:
    assert fault(table(**fields), "t.json").startswith(f"t.json: {what}")


def test_rows_without_a_name_are_called_after_their_partition() -> None:
    platform = parsed(table(name=None, swf_partition=3, processor="Xeon 2.4 GHz"), "t.json")
    assert [c.name for c in platform.clusters] == ["c03"]
    assert dict(platform.partitions) == {3: "c03"}
    assert {(n.power, n.slots) for n in platform.clusters[0].nodes} == {(1.0, 1)}


def test_a_partition_has_a_name() -> None:
    text = 'clusters = [{name = "a", nodes = [{name = "n"}]}]\n[partitions]\n3 = 4'
    assert fault(text, "p.toml") == "p.toml: partitions.3: 4 is not a text"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0 a b 4 8 1", "line 1: has a field that is not a number"),
        ("; a comment\n# another\n\n0 a! 4 8 1", "line 4: 'a!' is not the name of a cluster"),
        ("0 a 0 8 1", "line 1: 0 is outside 1.."),
        ("0 a 4 x 1", "line 1: has a field that is not a number"),
        ("0 a 4 8 fast", "line 1: has a field that is not a number"),
        ("0 a 4 8 0", "a speed is not above 0"),
        ("0 a 4 8 1\n1 b 4 8 inf", "a speed is not above 0"),
        ("0 a 4 8 nan", "a speed is not above 0"),
        ("", "clusters: there is no node"),
    ],
)
def test_a_list_of_machines(text: str, what: str) -> None:
    assert fault(text, "m.machines").startswith(f"m.machines: {what}")


def test_machines_without_a_speed_are_alike() -> None:
    (cluster,) = parsed("0 a 2 8", "m.machines").clusters
    assert [(n.name, n.power, n.slots) for n in cluster.nodes] == [("an1", 1.0, 8), ("an2", 1.0, 8)]


@pytest.mark.parametrize(
    ("bw", "gbps"),
    [
        ("1Gbps", 1.0),
        ("125MBps", 1.0),
        ("1.25e8", 1.0),
        ("125000 kBps", 1.0),
        ("2Mibps", 2 * 2**20 / 1e9),
    ],
)
def test_bandwidths_of_simgrid(bw: str, gbps: float) -> None:
    (cluster,) = parsed(simgrid(bw=bw, lat="2ms"), "s.xml").clusters
    assert (cluster.link_gbps, cluster.intra_gbps) == pytest.approx((gbps, gbps))
    assert (cluster.link_latency_s, cluster.intra_latency_s) == (0.002, 0.002)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"radical": "0-"}, "line 4: radical '0-' is not a list of numbers"),
        ({"radical": "0-999999999"}, "line 4: radical '0-999999999' names more than"),
        ({"speed": "0f"}, "a speed is not above 0"),
        ({"speed": "1Gx"}, "line 4: '1Gx' is not in f"),
        ({"speed": "fast"}, "line 4: 'fast' is not a quantity"),
        ({"bw": "fast"}, "line 4: 'fast' is not a quantity"),
        ({"bw": "1Gx"}, "line 4: '1Gx' is not in Bps"),
        ({"bw": "1Xbps"}, "line 4: '1Xbps' is not in bps"),
        ({"lat": "1 week"}, "line 4: '1 week' is not a time"),
        ({"lat": "-1s"}, "line 4: '-1s' is not a quantity"),
    ],
)
def test_a_cluster_of_simgrid(changes: dict[str, str], what: str) -> None:
    assert fault(simgrid(**changes), "s.xml").startswith(f"s.xml: {what}")


def test_a_platform_of_simgrid_without_clusters_or_names() -> None:
    assert fault(SIMGRID.format(""), "s.xml") == "s.xml: there is no <cluster>"
    nameless = SIMGRID.format('<cluster radical="0-1"/>')
    assert fault(nameless, "s.xml") == "s.xml: line 4: a <cluster> has no id"
    cores = SIMGRID.format('<cluster id="c" radical="0" core="two"/>')
    assert fault(cores, "s.xml") == "s.xml: line 4: core 'two' is not a whole number"


def test_clusters_of_simgrid_are_as_strong_as_the_strongest_is_fast() -> None:
    body = CLUSTER.format("0,2-3", "2Gflops", "1Gbps", "1us") + (
        '<cluster id="d" radical="7" speed="0.5Gf" core="4"/>'
    )
    c, d = parsed(SIMGRID.format(body), "s.xml").clusters
    assert [(n.name, n.power) for n in c.nodes] == [("c-0.x", 1.0), ("c-2.x", 1.0), ("c-3.x", 1.0)]
    assert [(n.name, n.power, n.slots) for n in d.nodes] == [("7", 0.25, 4)]
    assert d.link_gbps == float("inf")


def test_a_file_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "LARGEST_FILE", 10)
    assert fault("a" * 11, "p.toml") == "p.toml: is larger than 10 bytes"
    assert "is no platform" in fault("a" * 10, "p.toml")


def test_a_document_that_is_nested_too_deeply() -> None:
    assert "is no platform" in fault('{"clusters": ' + "[" * 100_000, "p.json")
