"""The rules of the architecture applied to snippets: each can fail, and each can pass."""

from pathlib import Path

import pytest

from tests.unit.source_uses import read_uses
from tests.unit.test_architecture import (
    bare_faults,
    folder_faults,
    home_faults,
    integration_faults,
    layer_faults,
    purity_faults,
    standard_faults,
    within_faults,
)


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("model", "import coalloc.core.commands.queue"),
        ("model", "from coalloc import __version__"),
        ("core", "from coalloc import policies"),
        ("core", "from ..policies import checker"),  # relative, out of the package
        ("policies", "def f():\n    from coalloc.adapters import formats"),  # deferral is no excuse
        ("adapters", "from coalloc.daemon.store.sqlite import Store"),
        ("adapters", "from coalloc import Client"),  # loads the daemon
        ("adapters", "import importlib\nimportlib.import_module('coalloc.daemon')"),
        ("simulation", "from coalloc.adapters.local.adapter import Local"),
        ("simulation", "import coalloc\ncoalloc.daemon.main()"),  # reached, not imported
        ("cli", "from coalloc.simulation import replay"),
        ("cli", "if x:\n    import coalloc.simulation.replay"),
        ("daemon", "from coalloc.cli import arguments"),
        ("daemon", "from coalloc.executor.service import ExecutorService"),
        ("client", "from coalloc.policies.registry import POLICIES"),
        ("runtime", "from coalloc.policies.registry import POLICIES"),
    ],
)
def test_layer_rule_can_fail(package: str, source: str) -> None:
    assert list(layer_faults(package, read_uses(source, f"coalloc.{package}")))


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("model", "from coalloc.model.job import Job\nimport math"),
        ("core", "from . import queue\nfrom coalloc.model import job\nqueue.push()"),
        ("simulation", "from coalloc.adapters.formats import swf\nfrom coalloc import __version__"),
        ("cli", "def command():\n    from coalloc.simulation import replay\n    replay.run()"),
        (
            "cli",
            "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from coalloc.simulation import replay",
        ),
        ("adapters", "from coallocator import x"),  # a prefix, not a package
    ],
)
def test_layer_rule_can_pass(package: str, source: str) -> None:
    assert not list(layer_faults(package, read_uses(source, f"coalloc.{package}")))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("daemon/main.py", "import zmq.asyncio"),
        ("daemon/main.py", "from apscheduler.schedulers.asyncio import AsyncIOScheduler"),
        ("daemon/probe.py", "import psutil"),  # the right name in the wrong folder
        ("core/commands/queue.py", "import sqlite3"),
        ("policies/oas.py", "def f():\n    import pulp"),
        ("policies/oas.py", "from numba import njit"),
        ("adapters/slurm/adapter.py", "import subprocess"),
        ("adapters/slurm/adapter.py", "import os\nos.fork()"),
        ("adapters/slurm/adapter.py", "from os import system as run"),
        ("adapters/slurm/adapter.py", "import asyncio\nasyncio.create_subprocess_exec('squeue')"),
    ],
)
def test_home_rule_can_fail(path: str, source: str) -> None:
    assert list(home_faults(path, read_uses(source)))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("wire/server.py", "import zmq"),
        ("adapters/machine_load.py", "import psutil"),
        ("daemon/store/sqlite.py", "import sqlite3"),
        ("policies/kernel/profiles/profile.py", "from numba import njit"),
        ("adapters/fork_server.py", "import asyncio\nasyncio.create_subprocess_exec('squeue')"),
        ("adapters/slurm/adapter.py", "import os\nos.environ"),
    ],
)
def test_home_rule_can_pass(path: str, source: str) -> None:
    assert not list(home_faults(path, read_uses(source)))


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("adapters/runner/node.py", "import json\nfrom coalloc.adapters.runner import talk", False),
        (
            "adapters/slurm/part_commands.py",
            "from coalloc.adapters.slurm.commands import Slurm",
            False,
        ),
        ("adapters/slurm/reader.py", "from coalloc.model.errors import InputError", False),
        ("adapters/runner/node.py", "import msgspec", True),
        ("adapters/runner/node.py", "from coalloc.adapters.base import AdapterError", True),
        ("adapters/slurm/part_job.py", "from coalloc.model.errors import InputError", True),
    ],
)
def test_standard_rule(path: str, source: str, fault: bool) -> None:
    assert bool(list(standard_faults(path, read_uses(source)))) == fault


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("core", "import time"),
        ("core", "from datetime import datetime as D\nD.now()"),
        ("core", "import datetime\ndatetime.datetime.now(datetime.UTC)"),
        ("core", "import os.path"),
        ("core", "import numpy"),  # neither the standard library, msgspec nor the model
        ("core", "def f(p):\n    with open(p):\n        pass"),
        ("policies", "from time import monotonic"),
        ("policies", "import logging"),
        ("policies", "import numpy as np\nx = np.random.rand(3)"),
        ("policies", "from numpy import random\nrandom.seed(1)"),
        ("policies", "from numpy.random import default_rng\nrng = default_rng()"),  # no seed
    ],
)
def test_purity_rule_can_fail(package: str, source: str) -> None:
    assert list(purity_faults(package, read_uses(source, f"coalloc.{package}")))


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("core", "import dataclasses\nfrom datetime import timedelta\ntime = 1.0"),
        ("core", "def handle(event, time):\n    return event.time + time"),  # a name, no clock
        ("policies", "import numpy as np\nrng = np.random.default_rng(7)\nrng.random()"),
        ("policies", "import numpy as np\ndef f(rng: np.random.Generator) -> None: ..."),
        ("adapters", "import time\nimport random"),
    ],
)
def test_purity_rule_can_pass(package: str, source: str) -> None:
    assert not list(purity_faults(package, read_uses(source, f"coalloc.{package}")))


def test_bare_and_integration_rules_can_fail() -> None:
    assert list(bare_faults(read_uses("from model import job")))
    assert list(bare_faults(read_uses("def f():\n    import daemon.wire")))
    assert not list(bare_faults(read_uses("from coalloc import model\nfrom models import x")))
    assert list(integration_faults(read_uses("from coalloc.client.client import Client")))
    assert not list(integration_faults(read_uses("from coalloc import Client")))


def test_folder_rule_can_fail(tmp_path: Path) -> None:
    for name in ("data", "kernel/inner"):
        (tmp_path / name).mkdir(parents=True)
    for name in (".", "kernel"):
        (tmp_path / name / "__init__.py").touch()
    assert list(folder_faults(tmp_path)) == ["inner/ has no __init__.py"]


@pytest.mark.parametrize(
    ("path", "source", "faults"),
    [
        ("core/base/state.py", "from coalloc.core import queue", 1),
        ("core/base/state.py", "from coalloc.core.sharing.limits import held", 1),
        ("core/sharing/limits.py", "from coalloc.core.executor import machine", 1),
        ("core/sharing/limits.py", "from coalloc.core.base.state import State", 0),
        ("core/sharing/limits.py", "from coalloc.core.sharing import priority", 0),
        ("core/commands/queue.py", "from coalloc.core.sharing import limits", 0),
    ],
)
def test_sub_folders_do_not_reach_up(path: str, source: str, faults: int) -> None:
    package = "coalloc." + path.rpartition("/")[0].replace("/", ".")
    assert len(list(within_faults(path, read_uses(source, package)))) == faults
