"""Options as their classes declare them: words, kinds, order, and what is said of a wrong value."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from coalloc.model.errors import InputError
from coalloc.policies.options import (
    CommonOptions,
    GuardAfter,
    defaults_of,
    options_of,
    parse_options,
    read_known,
    read_options,
)
from coalloc.policies.registry import POLICIES


class Own(CommonOptions, frozen=True, kw_only=True):
    guard_after: GuardAfter = 3
    width: Annotated[int, Meta(gt=0)] | None = None
    """Processes; null: any."""
    shares: tuple[Annotated[float, Meta(gt=0)], ...] = ()
    """Of each cluster."""
    pace: Literal["slow", "fast"] = "slow"
    """Slow or fast."""


def test_each_option_of_each_policy_says_what_it_means() -> None:
    for policy in POLICIES.values():
        for option in options_of(policy.options).values():
            assert option.doc.endswith("."), (policy.name, option.name)
            assert option.schema["description"] == option.doc
            assert option.read(option.default, option.name) == option.default


def test_options_stand_where_they_were_declared_first() -> None:
    names = list(options_of(CommonOptions))
    assert list(defaults_of(Own)) == [*names, "width", "shares", "pace"]
    assert defaults_of(Own)["guard_after"] == 3


def test_kinds_and_choices_are_in_the_schema() -> None:
    own = options_of(Own)
    assert own["width"].schema["anyOf"][0] == {"type": "integer", "exclusiveMinimum": 0}
    assert own["pace"].schema["enum"] == ["slow", "fast"]
    assert own["pace"].doc == "Slow or fast."


def test_values_are_read_as_the_kind() -> None:
    read = read_options({"width": 4.0, "shares": [1, 0.5], "coallocation": "allowed"}, Own)
    assert (read["width"], read["shares"], read["coallocation"]) == (4, (1.0, 0.5), "sooner")
    assert isinstance(read["width"], int)
    assert read_options(read, Own) == read
    assert read_known({"pace": "fast", "other": 1}, Own)["pace"] == "fast"
    assert parse_options(["pace=fast", "shares=[0.5]", "width=null"], Own) == {
        "pace": "fast",
        "shares": (0.5,),
        "width": None,
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"width": 0}, "options.width: 0 is not above 0"),
        ({"width": 2.5}, "options.width: 2.5 is not a whole number"),
        ({"width": True}, "options.width: true is not a whole number"),
        ({"shares": 1}, "options.shares: 1 is not a list"),
        ({"shares": [1, 0]}, "options.shares[1]: 0 is not above 0"),
        ({"pace": "fas"}, "options.pace: 'fas' is not one of slow, fast"),
        ({"pace": 1}, "options.pace: 1 is not a text"),
        ({"power_step": float("nan")}, "options.power_step: nan is not a finite number"),
        ({"width": 10**18 + 1}, "options.width: 1000000000000000001 is above 1e+18"),
        ({"skip": True}, "options skip: unknown option; this policy has coallocate_moldable, "),
    ],
)
def test_a_wrong_value_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_options(given, Own)
    assert str(caught.value).startswith(said)
