"""Decoding any struct: unknown fields, nulls, and one sentence for each kind of mistake."""

from __future__ import annotations

import enum
from typing import Annotated, ClassVar, Literal

import msgspec
import pytest
from msgspec import Meta

from sglr_proto.decoding import decode
from sglr_proto.errors import ManifestError


class Colour(enum.StrEnum):
    """An enum."""

    RED = "Red"
    BLUE = "Blue"


class Wheel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part."""

    tyre_size: Annotated[int, Meta(ge=10)]


class Car(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A struct with every shape that specs are made of."""

    tolerated: ClassVar[frozenset[str]] = frozenset({"licence"})

    wheels: tuple[Wheel, ...] = ()
    spare: Annotated[Wheel | None, Meta(description="optional")] = None
    colour: Annotated[Colour | None, Meta(description="optional")] = None
    paints: dict[Annotated[str, Meta(max_length=5)], Colour] = {}
    notes: dict[str, Annotated[str, Meta(max_length=3)]] = {}
    drive: Literal["front", "rear"] = "front"
    size: int | str = 0

    def __post_init__(self) -> None:
        """Refuse one size, in a sentence without a path."""
        if self.size == "huge":
            raise ValueError("size is 'huge'; expected less")


def told(value: object) -> tuple[str, str]:
    """Return the sentence and the path that *value* is refused with."""
    with pytest.raises(ManifestError) as caught:
        decode(value, Car, owner="Car 'a'", lenient=False)
    return str(caught.value).removeprefix("Car 'a': "), caught.value.path


@pytest.mark.parametrize(
    ("value", "sentence", "path"),
    [
        ([], "the object is a list of 0; expected a mapping.", ""),
        ({"wheels": [{}]}, "wheels[0].tyreSize is missing.", "wheels[0].tyreSize"),
        (
            {"wheels": [{"tyreSize": 10}, {"tyreSize": 9}]},
            "wheels[1].tyreSize is 9; expected an integer >= 10.",
            "wheels[1].tyreSize",
        ),
        (
            {"spare": {"tyreSize": "x" * 200}},
            f"spare.tyreSize is '{'x' * 75}...'; expected an integer.",
            "spare.tyreSize",
        ),
        (
            {"spare": {"tyresize": 10}},
            "spare.tyresize is unknown; did you mean tyreSize? The fields here are tyreSize.",
            "spare.tyresize",
        ),
        ({"spare": 3}, "spare is 3; expected a mapping.", "spare"),
        ({"colour": "red"}, "colour is 'red'; expected one of Red, Blue.", "colour"),
        ({"drive": "all"}, "drive is 'all'; expected one of front, rear.", "drive"),
        (
            {"paints": {"roof": "Green"}},
            "paints has a wrong value; expected one of Red, Blue.",
            "paints",
        ),
        (
            {"paints": {"bonnet": "Red"}},
            "paints has a wrong key; expected a string of length <= 5.",
            "paints",
        ),
        (
            {"notes": {"a": "long"}},
            "notes has a wrong value; expected a string of length <= 3.",
            "notes",
        ),
        ({"size": "huge"}, "size is 'huge'; expected less.", ""),
        (
            {"size": []},
            "size is a list of 0; expected an integer or a string.",
            "size",
        ),
        ({1: 2}, "1 is unknown; the fields here are wheels, spare, colour, ", "1"),
    ],
)
def test_each_kind_of_mistake_has_its_sentence(value: object, sentence: str, path: str) -> None:
    """Path, what stands there, what was expected: in the author's words, not in Python's."""
    found, where = told(value)

    assert found.startswith(sentence)
    assert where == path


def test_null_is_absent_at_every_depth() -> None:
    """An API server drops nulls before it fills in defaults; so does a file."""
    value: object = {"wheels": [{"tyreSize": 12}], "spare": None, "colour": None, "drive": None}

    assert decode(value, Car, owner="", lenient=False) == Car(wheels=(Wheel(tyre_size=12),))


def test_leniency_drops_unknown_fields_behind_lists_and_optionals() -> None:
    """Nothing unknown is kept, wherever it stands."""
    value: object = {
        "wheels": [{"tyreSize": 12, "x": 1}],
        "spare": {"tyreSize": 13, "x": {"y": []}},
        "x": 1,
        "licence": 1,
    }

    decoded = decode(value, Car, owner="", lenient=True)

    assert decoded == Car(wheels=(Wheel(tyre_size=12),), spare=Wheel(tyre_size=13))


def test_tolerated_fields_are_dropped_in_strict_reading_too() -> None:
    """What a class tolerates is neither kept nor refused."""
    assert decode({"licence": {"any": "thing"}}, Car, owner="", lenient=False) == Car()
