"""Alert rules and dashboard, by the real Prometheus of Debian on a daemon that runs."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.support.live_site import Running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("promtool") is None or shutil.which("prometheus") is None,
        reason="Prometheus is not installed: make prometheus",
    ),
]
ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "etc" / "prometheus" / "coalloc.rules.yml"
DASHBOARD = ROOT / "etc" / "grafana" / "coalloc.json"
CASES = Path(__file__).with_name("data") / "alerts_test.yml"
METRIC = re.compile(r"\b(?:coalloc|process)_[a-z0-9_]+\b")
CONFIG = """\
global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: coalloc
    static_configs: [{{ targets: ["127.0.0.1:{port}"] }}]
"""


def promtool(*words: str, cwd: Path, text: str | None = None) -> str:
    done = subprocess.run(
        ["promtool", *words], cwd=cwd, capture_output=True, text=True, input=text, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_alert_fires_when_it_should(tmp_path: Path) -> None:
    for path in (RULES, CASES):
        shutil.copy(path, tmp_path)
    promtool("check", "rules", RULES.name, cwd=tmp_path)
    promtool("test", "rules", CASES.name, cwd=tmp_path)
    names = re.findall(r"- alert: (\w+)", RULES.read_text())
    untried = [name for name in names if f'"{name}"' not in CASES.read_text()]
    assert not untried


def expressions() -> list[str]:
    """Every expression of the dashboard, for the only daemon there is."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [e.replace("$__rate_interval", "1m").replace("$instance", ".*") for e in found]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def asked(port: int, path: str, **query: str) -> Any:
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urlencode(query)}"
    with urlopen(url, timeout=20) as answer:
        return json.loads(answer.read())["data"]


def test_what_is_scraped_has_all_that_is_drawn_and_watched(root: Path) -> None:
    figures, port = free_port(), free_port()
    site = Running(root, daemon=f'metrics_address = "127.0.0.1:{figures}"')
    config = root / "prometheus.yml"
    config.write_text(CONFIG.format(rules=RULES, port=figures))
    site.start()
    prometheus = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={root / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert site.wait(site.submit(["true"], 6))["state"] == "completed"

        def values(query: str) -> dict[str, float]:
            try:
                rows = asked(port, "query", query=query)["result"]
            except URLError:
                return {}
            return {row["metric"].get("cluster", ""): float(row["value"][1]) for row in rows}

        site.until(lambda: values("coalloc_jobs_started_total") == {"": 1.0})
        site.until(lambda: values("coalloc_cluster_slots") == {"alpha": 4.0, "beta": 4.0})
        with urlopen(f"http://127.0.0.1:{figures}/metrics", timeout=20) as answer:
            text = answer.read().decode()
        promtool("check", "metrics", cwd=root, text=text)
        used = set(METRIC.findall(" ".join([RULES.read_text(), *expressions()])))
        # counted at the first failure of a policy, whose name is its label
        known = set(asked(port, "label/__name__/values")) | set(METRIC.findall(text))
        assert used - known == set()
        for expression in expressions():
            asked(port, "query", query=expression)
        site.until(lambda: all(rule["health"] == "ok" for rule in rules(port)))
        site.kill("beta", signal.SIGTERM)
        site.until(lambda: "CoallocClusterLost" in pending(port))
    finally:
        prometheus.terminate()
        prometheus.wait()
        site.stop()


def rules(port: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asked(port, "rules")["groups"][0]["rules"]
    return found


def pending(port: int) -> set[str]:
    """Alerts whose condition holds."""
    return {alert["labels"]["alertname"] for alert in asked(port, "alerts")["alerts"]}
