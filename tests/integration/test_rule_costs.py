"""What rules cost in a round of a real daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.live_site import Running

WARM_S = 400.0
RULES = """
[projects.p]
users = ["*"]
max_procs = 1
"""
OFTEN = """
[[rounds.trigger]]
kind = "timer"
every_s = 0.5
"""


@pytest.mark.slow
def test_a_round_is_costed_once_its_plan_is_in_use(root: Path) -> None:
    site = Running(root, clusters={"alpha": 2}, policy="easy", rounds=OFTEN)
    site.config.write_text(site.config.read_text() + RULES)

    def costed() -> list[dict[str, Any]]:
        lines = site.lines("rule_costs_computed")
        return [line for line in lines if line["limits"]["held"] == 1]

    with site:
        site.until(lambda: bool(site.lines("solver_warmed")), WARM_S)
        first, held = site.submit(["sleep", "600"]), site.submit(["sleep", "600"])
        site.until(lambda: site.job(first)["state"] == "running")
        site.until(lambda: bool(costed()))
        number = costed()[-1]["round"]
        assert number in {row["round"] for row in site.lines("round_finished")}
        answer = site.ask("plan")
        assert answer["rules"] == ["shares", "limits"]
        assert answer["rule_costs"]["rules"]["limits"]["held"] == 1
        assert site.job(held)["state"] == "pending"
