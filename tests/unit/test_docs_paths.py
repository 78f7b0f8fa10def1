"""Every file that the documentation names is there.

Left out are the change log and `docs/history`, which speak of former trees, and the figures of
`docs/reproduction`.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = ("build", "dist", "src", "__pycache__", "node_modules")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s:]+)[)#]")
# A path or a name of a file as it stands in a text; a test's name may follow.
FILE = re.compile(r"(?<![\w./@~$<>*-])(?:[\w.@-]+/)*[\w.@-]+\.(?:py|md|toml|cpp)(?![\w/*-])")
FOLDER = re.compile(r"(?<![\w./@~$<>*:-])(?:[\w-]+/)+(?![\w.*{<-])")
# Files of the reader's, and names that stand for others.
EXAMPLES = {
    "docs/CONFIGURATION.md": ("coallocd.toml", "coalloc/coallocd.toml"),
    "docs/REPRODUCTION.md": ("NAME.md", "*/NAME.md", "study/study.md"),
    "docs/operations/changing-policies.md": ("platform.toml",),
    "docs/install.md": ("coallocd.toml",),
    "docs/tutorial.md": ("submit.py", "squares.py", "coallocd.toml"),
    "simulation/study/data/study.md": ("*-ratios.png",),
    "docs/adapters.md": ("desk*.py", "adapters/desk*.py", "*coallocd.toml"),
}


def documents() -> list[str]:
    """Return the Markdown files, and the texts that administrators install."""
    named = [path for path in files() if path.endswith(".md") or path.startswith("systemd/")]
    named = [path for path in named if not path.startswith(("docs/reproduction/", "docs/history/"))]
    return [*sorted(set(named) - {"CHANGELOG.md"}), "etc/coallocd.toml"]


@cache
def files() -> frozenset[str]:
    """Return every file of the repository, by its path from the root."""
    found: set[str] = set()
    waiting = [ROOT]
    while waiting:
        for path in waiting.pop().iterdir():
            if path.name.startswith(".") or path.name in HIDDEN:
                continue
            if path.is_dir() and not path.is_symlink():
                waiting.append(path)
            else:
                found.add(path.relative_to(ROOT).as_posix())
    return frozenset(found)


@cache
def endings() -> frozenset[str]:
    """Return what may stand for a file: the ends of its path."""
    return frozenset(
        "/".join(parts[n:])
        for parts in (path.split("/") for path in files())
        for n in range(len(parts))
    )


def named_files(document: str, text: str) -> Iterator[str]:
    """Yield the files that a text names: in back-ticks and links; of others, anywhere."""
    if not document.endswith(".md"):
        yield from (found[0] for found in FILE.finditer(text))
        return
    prose = FENCED.sub("", text)
    yield from (link for link in LINK.findall(prose) if not link.endswith("/"))
    for span in SPAN.findall(prose):
        yield from (found[0] for found in FILE.finditer(span))
        for found in FOLDER.finditer(span):
            if found[0].split("/")[0] in folders():
                yield found[0]


def missing(document: str, text: str) -> list[str]:
    """Return the names for which there is no file.

    A path is from the root, or from the folder of the text; the end of one will do.
    """
    here = (ROOT / document).parent
    examples = EXAMPLES.get(document, ())
    return sorted(
        name
        for name in set(named_files(document, text))
        if not any(fnmatchcase(name, example) for example in examples)
        and not (here / name).exists()
        and not (ROOT / name).exists()
        and (name.split("/")[0] in folders() or name not in endings())
    )


@cache
def folders() -> frozenset[str]:
    """Return the folders at the top: a path that begins with one is from the root."""
    return frozenset(path.split("/")[0] for path in files() if "/" in path)


@pytest.mark.parametrize("document", documents())
def test_every_file_that_is_named_is_there(document: str) -> None:
    assert not missing(document, (ROOT / document).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`core/coordinator.py`", []),
        ("`coordinator.py` and `kernel/instance/decoding.py`", []),  # ends of paths
        ("`core/gone.py`", ["core/gone.py"]),
        ("`core/decoding.py`", ["core/decoding.py"]),  # it is in another folder
        ("`gone.py`", ["gone.py"]),
        ("`tests/unit/test_gone.py::test_this`", ["tests/unit/test_gone.py"]),
        ("`core/` and `adapters/runner/`", []),
        ("`core/gone/`", ["core/gone/"]),
        ("[there](docs/GONE.md#part)", ["docs/GONE.md"]),
        ("[there](https://example.org/gone.md)", []),
        ("```\n`gone.py`\n```\n", []),
    ],
)
def test_a_file_that_is_not_there_is_found(text: str, expected: list[str]) -> None:
    assert missing("NOTES.md", text) == expected


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"- (?:[^:\n]+: )?(\S+\.md)$", text, re.MULTILINE))
    pages = {path.removeprefix("docs/") for path in files() if path.startswith("docs/")}
    pages = {page for page in pages if not page.startswith("history/")}
    assert not {page for page in pages if page.endswith(".md")} - named
