"""Headless Chromium for the tests of a module, where it is installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
AXE = Path(__file__).resolve().parents[2] / ".venv/axe/axe_playwright_python/axe.min.js"


def missing() -> str:
    """What is not installed; empty: nothing."""
    absent = [path for path in (CHROMIUM, DRIVER, str(AXE)) if not os.path.exists(path)]
    return " and ".join(absent)


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Skip, loudly, where Chromium is not."""
    if absent := missing():
        pytest.skip(f"{absent} not there: the page was NOT tried; see make test-browser")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A driver of one browser."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(60)
    yield driver
    driver.quit()
