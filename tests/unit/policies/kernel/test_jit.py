"""The names under which compiled functions are cached."""

import compileall
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coalloc.policies.kernel.jit import stamp
from tests.unit.test_architecture import ROOT

KERNEL = ROOT / "policies" / "kernel"
HOME = "coalloc.policies.kernel"
TEXTS = {
    ".".join(path.relative_to(KERNEL).with_suffix("").parts): path.read_text()
    for path in sorted(KERNEL.rglob("*.py"))
}
MODULES = [name for name, text in TEXTS.items() if "@kernel" in text or "@helper" in text]


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose packages can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write(package: Path, **modules: str) -> None:
    for name, text in {"__init__": "", **modules}.items():
        path = package / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("HOME", package.name))


def copied(package: Path, old: str = "", new: str = "") -> dict[str, str]:
    """Stamps of a copy of all kernels, with a text of `state.py` replaced."""
    modules = dict(TEXTS)
    assert old in modules["state"]
    modules["state"] = modules["state"].replace(old, new)
    write(package, **{name: text.replace(HOME, "HOME") for name, text in modules.items()})
    return {name: stamp(f"{package.name}.{name}") for name in MODULES}


def test_no_cache_lies_below_the_working_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    from coalloc.policies.kernel import jit

    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    jit._settle_cache()
    assert "XDG_CACHE_HOME" not in os.environ
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # no account, no home
    jit._settle_cache()
    assert os.environ["XDG_CACHE_HOME"] == os.devnull


def test_a_constant_recompiles_what_depends_on_it(packages: Path) -> None:
    # packages of names of one length, and no more: their own names are in the texts
    before = copied(packages / "one")
    sys.modules.pop("one")
    (packages / "one").rename(packages / "gone")
    from coalloc.policies.kernel import jit

    jit._imports.cache_clear()
    jit._content.cache_clear()
    after = copied(packages / "one", "TOL = 1e-9", "TOL = 2e-9")
    same = {name.rpartition(".")[2] for name in MODULES if before[name] == after[name]}
    assert same >= {"pricing", "bins", "cpa"}
    changed = {name.rpartition(".")[2] for name in MODULES} - same
    assert changed >= {"decoders", "seek", "listing", "stream", "earliest_finish", "serial_sgs"}


PLAIN = {"top": "from HOME.middle import x", "middle": "from HOME import low", "low": "y = 1"}


@pytest.mark.parametrize("kept", ["source", "byte code"])
def test_imports_are_followed(packages: Path, kept: str) -> None:
    # by "from package import module" and through another module; HOME2 has the same names
    for name, low in (("first", "y = 1"), ("third", "y = 2")):
        write(packages / name, **{**PLAIN, "low": low, "aside": "z = 3"})
    if kept == "byte code":
        assert compileall.compile_dir(packages, quiet=2, legacy=True, ddir="")
        for path in packages.rglob("*.py"):
            path.unlink()
    assert stamp("first.low") != stamp("third.low")
    assert stamp("first.top") != stamp("third.top")
    assert kept == "byte code" or stamp("first.aside") == stamp("third.aside")


def test_imports_from_folders_of_the_package_are_followed(packages: Path) -> None:
    from coalloc.policies.kernel import jit

    text = "from HOME.inner.low import y"
    write(packages / "fifth", **{"outer.top": text, "inner.low": "y = 1", "inner.aside": ""})
    before = stamp("fifth.outer.top"), stamp("fifth.inner.aside")
    (packages / "fifth" / "inner" / "low.py").write_text("y = 2")
    jit._content.cache_clear()
    after = stamp("fifth.outer.top"), stamp("fifth.inner.aside")
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_compiled_modules_depend_on_each_other_only() -> None:
    # what else they read could change without their names
    for name in MODULES:
        for line in TEXTS[name].splitlines():
            if line.startswith(("from coalloc", "import coalloc")):
                assert line.startswith(f"from {HOME}."), f"{name}: {line}"


TEMPLATE = """
def step(x):
    raise NotImplementedError

def twice(x):
    return step(step(x))
"""
PART = """
from HOME.{low} import by, once
from HOME.template import twice as template
from coalloc.policies.kernel.jit import helper, specialized

@helper()
def step(x):
    return once(x) {sign} by

twice = specialized(template, __name__, step=step)
"""
CALL = """
from sixth import adding, doubling
for twice in (adding.twice, doubling.twice):
    result = twice(3)
    print(result, twice.stats.cache_hits.total(), twice.stats.cache_misses.total())
"""


LOW = """
from coalloc.policies.kernel.jit import helper

by = {by}

@helper()
def once(x):
    return {formula}
"""


def test_functions_of_other_files_are_compiled_anew_where_these_change(packages: Path) -> None:
    write(
        packages / "sixth",
        template=TEMPLATE,
        adding=PART.format(low="one", sign="+"),
        doubling=PART.format(low="two", sign="*"),
        one=LOW.format(by=1, formula="x"),
        two=LOW.format(by=2, formula="x"),
    )
    paths = [str(packages), *sys.path]
    around = {"PYTHONPATH": os.pathsep.join(paths), "NUMBA_CACHE_DIR": str(packages / "cache")}

    def called() -> list[str]:
        """Of each template its result, and what came from the cache, and what did not."""
        command = [sys.executable, "-c", CALL]
        done = subprocess.run(
            command, env={**os.environ, **around}, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    assert called() == ["5 0 1", "12 0 1"]
    assert called() == ["5 1 0", "12 1 0"]
    changed = packages / "sixth" / "two.py"
    changed.write_text(LOW.format(by=3, formula="x"))
    assert called() == ["5 1 0", "27 0 1"]
    changed.write_text(LOW.format(by=3, formula="x + 1"))
    assert called() == ["5 1 0", "39 0 1"]
