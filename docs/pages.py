"""Hooks of the site for mkdocs: pages from outside of docs/ and from the parsers, and their links.

What GitHub takes and mkdocs does not is made alike: a second word behind the language of a fenced
block, and three spaces before what belongs to an item of a numbered list.

A relative link that leaves docs/ goes to a page of the site where that file is one, and is no link
where it is a file of the tree. A file of docs/ that stands in back-ticks becomes a link.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from coalloc.cli import main as cli
from coalloc.daemon import main as daemon
from coalloc.executor import main as executor

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "operations/security.md",
    "etc/coallocd.toml": "reference/coallocd.toml.md",
    "integrations/snakemake/README.md": "reference/snakemake.md",
}
"""By its path in the tree: where a file that is not in docs/ is in the site."""
COMMANDS = "reference/commands.md"
PARSERS = (cli.build_parser, daemon.build_parser, executor.build_parser)
FENCED = re.compile(r"^( *```\w*)[^\n]*(\n.*?^ *```)$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^( {4}\S.*\n)(?=\d+\. )", re.MULTILINE)
INDENTED = re.compile(r"^ {3}(?= *\S)", re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s:#]+)(#[^)]*)?\)")
SPAN = re.compile(r"(?<!\[)`([\w./-]+\.(?:md|toml))`(?!\])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    texts = {page: (ROOT / source).read_text("utf-8") for source, page in ELSEWHERE.items()}
    name = ELSEWHERE["etc/coallocd.toml"]
    texts[name] = f"# coallocd.toml\n\n```toml\n{texts[name]}```\n"
    texts[COMMANDS] = "\n".join(command_lines())
    for page, text in texts.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have a page's links go where its text is in the site."""
    here = page.file.src_uri
    source = next((old for old, new in ELSEWHERE.items() if new == here), f"docs/{here}")
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        block = found[1] + found[2]
        kept.append(INDENTED.sub("    ", block) if INDENTED.match(block) else block)
        return f"\0{len(kept) - 1}\0"

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[3]))
        if (there := site_path(target, files)) is not None:
            new = posixpath.relpath(there, posixpath.dirname(here) or ".")
            return f"{found[1]}[{found[2]}]({new}{found[4] or ''})"
        return found[2] if (ROOT / target).exists() else found[0]

    def mention(found: re.Match[str]) -> str:
        folder = posixpath.dirname(source)
        for target in (found[1], posixpath.normpath(posixpath.join(folder, found[1]))):
            there = site_path(target, files)
            if there is not None and there != here:
                return f"[`{found[1]}`]({posixpath.relpath(there, posixpath.dirname(here) or '.')})"
        return found[0]

    text = ITEM.sub(r"\1\n", INDENTED.sub("    ", FENCED.sub(keep, markdown)))
    text = SPAN.sub(mention, LINK.sub(link, text))
    return re.sub("\0(\\d+)\0", lambda found: kept[int(found[1])], text)


def site_path(target: str, files: Files) -> str | None:
    """Where a file of the tree is in the site; None: it is not."""
    page = ELSEWHERE.get(target, target.removeprefix("docs/") if "/" in target else "")
    return page if page and files.get_file_from_path(page) is not None else None


def command_lines() -> Iterator[str]:
    """The page of commands: what each says to --help."""
    yield "# Commands\n\nWhat each says to `--help`. `make docs` writes man pages of the same.\n"
    os.environ["COLUMNS"] = "100"
    for build in PARSERS:
        parser = build()
        yield f"## {parser.prog}\n\n```text\n{parser.format_help()}```\n"
        for name, command in subcommands(parser):
            yield f"### {name}\n\n```text\n{command.format_help()}```\n"


def subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command of a parser, by its full name, and theirs."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command.prog, command
                yield from subcommands(command)
