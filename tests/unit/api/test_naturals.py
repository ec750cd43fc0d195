"""Parsing of whole numbers."""

import pytest

from pinnace.api.integers import parse_int32, parse_integer, parse_natural


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1.0", None),
        (" 1", None),
        ("1_000", None),
        ("²", None),
        ("٣", None),
        ("9" * 19, None),
        ("1" * 5000, None),
    ],
)
def test_natural(text: str, expected: int | None) -> None:
    assert parse_natural(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", None),
        ("1_000", None),
        ("--1", None),
        ("-", None),
        ("", None),
        ("٣", None),
        ("-" + "1" * 5000, None),
    ],
)
def test_integer(text: str, expected: int | None) -> None:
    assert parse_integer(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("7", 7),
        ("-7", -7),
        ("-07", -7),
        ("2147483647", 2**31 - 1),
        ("2147483648", None),
        ("-2147483648", -(2**31)),
        ("-2147483649", None),
        ("+7", None),
        ("07", None),
        ("", None),
        ("-", None),
        ("1e3", None),
    ],
)
def test_int32(text: str, expected: int | None) -> None:
    assert parse_int32(text) == expected
