"""Who does not belong is refused, told so, and audited: a real daemon, real sockets, real keys."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from coalloc.cli import main
from coalloc.client.client import Client
from coalloc.client.enrolment import EnrolmentError
from coalloc.core.base.messages import Hello
from coalloc.runtime.key_files import KeyFile, read_key, write_key
from coalloc.wire.client import EventSubscriber, KeyRefusedError, NoAnswerError, RequestConnection
from coalloc.wire.codec import tagged
from coalloc.wire.curve import CurveClient, new_pair
from coalloc.wire.frames import decode_any, encode
from tests.support.multi_user import ADA, BOB, MultiUser, Tap


@pytest.fixture(scope="module")
def site() -> Iterator[MultiUser]:
    """One site for all: a refusal leaves nothing behind."""
    root = Path(tempfile.mkdtemp(prefix="co-"))
    with MultiUser(root, daemon="max_message_bytes = 65536") as site:
        yield site
    secrets = [pair.secret for pair in site.pairs]
    logs = "".join(path.read_text() for path in root.glob("*.log"))
    shutil.rmtree(root, ignore_errors=True)
    assert len(logs) > 1000
    assert not [secret for secret in secrets if secret in logs], "a secret is in a log"


def code(answer: dict[str, object]) -> object:
    return answer.get("code", answer["type"])


def silence(asker: RequestConnection) -> str:
    """The reason that is given for the lack of an answer."""
    with pytest.raises(NoAnswerError) as caught:
        asker.ask({"type": "status"}, timeout_s=0.3)
    return str(caught.value)


def test_our_own_commands_are_no_attack(
    site: MultiUser, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They look whether a daemon listens, and leave nothing in the audit (so this comes first)."""
    monkeypatch.setenv("COALLOC_CONFIG", str(site.config))
    monkeypatch.setenv("COALLOC_KEY", str(site.root / "our-key.json"))
    assert main.main(["keys", "new"]) == 0
    for words in (["doctor"], ["queue"], ["doctor", "--json"]):
        main.main(words)
        assert "answers at" in capsys.readouterr().out or words == ["queue"]
    site.ask("status")
    assert not site.lines("connection_refused")


def test_no_key(site: MultiUser) -> None:
    with site.asking(None) as asker:
        site.until(lambda: "we have no key" in silence(asker))
    assert site.audited("connection_refused", "no key")["socket"] == "clients"


def test_key_for_another_daemon(site: MultiUser) -> None:
    elsewhere = CurveClient(pair=site.key(BOB).pair, server=new_pair().public)
    with site.asking(elsewhere) as asker:
        site.until(lambda: "another daemon" in silence(asker))


def test_unknown_key(site: MultiUser) -> None:
    key = site.unknown_key()
    with site.asking(key) as asker:
        # No connection is left for the second: it says the same reason.
        for _ in range(2):
            with pytest.raises(KeyRefusedError, match="refuses this key"):
                asker.ask({"type": "status"})
    assert site.audited("connection_refused", "unknown key")["key"] == key.pair.public[:12]


def test_revoked_key_on_a_live_session(site: MultiUser) -> None:
    key = site.key(BOB)
    with site.asking(key) as asker:
        job = site.submission(["sleep", "60"], hold=True)
        number = asker.ask({"type": "submit", **job})["job"]
        waiting = asker.send({"type": "wait", "job": number})
        assert asker.ask({"type": "status"})["user"] == BOB
        site.admin("revoke", key=key.pair.public[:12])
        answer = asker.ask({"type": "status"})
        assert (answer["code"], answer["message"]) == ("not_allowed", "this key was revoked")
        # What it had asked before does not reach it any more.
        site.ask("cancel", job=number)
        withheld = "answer_withheld"
        site.until(lambda: site.ask("status")["faults"].get(withheld, 0) == 1)
        with pytest.raises(NoAnswerError):
            asker.answer_to(waiting, timeout_s=0.2)
    with site.asking(key) as asker, pytest.raises(KeyRefusedError):
        asker.ask({"type": "status"})
    assert site.audited("request_refused", "revoked")["user"] == BOB
    assert site.audited("connection_refused", "revoked key")["user"] == BOB
    with pytest.raises(EnrolmentError, match="was revoked, and stays so"):
        site.admin("authorize", key=key.pair.public, user=BOB)


def test_only_operators_watch(site: MultiUser) -> None:
    """Others follow the events by asking for them."""
    watcher = EventSubscriber(site.publications, ("event.",), site.key(BOB))
    with contextlib.closing(watcher):
        found = site.audited("connection_refused", "a key for submit")
        assert (found["socket"], found["user"]) == ("watchers", BOB)
        assert not list(watcher.messages(0.3))
    path = site.root / "follows.json"
    write_key(path, KeyFile(pair=site.key(BOB).pair, server=site.server))
    with Client(site.endpoint, key=path) as client:
        events = client.events(client.last_event(), follow=True)
        number = client.submit(["true"], hold=True).job
        assert (next(events).kind, client.cancel(number)) == ("job_submitted", (number,))
        assert next(events).fields["state"] == "cancelled"
        events.close()


