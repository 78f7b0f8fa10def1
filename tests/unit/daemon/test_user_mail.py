"""Mail to users about their jobs: when, to whom, how many, and never twice."""

from __future__ import annotations

import email
import email.policy
import sys
from pathlib import Path
from typing import Any

import pytest
from structlog.stdlib import BoundLogger
from structlog.testing import CapturingLogger

from coalloc.cli.arguments import mail_types
from coalloc.core.base.effects import AppendEvent, Effect
from coalloc.core.base.requests import Cancel, Done, Submit
from coalloc.core.starts.requeue import PREEMPTED
from coalloc.daemon.monitoring.notify import Notice, UserMail, mail
from coalloc.model.mail import ALL, is_address
from coalloc.model.settings import NotifyConfig
from coalloc.model.sites.parts import Launch, PartState
from tests.support.core_site import Site

ON = NotifyConfig(user_mail=True)


class Post(UserMail):
    """Keeps what would be sent."""

    def __init__(self, site: Site, config: NotifyConfig = ON) -> None:
        log = BoundLogger(CapturingLogger(), [], {})
        super().__init__(config, log, site.state.jobs, site.now)
        self.sent: list[Notice] = []
        self._site = site
        self._seen = len(site.effects)

    def offer(self, notice: Notice) -> None:
        self.sent.append(notice)

    def told(self) -> list[str]:
        """What is told of the events since it was asked last, as after one batch."""
        site, before = self._site, len(self.sent)
        new: list[Effect] = site.effects[self._seen :]
        self._seen = len(site.effects)
        for event in new:
            if isinstance(event, AppendEvent):
                self.recorded(event, site.state.jobs.get(event.job))
        return [notice.text.partition(": ")[2] for notice in self.sent[before:]]


def served(**config: Any) -> Site:
    return Site({"a": 4}, notify=NotifyConfig(user_mail=True, **config))


BEGUN = "has begun"
TYPES: tuple[tuple[str, str, list[str]], ...] = (
    ("ALL", "ends", [BEGUN, "completed, exit code 0"]),
    ("END", "ends", ["completed, exit code 0"]),
    ("BEGIN", "ends", [BEGUN]),
    ("FAIL", "ends", []),
    ("FAIL", "fails", ["failed, exit code 3: exit code 3"]),
    ("END,FAIL", "fails", ["failed, exit code 3: exit code 3"]),  # one mail
    ("FAIL", "cancelled", []),  # as under sbatch
    ("END", "cancelled", ["cancelled, exit code 0: cancelled by ann"]),
    ("TIME_LIMIT", "too long", ["timeout, exit code 0: too long"]),
    ("TIME_LIMIT", "fails", []),
    ("REQUEUE", "preempted", ["waits again"]),
    ("REQUEUE", "ends", []),
    ("TIME_LIMIT_80", "ends", ["has run for 80% of its time limit"]),
    ("TIME_LIMIT_50,TIME_LIMIT_90", "ends", [
        "has run for 50% of its time limit", "has run for 90% of its time limit",
    ]),
    ("INVALID_DEPEND", "fails", []),
    ("NONE", "fails", []),
)  # fmt: skip


@pytest.mark.parametrize(("words", "fate", "told"), TYPES)
def test_each_type_is_told_once(words: str, fate: str, told: list[str]) -> None:
    site = served()
    post = Post(site)
    types = mail_types(words)
    job = site.submit(mail_type=types, requeue=True, job={"time_limit": 600.0})
    after = site.submit(mail_type=types, needs=(("afterok", job),))
    site.run(job)
    found = post.told()
    for _ in range(56):  # every ten seconds
        site.now += 10.0
        post.looked(list(site.state.placed_records()), site.now)
    found += [notice.text.partition(": ")[2] for notice in post.sent[len(found) :]]
    match fate:
        case "ends":
            site.finish(job)
        case "fails":
            site.finish(job, 3)
        case "cancelled":
            site.ask(Cancel(job=job))
            site.finish(job)
        case "too long" | "preempted":
            reason, why = ("time_limit", fate) if fate == "too long" else (PREEMPTED, "for another")
            at: dict[str, Any] = {"started": site.now - 560.0, "ended": site.now}
            site.say(job, PartState.FINISHED, exit_code=0, reason=reason, detail=why, **at)
    mine = [each for each in post.told() if after not in each]
    if "INVALID_DEPEND" in types and fate == "fails":
        assert any("cannot be met" in each for each in mine)
        mine = [each for each in mine if "cannot be met" not in each]
    ours = [n.text.partition(": ")[2] for n in post.sent if n.text.startswith(f"job {job} ")]
    assert ours == told
    assert not post.told()
    assert {address for n in post.sent for address in n.to} <= {"ann"}


