"""Who may import whom, and which third party lives where.

The tables below are the rules; edit them where a module with a good reason is added. Patterns are
those of `fnmatch` on the path from the project's root, so ``*`` crosses folders.
"""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.unit.source_uses import Use, read_uses

ROOT = Path(__file__).resolve().parents[2]
LINKS = ROOT / "src" / "coalloc"
PACKAGES = tuple(sorted(path.name for path in LINKS.iterdir() if path.is_symlink()))
# What else is read for bare imports.
OTHERS = ("tests", "benchmarks", "integrations", "examples", "docs", "tools")

# Which parts of coalloc a package may import besides itself. "coalloc" stands for the names of
# src/coalloc/__init__.py that need no package, such as __version__.
MAY_IMPORT = {
    "model": (),
    "core": ("coalloc.model",),
    "policies": ("coalloc.model",),
    "adapters": ("coalloc.model",),
    "wire": ("coalloc.model", "coalloc.core.base"),
    "runtime": ("coalloc", "coalloc.model", "coalloc.wire", "coalloc.adapters.runner.durable"),
    "client": (
        *("coalloc", "coalloc.model", "coalloc.core.base", "coalloc.adapters.formats"),
        *("coalloc.wire", "coalloc.runtime"),
    ),
    "executor": (
        *("coalloc", "coalloc.model", "coalloc.core", "coalloc.adapters"),
        *("coalloc.wire", "coalloc.runtime"),
    ),
    "daemon": (
        *("coalloc", "coalloc.model", "coalloc.core", "coalloc.policies", "coalloc.adapters"),
        *("coalloc.wire", "coalloc.runtime"),
    ),
    "dashboard": (
        *("coalloc", "coalloc.model", "coalloc.wire", "coalloc.runtime", "coalloc.client"),
    ),
    "simulation": (
        *("coalloc", "coalloc.model", "coalloc.core", "coalloc.policies"),
        "coalloc.adapters.formats",
    ),
    "cli": (
        *("coalloc", "coalloc.model", "coalloc.core", "coalloc.policies", "coalloc.adapters"),
        *("coalloc.wire", "coalloc.runtime", "coalloc.client", "coalloc.simulation"),
        # what works on the files of a daemon, or is one: backup, restore, demo; what judges its
        # configuration: doctor
        *("coalloc.daemon.store.beside", "coalloc.daemon.config_checks"),
        "coalloc.dashboard",
    ),
}
# The rooms of the core from the top: each imports only those after it.
CORE_ROOMS = (
    *("rounds", "clusters", "starts", "commands"),
    *("sharing", "jobs", "learning", "base"),
)
# Sub-folders that import nothing of their package but themselves and what is named.
WITHIN = {
    **{
        f"model/{room}": tuple(f"coalloc.model.{name}" for name in names)
        for room, names in {
            "formats": (
                *("errors", "jobs", "plan", "platform", "ranges", "shape", "snapshot", "speedup"),
                "values",
            ),
            "sites": ("errors", "platform", "ranges", "shape", "snapshot", "values"),
        }.items()
    },
    "core/executor": ("coalloc.core.base",),
    **{
        f"core/{room}": tuple(f"coalloc.core.{below}" for below in CORE_ROOMS[n + 1 :])
        for n, room in enumerate(CORE_ROOMS)
    },
    **{
        f"policies/kernel/{folder}": tuple(f"coalloc.policies.{name}" for name in names)
        for folder, names in {
            "instance": (
                *("array_types", "base", "holds", "latest", "kernel.profiles.decoders"),
                *("kernel.jit", "kernel.record", "kernel.state"),
            ),
            "profiles": (
                "kernel.heap",
                "kernel.jit",
                "kernel.loads",
                "kernel.record",
                "kernel.state",
            ),
            "search": (
                *(
                    "array_types",
                    "kernel.annealing_loop",
                    "kernel.instance",
                    "kernel.jit",
                    "kernel.loads",
                ),
                *("kernel.record", "kernel.state", "kernel.xorshift"),
            ),
            "pool": (
                *("kernel.annealing_loop", "kernel.jit", "kernel.record"),
                "kernel.xorshift",
            ),
        }.items()
    },
}
# Modules that import the standard library only, what is below and their own folder: they are
# sent to nodes, or run in a process that stays small.
STANDARD = (
    "adapters/runner/*",
    *("adapters/*/part_*.py", "adapters/*/commands.py"),
    "adapters/gridengine/parse_xml.py",
    "adapters/ssh/*",
)
STANDARD_HOMES = ("coalloc.adapters.runner", "coalloc.adapters.ssh")
# Names that src/coalloc/__init__.py loads lazily, and the package they load.
LAZY = {
    "coalloc.AsyncClient": "coalloc.client",
    "coalloc.Client": "coalloc.client",
    "coalloc.Executor": "coalloc.client",
    **dict.fromkeys(
        ("coalloc.check", "coalloc.read_snapshot", "coalloc.solve"), "coalloc.policies"
    ),
}
# (importer, imported): only inside functions, so that most commands never load it.
DEFERRED = {
    ("cli", "coalloc.simulation"),
    ("cli", "coalloc.daemon.store.beside"),
    ("cli", "coalloc.dashboard"),
}