@pytest.mark.parametrize("way", ["revoked", "no operator any more"])
def test_who_may_watch_no_longer_hears_nothing_more(site: MultiUser, way: str) -> None:
    """The others are greeted once more, and go on."""
    mine, other = site.key("root", role="operator"), site.key("root", role="operator")
    watchers: list[EventSubscriber] = []
    try:
        for key in (mine, other, other):
            watchers.append(EventSubscriber(site.publications, ("event.",), key))
            for watcher in watchers:  # a greeting reaches all that ask for the same
                assert next(watcher.messages(10.0))[1]["welcome"]
        if way == "revoked":
            site.admin("revoke", key=other.pair.public)
        else:
            site.admin("authorize", key=other.pair.public, user="root", role="submit")
        assert next(watchers[0].messages(10.0))[1]["welcome"]
        job = site.submit(["true"], hold=True)
        topic, body = next(watchers[0].messages(10.0))
        assert "welcome" not in body, topic
        assert not list(watchers[1].messages(0.3)) + list(watchers[2].messages(0.3))
        site.ask("cancel", job=job)
    finally:
        for watcher in watchers:
            watcher.close()


def test_submit_key_is_no_executor(site: MultiUser) -> None:
    key = site.key(BOB)
    asker = RequestConnection(site.executors, timeout_s=10.0, security=key)
    with pytest.raises(KeyRefusedError):
        asker.ask(tagged(Hello(cluster="alpha")))
    asker.close()
    found = site.audited("connection_refused", "a key for submit")
    assert (found["socket"], found["key"]) == ("executors", key.pair.public[:12])


def test_executor_key_is_no_client(site: MultiUser) -> None:
    with site.asking(site.executor_calling("alpha")) as asker, pytest.raises(KeyRefusedError):
        asker.ask({"type": "status"})
    assert site.audited("connection_refused", "a key for executor")["socket"] == "clients"


def test_executor_speaks_for_its_own_cluster_only(site: MultiUser) -> None:
    asker = RequestConnection(site.executors, timeout_s=0.3, security=site.executor_calling("beta"))
    said = asker.send(tagged(Hello(cluster="alpha")))
    assert site.audited("statement_refused", "not an executor of alpha")["user"] == BOB
    with pytest.raises(NoAnswerError):  # no welcome, and no order of alpha's
        asker.answer_to(said)
    asker.close()
    assert site.ask("status")["faults"]["executor_not_allowed"] >= 1
    with site.asking(site.key(BOB)) as asker:
        submission = site.submission(["true"], job={"clusters": ["alpha"]})
        job = asker.ask({"type": "submit", **submission})["job"]
    assert site.wait(job)["state"] == "completed"  # alpha's own executor has its orders


def test_executor_with_a_revoked_key_ends_with_an_error(site: MultiUser) -> None:
    # Another's key in the executor's place: an executor that is started with it gets no further.
    folder = site.root / "state" / "executors" / "beta"
    own = site.executor_calling("beta")
    site.kill("beta", 15)
    refused = site.key(BOB, role="executor", clusters=("beta",))
    site.admin("revoke", key=refused.pair.public)
    try:
        write_key(folder / "key.json", KeyFile(pair=refused.pair, server=site.server))
        site.start_executor("beta")
        assert site.kill_when_ended("beta") == 1
        assert "refuses the key" in (site.root / "beta.log").read_text().splitlines()[-1]
    finally:
        write_key(folder / "key.json", KeyFile(pair=own.pair, server=site.server))
        site.start_executor("beta")
        site.until(site.is_complete)


def test_another_users_job(site: MultiUser) -> None:
    job = site.submit(["sleep", "60"], hold=True)
    with site.asking(site.key(BOB)) as asker:
        for verb in ("cancel", "hold", "release", "show"):
            answer = asker.ask({"type": verb, "job": job})
            assert code(answer) == "not_allowed", verb
            assert f"job {job} belongs to {ADA}" in answer["message"]
        operating = [
            {"type": "drain", "target": "alpha"},
            {"type": "resume", "target": "alpha"},
            {"type": "pause_rounds"},
            {"type": "resume_rounds"},
            {"type": "round_now"},
            {"type": "backup", "path": str(site.root / "copy")},
        ]
        for request in operating:
            assert code(asker.ask(request)) == "not_allowed", request
        rows = {row["id"]: row["user"] for row in asker.ask({"type": "queue"})["jobs"]}
        assert rows[job] == ADA
        assert code(asker.ask({"type": "why", "job": job})) == "why"
    found = site.audited("request_refused", f"job {job} belongs to {ADA}")
    assert found["user"] == BOB
    assert site.audited("request_refused", "only an operator")["user"] == BOB
    assert site.ask("cancel", job=job)["type"] == "done"


