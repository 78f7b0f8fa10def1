"""Notifications: which events, in what words, and how they leave without holding anything up."""

from __future__ import annotations

import email
import email.policy
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec import structs
from structlog.stdlib import BoundLogger
from structlog.testing import CapturingLogger

from coalloc.core.base.effects import AppendEvent
from coalloc.core.base.records import JobRecord, JobState
from coalloc.daemon.monitoring.figures import ClusterFigures, Survey
from coalloc.daemon.monitoring.notify import Notice, Notifier, Watch, job_notice
from coalloc.model.errors import ConfigError
from coalloc.model.event_kinds import EventKind
from coalloc.model.settings import NotifyConfig
from coalloc.model.values import replace
from coalloc.runtime.config.file import parse
from tests.support.core_site import Site

NASTY = 'x"; rm -rf $HOME\n`id` \x1b[31m'
LIMIT_S = 30.0
UP = ClusterFigures(up=True, connected=True, drained=False)
DOWN = replace(UP, up=False, why="executor stopped")


def ended(**changes: Any) -> tuple[AppendEvent, JobRecord]:
    site = Site({"a": 2})
    record = replace(site.job(site.submit()), **{"user": "ada", "name": NASTY, **changes})
    return AppendEvent(seq=1, time=5.0, kind=EventKind.JOB_ENDED, job=record.id, fields={}), record


def test_the_end_of_a_job() -> None:
    event, record = ended(state=JobState.FAILED, exit_code=3)
    notice = job_notice(event, record, ("job_failed",))
    assert notice is not None
    assert notice.event == "job_failed"
    assert notice.fields["exit_code"] == 3
    assert job_notice(event, record, ("job_ended",)) is not None
    assert job_notice(event, replace(record, state=JobState.COMPLETED), ("job_failed",)) is None
    assert job_notice(event, replace(record, flow="7"), ("job_ended",)) is None
    assert job_notice(replace(event, kind=EventKind.JOB_STARTED), record, ("job_ended",)) is None


def told(watch: Watch, time: float, free: int = 5000, **clusters: ClusterFigures) -> list[str]:
    config = NotifyConfig(lost_after_s=60.0, disk_low_mb=1000)
    found = Survey(time=time, clusters=clusters, disk=(1 << 40, free << 20))
    return [notice.event for notice in watch.changes(found, config)]


def test_a_cluster_is_lost_once_and_returns_once() -> None:
    watch = Watch()
    assert told(watch, 0.0, a=UP, b=DOWN) == []
    assert told(watch, 59.0, a=DOWN, b=DOWN) == []
    assert told(watch, 61.0, a=UP, b=DOWN) == ["cluster_lost"], "b; a was away for a moment"
    assert told(watch, 200.0, a=UP, b=DOWN) == []
    assert told(watch, 201.0, a=UP, b=UP) == ["cluster_returned"]
    assert told(watch, 300.0, a=DOWN) == []
    assert told(watch, 400.0) == [], "it is no longer configured"


def test_a_disk_is_low_once_until_there_is_room_again() -> None:
    watch = Watch()
    frees = [1200, 999, 900, 1050, 999, 1100, 999]
    assert [bool(told(watch, 0.0, free)) for free in frees] == [
        False, True, False, False, False, False, True,
    ]  # fmt: skip


@pytest.fixture
def log() -> CapturingLogger:
    return CapturingLogger()


def notifier(log: CapturingLogger, **config: Any) -> Notifier:
    return Notifier(
        NotifyConfig(events=("disk_low",), **config),
        BoundLogger(log, [], {}),
    )


def notice(text: str = "low") -> Notice:
    return Notice(event="disk_low", time=1.0, text=text, fields={"name": NASTY})


def wait_for(sender: Notifier, count: int) -> None:
    """Until so many are sent or failed; each wakes nobody, so this looks again and again."""
    pause = threading.Event()
    for _ in range(int(LIMIT_S / 0.01)):
        if sender.counts["sent"] + sender.counts["failed"] >= count:
            return
        pause.wait(0.01)
    raise AssertionError(sender.counts)


