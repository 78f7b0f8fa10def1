"""Resources of Snakemake's rules as fields of jobs; Snakemake itself is in tests/snakemake."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from coalloc.client.submission import submission

SOURCE = Path(__file__).parents[3] / "integrations" / "snakemake" / "src"


@pytest.fixture(scope="module")
def fields() -> ModuleType:
    path = SOURCE / "snakemake_executor_plugin_coalloc" / "fields.py"
    spec = importlib.util.spec_from_file_location("snakemake_fields", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("threads", "resources", "expected"),
    [
        pytest.param(1, {}, {"procs": 1}, id="nothing asked for"),
        pytest.param(
            1,
            {"runtime": 90, "mem_mb": 1000, "disk_mb": 5, "tmpdir": "/tmp"},
            {"procs": 1, "time_limit": 5400.0, "memory_mb_per_proc": 1000},
            id="minutes and memory",
        ),
        pytest.param(
            4,
            {"runtime": 2, "mem_mb": 1001, "gpu": 2, "gpu_model": "a100"},
            {
                "procs": 1,
                "time_limit": 120.0,
                "memory_mb_per_proc": 1001,
                "shape": {"cpus_per_proc": 4, "per_node": {"gpu:a100": 2}},
            },
            id="threads and GPUs are of one node",
        ),
        pytest.param(
            2,
            {"coalloc_base_time": "30", "mem_mb_per_cpu": 10, "coalloc_procs": 3, "gpu": "1"},
            {
                "procs": 3,
                "one_cluster": True,
                "base_time": 30.0,
                "memory_mb_per_proc": 20,
                "shape": {"cpus_per_proc": 2, "per_node": {"gpu": 1}},
            },
            id="processes stay on one cluster",
        ),
        pytest.param(
            2,
            {
                "coalloc_procs": 32,
                "coalloc_bandwidth": "75Mbps",
                "coalloc_clusters": "alpha, beta",
                "coalloc_constraint": "fast&ib",
                "coalloc_sigma": "0.7",
                "coalloc_weight": 3,
                "coalloc_base_time": 30,
            },
            {
                "procs": 32,
                "shape": {"cpus_per_proc": 2},
                "proc_gbps": 0.075,
                "clusters": ["alpha", "beta"],
                "features": ["fast", "ib"],
                "sigma": 0.7,
                "weight": 3.0,
                "base_time": 30.0,
            },
            id="ours",
        ),
    ],
)
def test_resources_become_fields(
    fields: ModuleType, threads: int, resources: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = fields.job_fields(threads, resources)
    assert found == expected
    submission(["true"], **found)


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"coalloc_bandwith": "1Gbps"}, "coalloc_bandwith: there is no such resource"),
        ({"coalloc_bandwidth": "fast"}, "coalloc_bandwidth: 'fast' is not a rate such as 75Mbps"),
        ({"coalloc_procs": 0}, "coalloc_procs: 0 is not a whole number of at least 1"),
        ({"coalloc_base_time": "nan"}, "coalloc_base_time: 'nan' is not above 0"),
        ({"coalloc_clusters": "a,,b"}, "coalloc_clusters: 'a,,b' is not a list of names"),
        ({"runtime": "soon"}, "runtime: 'soon' is not a number"),
        ({"mem_mb": -5}, "mem_mb: -5 is not above 0"),
    ],
)
def test_resources_that_mean_nothing_are_named(
    fields: ModuleType, resources: dict[str, Any], words: str
) -> None:
    with pytest.raises(fields.ResourceError) as caught:
        fields.job_fields(1, resources)
    assert words in str(caught.value)