PROCESSES = (
    "adapters/fork_server.py",
    "adapters/runner/fork_server.py",
    "adapters/runner/spawned.py",
    "adapters/runner/rank.py",
    "adapters/runner/runner.py",
    "adapters/runner/command.py",
    "adapters/runner/sweep.py",
    *("adapters/ssh/agent.py", "adapters/ssh/link.py", "adapters/ssh/master.py"),
    "adapters/ssh/shell.py",
    "adapters/sweeper.py",
    # loads policies of other packages to check their options
    "daemon/foreign_options.py",
    # runs an operator's command, and sendmail, in a thread of its own
    "daemon/monitoring/notify.py",
    "daemon/solver/pool.py",
    "daemon/solver/worker.py",
    "daemon/solver/warming.py",
    "cli/demo.py",
    "cli/connect/connections.py",
    # asks git for the commit of a run
    "simulation/made_by.py",
    # replays in processes of its own
)
# Modules under policies/ that own a mixed-integer program.
MIPS: tuple[str, ...] = (
    "policies/mip/*",
    "policies/allocation/program.py",
    "policies/published/slot_model.py",
)
HOMES: dict[str, tuple[str, ...]] = {
    "zmq": ("wire/*",),
    "starlette": ("dashboard/*",),
    "uvicorn": ("dashboard/server.py", "dashboard/connections.py"),
    "nacl": ("wire/key_proof.py",),
    "apscheduler": ("daemon/timer.py",),
    "psutil": (
        "adapters/machine_load.py",
        "daemon/solver/warming.py",
        "daemon/store/disk.py",
    ),
    "sqlite3": ("daemon/store/*",),
    "pulp": MIPS,
    "numba": ("policies/kernel/*",),
    "highspy": ("policies/mip/*", "policies/bounds/lp.py"),
    "textual": ("cli/top/app.py",),
    "matplotlib": ("simulation/reproduce/plots.py",),
    "markdown_it": ("simulation/report/experiments.py",),
    "xml.parsers.expat": ("adapters/formats/safe_xml.py",),
    "yaml": ("adapters/formats/yaml_events.py",),
    "subprocess": PROCESSES,
    "multiprocessing": PROCESSES,
    "concurrent.futures.ProcessPoolExecutor": PROCESSES,
    "asyncio.create_subprocess_exec": PROCESSES,
    "asyncio.create_subprocess_shell": PROCESSES,
    # In Python 3.11 it swallows a cancellation that meets the end of what it waits for. Older ones,
    # on which the agent runs, have nothing else, and nothing is cancelled there.
    "asyncio.wait_for": ("adapters/ssh/agent.py",),
    "os.fork": PROCESSES,
    "os.forkpty": PROCESSES,
    "os.popen": PROCESSES,
    "os.posix_spawn": PROCESSES,
    "os.posix_spawnp": PROCESSES,
    "os.system": PROCESSES,
    "pty": PROCESSES,
}

