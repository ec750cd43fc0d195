import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

import pytest

from pinnace.api.records import OMITTED, Malformed, from_json, to_json

T = TypeVar("T")


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Pair(Generic[T]):
    both: Sequence[T]


@dataclass(frozen=True, slots=True)
class Whole:
    name: str
    made_by: str = ""
    number: int = 0
    good: bool = False
    colour: Colour = Colour.RED
    main: Part | None = None
    parts: Sequence[Part] = ()
    amounts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    pair: Pair[Part] = Pair(())
    delay: float = field(default=0.0, metadata=OMITTED)


FULL = Whole(
    "w",
    made_by="us",
    number=3,
    good=True,
    colour=Colour.BLUE,
    main=Part("p", 2),
    parts=[Part("q"), Part("r", 0.5)],
    amounts={"a": [1, 2]},
    pair=Pair([Part("s")]),
    delay=1.5,
)


def test_record_is_written_as_camel_case_json() -> None:
    assert json.dumps(to_json(FULL)) == json.dumps(
        {
            "name": "w",
            "madeBy": "us",
            "number": 3,
            "good": True,
            "colour": "blue",
            "main": {"name": "p", "weight": 2},
            "parts": [{"name": "q", "weight": 1.0}, {"name": "r", "weight": 0.5}],
            "amounts": {"a": [1, 2]},
            "pair": {"both": [{"name": "s", "weight": 1.0}]},
            "delay": 1.5,
        }
    )
    empty = to_json(Whole("w"))
    assert empty["main"] is None and "delay" not in empty


def test_record_round_trip() -> None:
    assert from_json(Whole, json.loads(json.dumps(to_json(FULL)))) == FULL


def test_record_of_another_version_is_read() -> None:
    """Unknown fields are ignored, and missing fields have their defaults."""
    assert from_json(Whole, {"name": "w", "invented": {"later": 1}, "parts": [{"name": "p", "made": 7}]}) == Whole(
        "w", parts=[Part("p")]
    )


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "expected an object"),
        ([], "expected an object"),
        ({}, "name: missing field"),
        ({"name": None}, "name: expected text"),
        ({"name": "w", "number": True}, "number: expected a whole number"),
        ({"name": "w", "number": 1.5}, "number: expected a whole number"),
        ({"name": "w", "good": 1}, "good: expected true or false"),
        ({"name": "w", "delay": "1"}, "delay: expected a number"),
        ({"name": "w", "colour": "green"}, "colour: expected one of red, blue"),
        ({"name": "w", "colour": []}, "colour: expected one of red, blue"),
        ({"name": "w", "main": []}, "main: expected an object"),
        ({"name": "w", "parts": {}}, "parts: expected a list"),
        ({"name": "w", "parts": [{"name": "p"}, {}]}, "parts[1].name: missing field"),
        ({"name": "w", "amounts": []}, "amounts: expected an object"),
        ({"name": "w", "amounts": {"a": [1, "2"]}}, "amounts[a][1]: expected a whole number"),
        ({"name": "w", "pair": {"both": [3]}}, "pair.both[0]: expected an object"),
    ],
)
def test_record_of_another_shape_is_malformed(found: Any, message: str) -> None:
    with pytest.raises(Malformed) as error:
        from_json(Whole, found)
    assert str(error.value) == message
