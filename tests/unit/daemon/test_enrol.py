"""Enrolment as its users meet it: the proof of a key, the limits of changes, the audit."""

from __future__ import annotations

import json
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from coalloc.daemon.access.access import Access
from coalloc.daemon.access.enrolment import (
    CHANGES_PER_MINUTE,
    LINES_AT_ONCE,
    Conversation,
    Enrolment,
    Peer,
)
from coalloc.daemon.access.key_table import KeyTable
from coalloc.daemon.access.own_clusters import MAX_OWN, with_own
from coalloc.model.settings import AccessConfig, ClusterConfig, Config
from coalloc.runtime import logs
from coalloc.wire.curve import KeyPair, new_pair
from coalloc.wire.key_proof import ProofError, new_challenge, nonce_of, sealed

NAMES = {uid: pwd.getpwuid(uid).pw_name for uid in (1, 65534)}
BOB, EVE = (Peer(user=name, uid=uid, is_admin=False) for uid, name in NAMES.items())
ROOT = Peer(user="root", uid=0, is_admin=True)


class EnrolmentTestbed:
    """An enrolment whose clock stands still until it is told."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.changed: list[str] = []
        table = KeyTable(folder / "keys.json")
        access = Access(new_pair(), table, AccessConfig(), logs.get_logger())
        self.enrolment = Enrolment(
            access,
            Config(clusters=(ClusterConfig(name="alpha"),)),
            on_change=self.changed.append,
            clock=lambda: 5.0,
            timer=lambda: self.now,
        )

    def ask(self, peer: Peer, pair: KeyPair | None = None, **fields: Any) -> Mapping[str, Any]:
        """Ask, and prove where that is demanded and `pair` given."""
        conversation = Conversation(self.enrolment, peer)
        answer = conversation.answer(json.dumps(fields).encode())
        assert conversation.is_open is ("challenge" in answer)
        if pair is not None and conversation.is_open:
            proof = nonce_of(answer["challenge"], pair, peer.uid)
            answer = conversation.answer(json.dumps({"proof": proof}).encode())
            assert not conversation.is_open
        return answer

    def enrol(self, peer: Peer, pair: KeyPair) -> Mapping[str, Any]:
        return self.ask(peer, pair, verb="authorize", key=pair.public)


@pytest.fixture
def bed(tmp_path: Path) -> EnrolmentTestbed:
    return EnrolmentTestbed(tmp_path)


def test_who_holds_a_key_enrols_it(bed: EnrolmentTestbed) -> None:
    pair = new_pair()
    answer = bed.enrol(BOB, pair)
    assert (answer["key"]["key"], answer["key"]["uid"]) == (pair.public, BOB.uid)
    assert answer["server"] == bed.enrolment.access.pair.public
    assert bed.enrol(BOB, pair)["key"] == answer["key"], "once more, it is as it was"


def test_who_only_knows_a_key_neither_binds_nor_revokes_it(bed: EnrolmentTestbed) -> None:
    bobs = new_pair()
    conversation = Conversation(bed.enrolment, EVE)
    question = {"verb": "authorize", "key": bobs.public}
    assert "challenge" in conversation.answer(json.dumps(question).encode())
    for proof in ({"proof": ""}, {}):
        answer = conversation.answer(json.dumps(proof).encode())
        assert "error" in answer, "and there is no second try"
    assert bed.enrolment.access.table.known(bobs.public) is None
    assert bed.enrol(BOB, bobs)["key"]["user"] == BOB.user
    assert "no key that you may revoke" in bed.ask(EVE, verb="revoke", key=bobs.public)["error"]
    assert bed.enrol(EVE, bobs)["error"] == "key: belongs to another user"


def test_a_revoked_key_is_not_enrolled_again_even_with_its_private_half(
    bed: EnrolmentTestbed,
) -> None:
    stolen = new_pair()
    bed.enrol(BOB, stolen)
    assert bed.ask(BOB, verb="revoke", key=stolen.public)["key"]["revoked"] == 5.0
    assert bed.changed == [stolen.public]
    for peer in (BOB, EVE):
        assert "was revoked, and stays so" in bed.enrol(peer, stolen)["error"]


def test_root_decides_without_a_proof(bed: EnrolmentTestbed) -> None:
    key = new_pair().public
    assert bed.ask(ROOT, verb="authorize", key=key, user=BOB.user)["key"]["uid"] == BOB.uid
    assert bed.ask(ROOT, verb="authorize", key=key, user=BOB.user, role="operator")["server"]
    assert bed.changed == [key], "it was a submitter's"


def test_a_user_registers_clusters_of_his_own_under_his_own_name(bed: EnrolmentTestbed) -> None:
    def enrol(peer: Peer, *clusters: str, **fields: Any) -> str:
        asked = {"verb": "authorize", "role": "executor", "clusters": clusters, **fields}
        pair = new_pair()
        bed.now += 60.0
        answer = bed.ask(peer, pair, key=pair.public, **asked)
        return str(answer.get("error", answer.get("key", {}).get("key")))

    def listed() -> list[tuple[str, str]]:
        known = with_own(Config(clusters=(ClusterConfig(name="alpha"),)), table)
        return [(each.name, each.owner) for each in known.clusters]

    table = bed.enrolment.access.table
    first = enrol(BOB, f"x@{BOB.user}")
    assert bed.enrolment.access.may_speak_for(first, f"x@{BOB.user}")
    for others in ("alpha", f"x@{EVE.user}", "x", f"x y@{BOB.user}", f"@{BOB.user}", "a/b"):
        assert "cluster" in enrol(BOB, others), others
        assert "cluster" in enrol(BOB, f"y@{BOB.user}", others), others
    assert "ask root" in enrol(BOB), "an executor of none"
    assert "ask root" in enrol(EVE, f"x@{BOB.user}", user=BOB.user)
    assert "there is no cluster" in enrol(ROOT, f"x@{BOB.user}", user=EVE.user)
    for number in range(MAX_OWN - 1):
        enrol(BOB, f"c{number}@{BOB.user}")
    assert "may have no more; disconnect one" in enrol(BOB, f"z@{BOB.user}")
    assert bed.enrolment.access.table.live(enrol(BOB, f"x@{BOB.user}")), "a second key for one"
    assert len(listed()) == 1 + MAX_OWN
    assert listed()[0] == ("alpha", "")
    assert listed()[-1] == (f"x@{BOB.user}", BOB.user)
    bed.ask(BOB, verb="revoke", key=next(g.key for g in table if g.clusters[0][:2] == "c0"))
    assert len(listed()) == MAX_OWN


def test_a_key_that_nothing_can_be_sealed_for_is_refused(bed: EnrolmentTestbed) -> None:
    assert "key:" in bed.ask(BOB, verb="authorize", key="0" * 40)["error"]


def test_a_challenge_is_answered_by_the_user_it_was_made_for_only() -> None:
    """A false daemon that passes the true one's challenge on gets no answer."""
    pair = new_pair()
    challenge, nonce = new_challenge(pair.public, 1)
    assert nonce_of(challenge, pair, 1) == nonce
    with pytest.raises(ProofError, match="another user"):
        nonce_of(challenge, pair, 2)
    for strange in ("", "AAAA", 5, None, sealed(pair.public, b"[]"), sealed(pair.public, b"\xff")):
        with pytest.raises(ProofError, match="not made for this key"):
            nonce_of(strange, pair, 1)
    with pytest.raises(ProofError, match="not made for this key"):
        nonce_of(challenge, new_pair(), 1)


