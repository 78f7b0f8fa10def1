"""Words beside fields: found in the source, on one line, those of base classes too."""

from enum import StrEnum

from msgspec import Struct

from coalloc.model.formats.words import field_words


class Base(Struct, kw_only=True):
    """A class with words.

    Not of a field.
    """

    limit: float = 1.0
    """Seconds."""
    name: str
    many: int = 0
    """More than fits
    on one line."""

    def wait(self) -> None:
        """Not of a field either."""


class Heir(Base, kw_only=True):
    more: int = 0
    """Its own."""
    limit: float = 2.0
    """Seconds, at least 2."""


def test_words_are_those_below_the_fields() -> None:
    assert field_words(Base) == {"limit": "Seconds.", "many": "More than fits on one line."}


def test_words_are_inherited_in_the_order_of_the_fields() -> None:
    assert list(field_words(Heir).items()) == [
        ("limit", "Seconds, at least 2."),
        ("many", "More than fits on one line."),
        ("more", "Its own."),
    ]


def test_a_class_without_source_has_no_words() -> None:
    assert field_words(int) == {}


class Colour(StrEnum):
    RED = "red"
    """Of blood."""
    BLUE = "blue"


def test_members_of_an_enumeration_have_words_too() -> None:
    assert field_words(Colour) == {"RED": "Of blood."}
