"""Where only the client is installed, its commands run, and the others say what to add."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import coalloc
from coalloc.cli.main import GROUPS
from coalloc.programs import SERVER

ROOT = Path(__file__).resolve().parents[2]
BLOCKED = """\
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
SIMULATE = [
    *("simulate", "--quiet", "--policy", "fcfs"),
    *("--workload", str(ROOT / "etc" / "workloads" / "sixteen-hours.swf")),
    *("--platform", str(ROOT / "etc" / "platforms" / "das2.toml")),
]
TOLD = "this needs the server"


def without_server(code: str) -> subprocess.CompletedProcess[str]:
    """Run code where nothing of the server can be imported."""
    text = BLOCKED.format(names=sorted(SERVER)) + code
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)


def test_the_library_and_every_command_of_users_load() -> None:
    users = [name for title, names in GROUPS if title != "without a daemon" for name in names]
    done = without_server(
        "import coalloc\n"
        "coalloc.Client, coalloc.Executor\n"
        "from coalloc.cli import main\n"
        f"for name in {users}: assert main.main([name, '--help']) == 0, name\n"
        "assert main.main(['queue', '--endpoint', 'ipc:///nowhere', '--timeout', '0.01']) == 1\n"
    )
    assert done.returncode == 0, done.stderr
    assert TOLD not in done.stderr
    assert "no daemon listens" in done.stderr


def test_planning_without_the_server_says_what_to_install() -> None:
    done = without_server("import coalloc\ncoalloc.solve")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: coalloc.solve: this needs the server (")
    assert "pip install '.[server]'" in last


def test_the_version_alone_loads_no_library() -> None:
    done = without_server(
        "from coalloc.programs import command\n"
        "before = set(sys.modules)\n"
        "sys.argv[1:] = ['--version']\n"
        "assert command() == 0\n"
        "assert set(sys.modules) == before, set(sys.modules) - before\n"
    )
    assert (done.returncode, done.stdout) == (0, f"coalloc {coalloc.__version__}\n"), done.stderr


@pytest.mark.parametrize(
    "call",
    [
        "from coalloc.programs import daemon; sys.argv[1:] = ['--version']; sys.exit(daemon())",
        "from coalloc.programs import executor; sys.argv[1:] = ['--help']; sys.exit(executor())",
        f"from coalloc.cli import main; sys.exit(main.main({SIMULATE}))",
        "from coalloc.cli import main; sys.exit(main.main(['demo']))",
    ],
    ids=["coallocd", "coalloc-executor", "simulate", "demo"],
)
def test_what_needs_the_server_says_so_in_one_line(call: str) -> None:
    done = without_server(call)
    assert done.returncode == 1
    assert TOLD in done.stderr
    assert "pip install '.[server]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_nothing_is_installed_by_a_name_that_is_not_ours() -> None:
    """The package index has no coalloc of ours: whoever takes the name would be installed."""
    by_name = re.compile(r"pip install [^\n#]*(?<![\w./-])(?<!of )coalloc(?![\w./-])")
    texts = [path for kind in ("md", "py", "toml") for path in ROOT.glob(f"[!.]*/**/*.{kind}")]
    told = [path for path in (*ROOT.glob("*.md"), *texts) if path.is_file()]
    assert len(told) > 500
    for path in told:
        if path.name != "before-0.1.0.md":  # the history of what was once printed
            assert not by_name.search(path.read_text(encoding="utf-8")), path


def test_the_extra_installs_what_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    server = {line.partition(">")[0] for line in project["optional-dependencies"]["server"]}
    named = {"markdown_it": "markdown_it_py"}
    assert server == {named.get(name, name).replace("_", "-") for name in SERVER}
