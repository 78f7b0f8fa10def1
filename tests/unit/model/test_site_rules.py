"""What batch systems would say to jobs, by the rules that were read of them."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.model.sites.batch_options import NAMES, BatchOptions
from coalloc.model.sites.site_rules import (
    Asking,
    Association,
    Limits,
    PartitionRules,
    Room,
    SiteRules,
    judged,
    span_text,
)

RULES = SiteRules(
    honoured=NAMES,
    usual=BatchOptions(partition="main"),
    partitions=(
        PartitionRules(name="main"),
        PartitionRules(name="short", limits=Limits(time_s=1800.0, nodes=2), default_time_s=60.0),
        PartitionRules(name="chem", accounts=("chem",), denied_qos=("low",)),
        PartitionRules(name="open", denied_accounts=("bio",), allowed_qos=("high",)),
        PartitionRules(name="wide", limits=Limits(least_nodes=4)),
        PartitionRules(name="closed", state="DRAIN"),
        PartitionRules(name="groups", gids=(50,), members=("eve",)),
        PartitionRules(name="quick", qos="tiny"),
    ),
    qos={"tiny": Limits(time_s=60.0, nodes=1), "high": Limits(nodes=8), "low": Limits()},
    rooms=(
        Room(left=0, qos="low", user="eve", why="2 of 2 jobs"),
        Room(left=3, qos="high", why="5 of 8 CPUs"),
        Room(left=0, account="bio", user="ann", why="1 of 1 jobs"),
        Room(left=0, qos="tiny", why="4 of 4 nodes"),
    ),
    licenses={"matlab": (2, 1)},
    associations=(
        Association(account="chem", user="ann", is_default=True, limits=Limits(time_s=7200.0)),
        Association(account="bio", user="ann", limits=Limits(nodes=3)),
        Association(account="chem", user="eve", is_default=True),
    ),
)


def asking(
    user: str = "ann", limit_s: float | None = 600.0, nodes: int = 1, least: int = 1, **told: Any
) -> Asking:
    ids: dict[str, Any] = {"uid": 7, "gid": 7, "least": least}
    batch = BatchOptions(**told)
    return Asking(user=user, batch=batch, time_limit_s=limit_s, nodes=nodes, **ids)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ""),
        ({"partition": "lost"}, "there is no partition lost"),
        (
            {"partition": "short", "limit_s": 7200.0},
            "partition short allows 30 min, the job asks for 2 h",
        ),
        ({"partition": "short,main", "limit_s": 7200.0}, ""),  # the other one takes it
        ({"limit_s": 90_000.0}, "account chem allows 2 h, the job asks for 25 h"),
        ({"account": "bio", "limit_s": 90_000.0}, ""),
        ({"account": "phys"}, "ann is not in account phys there, only in chem, bio"),
        ({"user": "bob"}, "bob has no account there"),
        ({"partition": "chem"}, ""),  # by her default account
        ({"partition": "chem", "account": "bio"}, "partition chem is not for account bio"),
        ({"partition": "chem", "qos": "low"}, "partition chem is not for QOS low"),
        ({"partition": "open", "account": "bio"}, "partition open is not for account bio"),
        (
            {"partition": "open", "qos": "tiny", "limit_s": 30.0},
            "partition open is not for QOS tiny",
        ),
        ({"partition": "open"}, ""),  # which QOS is her usual one is not known
        ({"qos": "tiny"}, "QOS tiny or account chem allows 1 min, the job asks for 10 min"),
        ({"partition": "quick"}, "partition quick allows 1 min, the job asks for 10 min"),
        ({"partition": "wide", "nodes": 2}, "takes no fewer than 4 nodes, the job has at most 2"),
        ({"partition": "wide", "nodes": 4}, ""),
        ({"partition": "groups"}, "partition groups is not for ann"),
        ({"partition": "groups", "user": "eve"}, ""),
        ({"partition": "closed"}, ""),  # it may open again
        ({"limit_s": None, "partition": "short"}, ""),
        ({"qos": "nosuch"}, "there is no QOS nosuch"),
        ({"licenses": "matlab:9"}, "there are 2 licences matlab, the job asks for 9"),
        ({"licenses": "matlab,idl"}, "there is no licence idl"),
        ({"licenses": "matlab:2"}, ""),
        ({"licenses": "idl|matlab"}, ""),  # either will do
    ],
)
def test_what_is_never_taken(fields: dict[str, Any], words: str) -> None:
    told = judged(RULES, asking(**fields)).never
    assert words in told
    assert bool(words) is bool(told)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ""),
        ({"qos": "low"}, ""),  # another user's
        ({"qos": "low", "user": "eve"}, "2 of 2 jobs"),
        ({"qos": "high", "least": 3}, ""),
        ({"qos": "high", "least": 4}, "5 of 8 CPUs"),
        ({"account": "bio"}, "1 of 1 jobs"),
        ({"limit_s": 60.0, "partition": "quick"}, "4 of 4 nodes"),
        ({"limit_s": 60.0, "partition": "quick,main"}, ""),
        ({"licenses": "matlab:1"}, ""),
        ({"licenses": "matlab:2"}, "1 of 2 licences matlab are free"),
    ],
)
def test_what_is_not_started_at_the_moment(fields: dict[str, Any], words: str) -> None:
    verdict = judged(RULES, asking(**fields))
    assert (verdict.full, verdict.never, verdict.closed) == (words, "", "")


def test_limits_are_the_widest_of_the_partitions_that_take_it() -> None:
    assert judged(RULES, asking(partition="short")).limits == Limits(time_s=1800.0, nodes=2)
    both = judged(RULES, asking(partition="short,main", account="bio"))
    assert both.partitions == ("short", "main")
    assert both.limits == Limits(nodes=3)  # that of the account
    assert both.default_time_s == 60.0
    assert judged(RULES, asking(qos="high", limit_s=1.0)).limits.nodes == 8


def test_closed_partition_takes_nothing_now() -> None:
    verdict = judged(RULES, asking(partition="closed"))
    assert (verdict.never, verdict.closed) == ("", "partition closed is DRAIN")


def test_option_that_a_batch_system_cannot_be_told() -> None:
    local = SiteRules()
    assert judged(local, asking(account="chem")).never == ""
    assert "--qos=low cannot be honoured" in judged(local, asking(qos="low")).never
    passed = Asking(user="ann", batch=BatchOptions(passed=("--exclude=n1",)))
    assert "--exclude=n1 cannot be honoured" in judged(local, passed).never


def test_what_is_not_known_forbids_nothing() -> None:
    verdict = judged(SiteRules(honoured=NAMES), asking(partition="any", account="x", qos="y"))
    assert (verdict.never, verdict.partitions) == ("", None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(90.0, "90 s"), (300.0, "5 min"), (7200.0, "2 h"), (5400.0, "90 min"), (172800.0, "2 d")],
)
def test_spans(seconds: float, text: str) -> None:
    assert span_text(seconds) == text