@pytest.mark.parametrize("is_each", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_an_array_is_told_of_as_a_whole_or_by_members(is_each: bool, restarts: bool) -> None:
    site = served()
    post = Post(site)
    each = ("ARRAY_TASKS",) if is_each else ()
    array = site.submit(array=(0, 1, 2), mail_type=("BEGIN", "END", *each))
    members = [f"{array}_{i}" for i in range(3)]
    site.run(members[0])
    site.run(members[1])
    began = post.told()
    assert began == [BEGUN] * 2 if is_each else [f"{BEGUN}, the first of its array"]
    site.now += 5.0
    if restarts:
        post = Post(site)
    site.run(members[2])
    site.finish(members[0], 3)
    found = post.told()
    site.finish(members[1])
    site.finish(members[2])
    found += post.told()
    if is_each:
        assert len(found) == 4
    else:
        assert found == ["all of its array have ended, 1 failed"]


def test_users_have_so_many_in_an_hour_each() -> None:
    site = served()
    post = Post(site, NotifyConfig(user_mail=True, user_mails_per_h=2))
    for user in ("ann", "ann", "ann", "bob"):
        site.ask(Cancel(job=site.submit(9, user=user, mail_type=("END",), hold=True,
                                        hold_infeasible=True)), operator=True)  # fmt: skip
    assert len(post.told()) == 3
    assert post.counts == {"dropped": 1}
    site.now += 3600.0
    site.ask(Cancel(job=site.submit(mail_type=("END",), hold=True)), operator=True)
    assert len(post.told()) == 1


@pytest.mark.parametrize("off", [True, False])
def test_who_cannot_be_sent_mail_is_told_so_and_the_job_is_queued(off: bool) -> None:
    site = Site({"a": 4}, notify=NotifyConfig(user_mail=not off))
    post = Post(site, site.settings.notify)

    def warned(**options: Any) -> list[str]:
        command = Submit(
            token=f"t{len(site.answers)}",
            job={"kind": "rigid", "procs": 1},
            launch=Launch(argv=("x",)),
            hold=True,
            **options,
        )
        answer = site.ask(command)
        assert isinstance(answer, Done), answer
        site.ask(Cancel(job=str(answer.body["job"])))
        return list(answer.body["warnings"])

    assert not warned(mail_user="a@b")
    found = warned(mail_type=("END",), mail_user="a@b,<you@x>\nBcc: all@x")
    if off:
        assert "no mail is sent to users here" in found[0]
        assert not post.told()
    else:
        assert found == ["no mail is sent to '<you@x>\\nBcc: all@x', which is no address"]
        post.told()
        assert [notice.to for notice in post.sent] == [("a@b",)]


@pytest.mark.parametrize(
    "text",
    [
        "-froot",
        "a b@c",
        "a@b\n",
        "a@b\r\nBcc: c@d",
        "|sh",
        "/etc/passwd",
        "",
        "a@",
        "a@-b",
        "a@b@c",
    ],
)
def test_what_would_be_more_than_an_address_is_none(text: str) -> None:
    assert not is_address(text)
    assert is_address("a.b+c@example.org")


def test_words_are_read_as_by_sbatch() -> None:
    assert mail_types("begin,END") == ("BEGIN", "END")
    assert mail_types("END,NONE,BEGIN") == ()
    assert mail_types("END,FAILED") == ("END",)
    assert mail_types("ALL") == ALL


def test_it_is_one_message_to_those_addresses(tmp_path: Path) -> None:
    program = tmp_path / "sendmail"
    write = f"open({str(tmp_path / 'out')!r}, 'w').write(repr(sys.argv[1:]) + sys.stdin.read())"
    program.write_text(f"#!{sys.executable}\nimport sys\n{write}\n")
    program.chmod(0o755)
    text = "job 1 (x\nBcc: all@x) of ann: ended"
    notice = Notice(event="user_mail", time=1.0, text=text, to=("a@b", "c@d"))
    mail(notice, NotifyConfig(sendmail=str(program), mail_to=("ops@x",)))
    words, _, raw = (tmp_path / "out").read_text().partition("]")
    assert words == "['-i', '--', 'a@b', 'c@d'"
    message = email.message_from_string(raw, policy=email.policy.default)
    assert (message["To"], message["Bcc"]) == ("a@b, c@d", None)
    assert message["Subject"] == "coalloc: job 1 (x?Bcc: all@x) of ann: ended"