def program(folder: Path, text: str) -> str:
    path = folder / "told"
    path.write_text(f"#!{sys.executable}\nimport sys\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_command_gets_json_on_its_input(tmp_path: Path, log: CapturingLogger) -> None:
    out = tmp_path / "out"
    write = f"open({str(out)!r}, 'w').write(sys.stdin.read() + repr(sys.argv[1:]))"
    sender = notifier(log, command=(program(tmp_path, write), "-x"))
    sender.offer(notice())
    wait_for(sender, 1)
    sender.close()
    body, _, arguments = out.read_text().rpartition("[")
    said = json.loads(body)
    assert (said["event"], said["text"], said["name"]) == ("disk_low", "low", NASTY)
    assert arguments == "'-x']"
    assert dict(sender.counts) == {"sent": 1}


def test_mail_is_one_message_whatever_a_job_is_called(tmp_path: Path, log: CapturingLogger) -> None:
    out = tmp_path / "out"
    said = "repr(sys.argv[1:]).encode() + b'\\n' + sys.stdin.buffer.read()"
    write = f"open({str(out)!r}, 'wb').write({said})"
    sender = notifier(log, mail_to=("ops@example.org",), sendmail=program(tmp_path, write))
    sender.offer(notice("job of a user\nBcc: all@example.org"))
    wait_for(sender, 1)
    sender.close()
    assert dict(sender.counts) == {"sent": 1}
    arguments, _, raw = out.read_bytes().partition(b"\n")
    assert arguments == b"['-i', '--', 'ops@example.org']"
    message = email.message_from_bytes(raw, policy=email.policy.default)
    assert message["To"] == "ops@example.org"
    assert message["Bcc"] is None
    assert message["Subject"] == "coalloc: job of a user?Bcc: all@example.org"


class Hook(BaseHTTPRequestHandler):
    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(302 if self.path == "/away" else 204)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()

    def log_message(self, *words: Any) -> None:
        return


@pytest.fixture
def hook() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_webhook_is_posted_and_no_redirection_followed(hook: str, log: CapturingLogger) -> None:
    sender = notifier(log, webhook=f"{hook}/here")
    sender.offer(notice())
    wait_for(sender, 1)
    assert dict(sender.counts) == {"sent": 1}
    assert json.loads(Hook.bodies[-1])["name"] == NASTY
    sender.config = structs.replace(sender.config, webhook=f"{hook}/away")
    sender.offer(notice())
    wait_for(sender, 2)
    sender.close()
    assert dict(sender.counts) == {"sent": 1, "failed": 1}
    assert [call.kwargs["event"] for call in log.calls] == ["notification_failed"]


def test_a_full_queue_drops_and_never_waits(tmp_path: Path, log: CapturingLogger) -> None:
    slow = program(tmp_path, "import time\ntime.sleep(600)")
    sender = notifier(log, command=(slow,), queue=2, timeout_s=0.5)
    for _ in range(50):
        sender.offer(notice())
    assert sender.counts["dropped"] >= 47
    wait_for(sender, 1)
    assert sender.counts["failed"] >= 1, "it took too long"
    sender.close()
    events = [call.kwargs.get("event") for call in log.calls]
    assert "notification_dropped" in events


def test_nothing_is_on_by_default(log: CapturingLogger) -> None:
    sender = Notifier(NotifyConfig(), BoundLogger(log, [], {}))
    assert not sender.is_on
    sender.recorded(*ended())
    sender.surveyed(Survey(time=0.0, disk=(10, 0)))
    sender.close()
    assert not sender.counts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('events = ["disk_low"]', "notify.events: there is no command"),
        ('events = ["disk_lo"]', "did you mean disk_low?"),
        ('command = ["mail"]', "'mail' is not an absolute path"),
        ('webhook = "file:///etc/passwd"', "neither https:// nor http://"),
        ('mail_to = ["-f root"]', "is not an address"),
    ],
)
def test_ways_that_reach_nobody_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"[notify]\n{text}\n", "c.toml")
    assert said in str(caught.value)