def test_forged_and_replayed_requests(site: MultiUser) -> None:
    submission = site.submission(["true"], hold=True)
    with site.asking(site.key(ADA)) as ada, site.asking(site.key(BOB)) as bob:
        first = ada.ask({"type": "submit", **submission})
        again = ada.ask({"type": "submit", **submission})
        assert (again["job"], again["again"]) == (first["job"], True)
        forged = {"type": "submit", "user": ADA, "uid": 0, "operator": True, **submission}
        other = bob.ask(forged)
        assert (other["again"], other["job"] != first["job"]) == (False, True)
        shown = bob.ask({"type": "show", "job": other["job"]})["job"]
        assert (shown["user"], shown["record"]["uid"]) == (BOB, 1)
        for asker, answer in ((ada, first), (bob, other)):
            assert asker.ask({"type": "cancel", "job": answer["job"]})["type"] == "done"


def test_recorded_bytes_are_worth_nothing(site: MultiUser) -> None:
    """All that a client has sent, sent again: the daemon's half of the handshake is another."""
    tap = Tap(site.root / "tap", site.endpoint)
    asker = RequestConnection(tap.endpoint, security=site.key(ADA))
    submission = site.submission(["true"], hold=True, name="recorded")
    job = asker.ask({"type": "submit", **submission})["job"]
    asker.close()
    tap.close()
    assert submission["token"].encode() not in tap.sent
    last = site.ask("status")
    before = [row["id"] for row in site.ask("queue", all=True)["jobs"]]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10.0)
        connection.connect(site.endpoint.removeprefix("ipc://"))
        connection.sendall(tap.sent)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(4096):
                pass  # until the daemon ends it
    site.audited("connection_refused", "made for another daemon")
    assert [row["id"] for row in site.ask("queue", all=True)["jobs"]] == before
    assert site.ask("status")["waiting"] == last["waiting"]
    site.ask("cancel", job=job)


def test_identity_is_not_taken_over(site: MultiUser) -> None:
    """A second connection under the identity of the first gets none of its answers."""
    job = site.submit(["true"], hold=True)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets = []
    for user in (ADA, BOB):
        dealer = context.socket(zmq.DEALER)
        sockets.append(dealer)
        site.key(user).apply(dealer)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.IDENTITY, b"alpha-1")
        dealer.connect(site.endpoint)
        dealer.send(encode({"type": "wait", "id": user, "job": job}))
        if user == ADA:
            dealer.send(encode({"type": "status", "id": "known"}))
            assert dealer.poll(10_000)
            assert decode_any(dealer.recv())["id"] == "known"
    ada, bob = sockets
    assert not bob.poll(300)
    site.ask("cancel", job=job)
    assert ada.poll(10_000)
    assert decode_any(ada.recv())["type"] == "ended"
    assert not bob.poll(300)
    for dealer in sockets:
        dealer.close()
    context.term()


def test_a_message_too_long_ends_its_own_connection(site: MultiUser) -> None:
    with site.asking(site.key(ADA)) as ada, site.asking(site.key(BOB)) as bob:
        assert bob.ask({"type": "status"})["user"] == BOB
        with pytest.raises(NoAnswerError):
            bob.ask({"type": "status", "filling": "x" * 100_000}, timeout_s=1.0)
        assert ada.ask({"type": "status"})["user"] == ADA


def test_keys_by_the_command_line(
    site: MultiUser, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = site.root / "mine" / "key.json"
    monkeypatch.setenv("COALLOC_CONFIG", str(site.config))
    monkeypatch.setenv("COALLOC_KEY", str(path))
    assert main.main(["queue"]) == 1
    assert "'coalloc keys new' makes one" in capsys.readouterr().err
    assert main.main(["keys", "new"]) == 0
    public = capsys.readouterr().out.strip()
    assert (path.stat().st_mode & 0o777, read_key(path).server) == (0o600, site.server)
    assert main.main(["queue"]) == 0
    assert main.main(["drain", "alpha"]) == 1
    assert "only an operator may do this" in capsys.readouterr().err
    assert main.main(["keys", "authorize", public, "--role", "operator"]) == 0
    assert main.main(["drain", "alpha"]) == main.main(["resume", "alpha"]) == 0
    assert main.main(["keys", "new"]) == 0  # the same key once more, which keeps it enrolled
    capsys.readouterr()
    assert main.main(["keys", "list", "--json"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows[public]["revoked"], rows[public]["role"]) == (None, "operator")
    dashed = "-Du(+<NeLfs&{K]4@6uP=9]hNo)W&Ve.4I/n9(sk"
    assert main.main(["keys", "authorize", "--user", "bin", "--", dashed]) == 0
    assert main.main(["keys", "revoke", "--", dashed[:9]]) == 0
    assert main.main(["keys", "revoke", public[:10]]) == 0
    assert main.main(["queue"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("coalloc: error: the daemon at ipc://")
    assert "refuses this key" in error
    path.chmod(0o644)
    assert main.main(["queue"]) == 1
    assert "a private key is 0600" in capsys.readouterr().err
    assert site.audited("key_revoked", "None")["key"] == public[:12]
