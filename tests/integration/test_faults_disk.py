"""Disks that fill up, go read-only or rot, and what a backup is worth then."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc.cli import main
from tests.support.damages import damage
from tests.support.live_site import Running
from tests.support.small_disk import mounted


@pytest.fixture
def site(root: Path) -> Iterator[Running]:
    site = Running(root)
    yield site
    site.stop()


def refusal(site: Running) -> str:
    """Submit until one is refused for want of space; returns what is said."""
    for _ in range(400):
        big = site.submission(["true"], launch={"env": {"A": "x" * 9999}}, hold=True)
        answer = site.ask("submit", **big)
        if answer["type"] == "refused":
            assert answer["code"] == "storage", answer
            return str(answer["message"])
    raise AssertionError("nothing was refused")


def test_files_that_may_not_grow_refuse_submits_and_running_work_goes_on(site: Running) -> None:
    """What a full disk does, where nobody may mount a small one."""
    site.start()
    running = site.submit(recorded(site, "a", until="go"))
    site.until(lambda: site.job(running)["state"] == "running")
    pid = site.processes["coallocd"].pid
    size = sum(file.stat().st_size for file in (site.root / "state").glob("coalloc.db*"))
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 100_000, hard))
    message = refusal(site)
    assert "coalloc.db" in message
    assert "\n" not in message
    assert site.ask("queue")["type"] == "queue", "it still answers"
    assert site.lines("store_failed")
    (site.work / "go").touch()
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
    site.until(lambda: bool(site.lines("store_returned")))
    assert site.wait(running)["state"] == "completed"
    assert site.wait(site.submit(["true"]))["state"] == "completed"


@pytest.mark.slow
def test_a_read_only_file_system_is_named_and_nothing_is_lost(site: Running, root: Path) -> None:
    with mounted(root / "state", "size=32m") as disk:
        site.start_daemon()
        before = site.submit(["true"], hold=True)
        site.kill("coallocd")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        site.start_daemon(wait=False)
        assert site.kill_when_ended("coallocd") == 1
        assert "Read-only file system" in site.log.read_text().splitlines()[-1]
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        site.start_daemon()
        assert site.job(before)["state"] == "held"
        site.stop()


def test_a_damaged_page_keeps_the_daemon_down_until_a_backup_is_restored(
    site: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through it all, what ran goes on, what had ended is not repeated, and fencing holds."""
    site.start()
    config = ["--config", str(site.config)]
    waiting = [site.submit(["true"], hold=True) for _ in range(300)]
    log = site.work / "ran"
    runs = site.submit(recorded(site, "a", until="go"))
    ended = site.submit(recorded(site, "b", until="end"))
    site.until(lambda: {site.job(job)["state"] for job in (runs, ended)} == {"running"})
    later = site.submit(recorded(site, "c", until="go"), hold=True)
    forgotten = [site.submit(recorded(site, f"f{n}", until="end"), hold=True) for n in range(3)]
    copy = site.root / "copy.db"
    assert main.main(["backup", str(copy), *config]) == 0
    (site.work / "end").touch()
    assert site.wait(ended)["state"] == "completed"
    site.ask("release", job=later)
    site.until(lambda: site.job(later)["state"] == "running")
    for job in forgotten:
        site.ask("release", job=job)
        assert site.wait(job)["state"] == "completed"
    site.until(lambda: not any(parts_of(site, job) for job in (ended, *forgotten)))
    lost = site.submit(["true"], hold=True)
    epoch = site.ask("status")["epoch"]

    assert main.main(["restore", str(copy), *config]) == 1
    assert "is in use; stop coallocd first" in capsys.readouterr().err
    site.kill("coallocd", signal.SIGTERM)
    spoil(site.root / "state" / "coalloc.db")
    site.start_daemon(wait=False)
    assert site.kill_when_ended("coallocd") == 1
    said = site.log.read_text().splitlines()[-1]
    assert "is damaged" in said
    assert "coalloc restore FILE" in said
    assert main.main(["restore", str(copy), *config]) == 0
    site.start_daemon()
    site.until(site.is_complete)

    status = site.ask("status")
    assert status["paused"]
    assert status["epoch"] > epoch
    site.until(lambda: site.job(ended)["state"] == "lost")
    site.until(lambda: site.job(later)["reason"] == "started_after_backup")
    reasons = {"started_after_backup"}
    site.until(lambda: {site.job(job)["reason"] for job in forgotten} == reasons)
    assert site.job(runs)["state"] == "running"
    assert {site.job(job)["state"] for job in waiting} == {"held"}
    assert site.ask("show", job=lost)["code"] == "not_found"
    site.ask("resume_rounds")
    assert int(site.submit(["true"])) > int(lost) + 1
    (site.work / "go").touch()
    assert site.wait(runs)["state"] == "completed"
    site.until(lambda: "exit code 0" in site.job(later)["detail"])
    assert site.wait(site.submit(["true"], 6))["state"] == "completed"
    assert sorted(log.read_text().split()) == ["a", "b", "c", "f0", "f1", "f2"], "nothing ran twice"


def test_a_daemon_whose_state_was_deleted_leaves_the_place_to_another(site: Running) -> None:
    site.start_daemon()
    shutil.rmtree(site.root / "state")
    first = site.processes.pop("coallocd")
    site.start_daemon()
    assert first.wait(60.0) == 1
    assert "what this daemon would write there is lost" in site.log.read_text()
    site.until(site.is_serving)
    assert site.submit(["true"], hold=True) == "1"


@pytest.mark.nightly
def test_no_damage_is_served_in_silence_by_a_daemon(site: Running) -> None:
    """What `tests/unit/daemon/store/test_store_damages.py` does to a store, by real processes."""
    site.start_daemon()
    jobs = [site.submit(["true"], hold=True) for _ in range(100)]
    before = [site.job(job) for job in jobs]
    site.kill("coallocd")
    state, kept = site.root / "state", site.root / "kept"
    shutil.copytree(state, kept)
    for seed in range(100):
        shutil.rmtree(state)
        shutil.copytree(kept, state)
        how = damage(state / "coalloc.db", seed)
        site.log.write_text("")
        site.start_daemon(wait=False)
        site.until(lambda: has_ended(site) or bool(site.lines("store_examined")))
        if not has_ended(site):
            assert [site.job(job) for job in jobs] == before, how
            site.kill("coallocd")
            continue
        assert site.kill_when_ended("coallocd") == 1, how
        said = site.log.read_text()
        assert "Traceback" not in said, how
        assert "coalloc restore" in said.splitlines()[-1], how


def parts_of(site: Running, job: str) -> list[Path]:
    """What executors keep of a job."""
    return list(site.root.glob(f"state/executors/*/part+{job}+*"))


def has_ended(site: Running) -> bool:
    """The daemon has stopped by itself."""
    return site.processes["coallocd"].poll() is not None


def recorded(site: Running, word: str, *, until: str) -> list[str]:
    """A command that writes a word when it starts, and ends when a file appears."""
    wait = f"while [ ! -e {site.work}/{until} ]; do sleep 0.05; done"
    return ["sh", "-c", f"echo {word} >> {site.work}/ran; {wait}"]


def spoil(path: Path) -> None:
    """Overwrite every second page but the first ones, as a bad disk may."""
    content = bytearray(path.read_bytes())
    for page in range(4, len(content) // 4096, 2):
        content[page * 4096 : page * 4096 + 512] = b"\xff" * 512
    path.write_bytes(content)