CLOCKS = (
    "time",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
)
# Neither imported nor used: the core does no I/O, a policy is a pure function.
BANNED = {
    "core": (
        *CLOCKS,
        *("random", "secrets", "uuid", "os", "socket", "select", "selectors", "signal"),
        *("threading", "asyncio", "logging", "tempfile", "shutil", "open()", "print()", "input()"),
    ),
    "policies": (
        *CLOCKS,
        *("logging", "structlog", "random", "secrets", "socket", "asyncio"),
        *("open()", "print()", "input()", "numpy.random.default_rng()"),
    ),
}
# Of numpy.random, policies use what carries its own state.
SEEDED = ("BitGenerator", "Generator", "PCG64", "Philox", "SeedSequence", "default_rng")


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def imported_part(name: str) -> str | None:
    """Return the part of coalloc that a dotted name imports; None if it is not of coalloc."""
    name = LAZY.get(name, name)
    if not within(name, "coalloc"):
        return None
    parts = name.split(".")
    return name if len(parts) > 1 and parts[1] in PACKAGES else "coalloc"


def layer_faults(package: str, uses: list[Use]) -> Iterator[str]:
    """Yield the imports that cross the layers in the wrong direction."""
    for use in uses:
        part = imported_part(use.name)
        if part is None or within(part, f"coalloc.{package}"):
            continue
        # The bare name is exact: everything lies within "coalloc".
        allowed = [
            home
            for home in MAY_IMPORT[package]
            if (part == home if home == "coalloc" else within(part, home))
        ]
        if not allowed:
            yield f"{use.line}: {package} may not import {use.name}"
        elif (package, allowed[0]) in DEFERRED and use.imported and not use.deferred:
            yield f"{use.line}: {package} may import {use.name} only inside functions"


def within_faults(path: str, uses: list[Use]) -> Iterator[str]:
    """Yield the imports by which a sub-folder reaches up into its package, or across."""
    folder = path.rpartition("/")[0]
    if folder not in WITHIN:
        return
    package = "coalloc." + folder.partition("/")[0]
    allowed = ("coalloc." + folder.replace("/", "."), *WITHIN[folder])
    for use in uses:
        ours = use.imported and within(use.name, package)
        if ours and not any(within(use.name, home) for home in allowed):
            yield f"{use.line}: {folder} may not import {use.name}"


def home_faults(path: str, uses: list[Use]) -> Iterator[str]:
    """Yield the uses of a third party, or of process creation, outside its home."""
    for use in uses:
        for name, homes in HOMES.items():
            if within(use.name, name) and not any(fnmatchcase(path, home) for home in homes):
                yield f"{use.line}: {use.name} belongs in {' '.join(homes) or 'no module'}"


def standard_faults(path: str, uses: list[Use]) -> Iterator[str]:
    """Yield what a module imports that has to do with the standard library and its own folder."""
    if not any(fnmatchcase(path, pattern) for pattern in STANDARD):
        return
    own = "coalloc." + path.rpartition("/")[0].replace("/", ".")
    for use in uses:
        if not use.imported or use.name.partition(".")[0] in sys.stdlib_module_names:
            continue
        if not any(within(use.name, home) for home in (own, *STANDARD_HOMES)):
            yield f"{use.line}: {use.name} is neither standard library nor {STANDARD_HOMES}"


def purity_faults(package: str, uses: list[Use]) -> Iterator[str]:
    """Yield what a pure package may not use, and what is outside the core's libraries."""
    for use in uses:
        if any(within(use.name, banned) for banned in BANNED.get(package, ())):
            yield f"{use.line}: {package} may not use {use.name}"
        if package == "policies" and within(use.name, "numpy.random"):
            member = use.name.removesuffix("()").split(".")[2:3]
            if member and member[0] not in SEEDED:
                yield f"{use.line}: {use.name} has a global state; use a seeded Generator"
        if package == "core" and use.imported:
            top = use.name.partition(".")[0]
            if top not in {"coalloc", "msgspec"} and top not in sys.stdlib_module_names:
                only = "beside the standard library, core imports msgspec only"
                yield f"{use.line}: {only}, not {use.name}"


def bare_faults(uses: list[Use]) -> Iterator[str]:
    """Yield imports of the bare folders."""
    for use in uses:
        if use.imported and use.name.partition(".")[0] in PACKAGES:
            yield f"{use.line}: import coalloc.{use.name}, not the bare folder"


def integration_faults(uses: list[Use]) -> Iterator[str]:
    """Yield what integrations import beyond the two public names."""
    for use in uses:
        if use.imported and within(use.name, "coalloc") and use.name not in {"coalloc", *LAZY}:
            yield f"{use.line}: integrations import only {' '.join(LAZY)}, not {use.name}"


