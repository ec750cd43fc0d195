"""How a violation shows the value that is wrong."""

from collections.abc import Iterator
from typing import Any

import pytest

from pinnace.apiserver.registry.validation.fields import MAX_SHOWN, duplicate, invalid


class Counted(list[str]):
    """Says how many of its values were looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[str]:
        for value in super().__iter__():
            self.looked_at += 1
            yield value


def test_number_of_checked_values_is_limited() -> None:
    """There may be a violation for each of them."""
    values = Counted([""] * 100_000)
    assert str(invalid("spec.scopes", values, "no")).startswith('spec.scopes: Invalid value: ["","",')
    assert values.looked_at <= MAX_SHOWN + 1


@pytest.mark.parametrize("value", [["a" * 500], {"a" * 500: "b"}, {"a": "b" * 500}, ["é"] * 200])
def test_long_value_is_truncated(value: Any) -> None:
    shown = str(duplicate("f", value)).removeprefix("f: Duplicate value: ")
    assert len(shown) == MAX_SHOWN + 3 and shown.endswith("...")


@pytest.mark.parametrize(
    ("value", "shown"), [(["a", "b"], '["a","b"]'), ({"a": "b"}, '{"a":"b"}'), ("a", '"a"'), (True, "true")]
)
def test_short_value_is_shown_as_json(value: Any, shown: str) -> None:
    assert str(duplicate("f", value)) == f"f: Duplicate value: {shown}"
