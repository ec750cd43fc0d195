"""Quantities: exact values, independent of the notation."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api.quantity import MAX, QuantityError, amount, amounts, canonicalize_quantity, format_amount, parse
from pinnace.api.resource_v1_pb2 import Quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("-1", "-1"),
        ("1.", "1"),
        (".5", "0.5"),
        ("500m", "0.5"),
        ("1u", "0.000001"),
        ("1n", "0.000000001"),
        ("1k", "1000"),
        ("1Ki", "1024"),
        ("1.5Gi", "1610612736"),
        ("1E", "1000000000000000000"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("1e-3", "0.001"),
        ("12e+2", "1200"),
        (str(MAX), str(MAX)),
        ("7Ei", str(7 * 2**60)),
        ("0.123456789012345678901234567890123456789Ki", "126.419751948641975194864197519486419751936"),
    ],
)
def test_parse(text: str, value: str) -> None:
    assert parse(text) == Decimal(value)


@pytest.mark.parametrize(
    "text",
    [
        *("", " 1", "1 ", "1\n", "m", "1mm", "1MB", "1gi", "0x10", "1_000", "1,5", "--1", "1e", "1e1234", "inf", "nan", "٣"),
        *("1e3Mi", "8Ei", str(MAX + 1), "-8Ei", "1e999", "1" * 65),
    ],
)
def test_malformed_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse(text)


@pytest.mark.parametrize(
    ("resource", "text", "value"),
    [
        ("cpu", "1", 1000),
        ("cpu", "500m", 500),
        ("cpu", "0.0001", 1),
        ("cpu", "1n", 1),
        ("cpu", "-0.0001", 0),
        ("memory", "64Mi", 64 << 20),
        ("memory", "0.5", 1),
        ("memory", "100m", 1),
        ("pods", "110", 110),
        ("example.com/gpu", "2", 2),
        ("memory", str(MAX), MAX),
    ],
)
def test_amounts_round_up(resource: str, text: str, value: int) -> None:
    assert amount(resource, text) == value


def test_amounts_of_a_resource_list() -> None:
    assert amounts({"cpu": Quantity(string="2"), "pods": Quantity(string="3")}) == {"cpu": 2000, "pods": 3}


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("memory", 512 << 20, "512Mi"),
        ("memory", 1 << 60, "1Ei"),
        ("memory", 1000, "1k"),
        ("memory", 1001, "1001"),
        ("memory", 3 * 10**9, "3G"),
        ("memory", 10**10, "10G"),  # equals 9765625Ki
        ("memory", 1000 << 20, "1000Mi"),  # equals 1048576k
        ("memory", 0, "0"),
        ("ephemeral-storage", 2048, "2Ki"),
        ("pods", 1024, "1024"),
    ],
)
def test_format(resource: str, value: int, text: str) -> None:
    assert format_amount(resource, value) == text


@given(st.sampled_from(["cpu", "memory", "ephemeral-storage", "pods"]), st.integers(0, 2**53))
def test_formatted_quantity_parses_to_the_same_value(resource: str, value: int) -> None:
    assert amount(resource, format_amount(resource, value)) == value


@given(st.text(max_size=70))
def test_arbitrary_text_is_parsed_or_refused(text: str) -> None:
    try:
        assert abs(parse(text)) <= MAX
    except QuantityError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("text", "served"),
    [
        *(
            (".5", "500m"),
            ("0.1", "100m"),
            ("1000m", "1"),
            ("1000M", "1G"),
            ("2000k", "2M"),
            ("12345M", "12345M"),
            ("1E", "1E"),
        ),
        *(
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("1023Ki", "1023Ki"),
            ("0.5Ki", "512"),
            ("0.1Ki", "102400m"),
            ("1.1Mi", "1153433600m"),
        ),
        *(("1e3", "1e3"), ("1E3", "1e3"), ("0.5e3", "500"), ("12e4", "120e3"), ("1e-3", "1e-3")),
        *(("0Gi", "0"), ("-0", "0"), ("+3", "3"), ("-1.5", "-1500m"), ("1n", "1n"), ("0.1n", "1n"), ("1024", "1024")),
    ],
)
def test_canonical_form_matches_kubernetes(text: str, served: str) -> None:
    """website#29227: `.5` was served as `0.5`, and `1000M` was served unchanged."""
    assert canonicalize_quantity(text) == served
    assert canonicalize_quantity(served) == served


@given(st.decimals(min_value=0, max_value=2**40, places=9), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "e3", "e-2"]))
def test_canonical_form_keeps_the_value_rounded_up_to_nanos(number: Decimal, suffix: str) -> None:
    value = parse(f"{number:f}{suffix}")
    served = parse(canonicalize_quantity(f"{number:f}{suffix}"))
    assert value <= served < value + Decimal("1e-9")