def folder_faults(folder: Path) -> Iterator[str]:
    """Yield sub-folders that setuptools would leave out; ``data`` is packed by pattern."""
    for path in sorted([folder, *folder.rglob("*")]):
        skipped = {"__pycache__", "data"}.intersection(path.relative_to(folder).parts)
        if path.is_dir() and not skipped and not (path / "__init__.py").is_file():
            yield f"{path.name}/ has no __init__.py"


@functools.cache
def sources(folder: str) -> tuple[tuple[str, list[Use]], ...]:
    """Each source of a folder: its path from the root, and what it names."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        relative = path.relative_to(ROOT)
        prefix = "coalloc." if folder in PACKAGES else ""
        package = prefix + ".".join(relative.parent.parts)
        uses = read_uses(path.read_text(encoding="utf-8"), package)
        found.append((relative.as_posix(), uses))
    return tuple(found)


def located(path: str, faults: Iterator[str]) -> list[str]:
    return [f"{path}:{fault}" for fault in dict.fromkeys(faults)]


@pytest.mark.parametrize("package", PACKAGES)
def test_package_keeps_the_rules(package: str) -> None:
    faults: list[str] = []
    for path, uses in sources(package):
        faults += located(path, layer_faults(package, uses))
        faults += located(path, within_faults(path, uses))
        faults += located(path, home_faults(path, uses))
        faults += located(path, standard_faults(path, uses))
        faults += located(path, purity_faults(package, uses))
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("folder", [*PACKAGES, *OTHERS])
def test_no_bare_imports(folder: str) -> None:
    faults = [fault for path, uses in sources(folder) for fault in located(path, bare_faults(uses))]
    assert not faults, "\n".join(faults)


def test_integrations_import_the_public_names_only() -> None:
    faults = [
        fault
        for path, uses in sources("integrations")
        for fault in located(path, integration_faults(uses))
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("folder", [*PACKAGES, "tests", "benchmarks"])
def test_every_folder_is_a_package(folder: str) -> None:
    assert not list(folder_faults(ROOT / folder))


@pytest.mark.parametrize("package", PACKAGES)
def test_namespace_link_is_relative(package: str) -> None:
    link = ROOT / "src" / "coalloc" / package
    assert link.is_symlink()
    assert link.readlink() == Path("..", "..", package)


def test_namespace_holds_no_copies() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "--stage", "src"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    modes = {line.partition("\t")[2]: line[:6] for line in listing.splitlines()}
    expected = {f"src/coalloc/{package}": "120000" for package in PACKAGES}
    assert modes == expected | {
        "src/coalloc/__init__.py": "100644",
        "src/coalloc/chains.py": "100644",
        "src/coalloc/option_text.py": "100644",
        "src/coalloc/planning.py": "100644",
        "src/coalloc/py.typed": "100644",
        "src/coalloc/programs.py": "100644",
        "src/coalloc/solving.py": "100644",
        "src/coalloc/workers.py": "100644",
    }


def test_setup_maps_the_same_folders() -> None:
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    values = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROOTS"
    ]
    assert [tuple(sorted(value)) for value in values] == [PACKAGES]


def test_every_package_has_its_rules() -> None:
    assert tuple(sorted(MAY_IMPORT)) == PACKAGES


def policy_rooms() -> dict[str, set[str]]:
    """The folders of policies/, and the modules beside them, with the rooms that each imports."""
    modules = {path.removesuffix(".py").replace("/", "."): path for path, _ in sources("policies")}

    def room(module: str) -> str:
        folder = module.rpartition(".")[0]
        return module if folder == "policies" else folder

    out: dict[str, set[str]] = {room(module): set() for module in modules}
    for path, uses in sources("policies"):
        own = room(path.removesuffix(".py").replace("/", "."))
        names = (use.name.removeprefix("coalloc.") for use in uses if use.imported)
        parts = {name if name in modules else name.rpartition(".")[0] for name in names}
        out[own] |= {room(part) for part in parts if part in modules} - {own}
    return out


def test_rooms_of_policies_form_no_circle() -> None:
    TopologicalSorter(policy_rooms()).prepare()  # raises CycleError with the circle
