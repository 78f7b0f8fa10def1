"""The guide to the policies names every one, and no other."""

import re
from pathlib import Path

import pytest

from coalloc.policies.options import options_of
from coalloc.policies.registry import POLICIES

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "policies" / "README.md"
SITE, PUBLISHED = "## For a site", "## Published, to compare with"
OPTION = re.compile(r"^\| `(\w+)` \| `?([^`|]+)`? \|", re.MULTILINE)


def section(title: str) -> str:
    """Return the text under a heading, up to the next one of its rank."""
    return GUIDE.read_text(encoding="utf-8").partition(f"{title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[str]:
    """Return the names in the first column of a section's table."""
    first = [line.split("|")[1] for line in section(title).splitlines() if line.startswith("| `")]
    return [name for cell in first for name in re.findall(r"`([^`]+)`", cell)]


def test_every_policy_has_one_row() -> None:
    assert sorted(rows(SITE) + rows(PUBLISHED)) == sorted(POLICIES)


@pytest.mark.parametrize("name", ["auto", "easy", "conservative"])
def test_what_most_sites_run_has_a_section(name: str) -> None:
    assert section(f"## `{name}`").strip()


def test_options_and_defaults_of_auto_are_as_stated() -> None:
    rows_of_options = OPTION.findall(section("## `auto`"))
    stated = {name: value.replace(",", "") for name, value in rows_of_options}
    assert stated == {
        name: f"{field.default:g}"
        if isinstance(field.default, float)
        else str(field.default).lower()
        for name, field in options_of(POLICIES["auto"].options).items()
    }