def test_changes_of_one_user_are_limited(bed: EnrolmentTestbed) -> None:
    for _ in range(CHANGES_PER_MINUTE // 2):
        pair = new_pair()
        assert "key" in bed.enrol(BOB, pair)
        assert "key" in bed.ask(BOB, verb="revoke", key=pair.public)
    pair = new_pair()
    error = f"{BOB.user} changes keys too often, at most 10 times in a minute; try again in 6 s"
    assert bed.enrol(BOB, pair) == {"error": error}
    assert "key" in bed.enrol(EVE, new_pair()), "another is not concerned"
    assert "keys" in bed.ask(BOB, verb="list")
    bed.now = 6.0
    assert "key" in bed.enrol(BOB, pair)
    for _ in range(3 * CHANGES_PER_MINUTE):
        assert "key" in bed.ask(ROOT, verb="authorize", key=pair.public, user=BOB.user)


def test_what_changes_nothing_does_not_count(bed: EnrolmentTestbed) -> None:
    pair = new_pair()
    for _ in range(3 * CHANGES_PER_MINUTE):
        assert "key" in bed.enrol(BOB, pair)
    bed.ask(BOB, verb="revoke", key=pair.public)
    for _ in range(3 * CHANGES_PER_MINUTE):
        assert "key" in bed.ask(BOB, verb="revoke", key=pair.public)


def test_questions_of_one_user_are_limited(bed: EnrolmentTestbed) -> None:
    for _ in range(int(LINES_AT_ONCE)):
        bed.enrolment.check_line(BOB)
    with pytest.raises(match=r"asks too often, .*; try again in 1 s"):
        bed.enrolment.check_line(BOB)
    bed.enrolment.check_line(EVE)
    bed.enrolment.check_line(ROOT)


def test_refusals_share_a_line_whatever_was_asked(bed: EnrolmentTestbed) -> None:
    with structlog.testing.capture_logs() as lines:
        for number in range(100):
            bed.ask(BOB, verb=f"verb{number}")
            bed.ask(BOB, verb="revoke", key=f"{number:012}")
            bed.ask(BOB, verb="authorize", key="x", user=f"user{number}")
    starts = [line["what"].partition(":")[0].partition(" ")[0] for line in lines]
    assert starts == ["verb", "key", BOB.user]
