"""Kubernetes quantities: "500m", "1.5Gi", "3k", "1e3".

Amounts are exact integers: thousandths for cpu, and units for other resources. They are rounded up as in Kubernetes.
Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache
from operator import itemgetter

from pinnace.api.resource_v1_pb2 import Quantity

_SYNTAX = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)|[eE]([+-]?\d{1,3}))?", re.ASCII)
_SUFFIX = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9),
    "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30),
    "Ti": Decimal(2**40), "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_UNITS = sorted(((suffix, int(unit)) for suffix, unit in _SUFFIX.items() if unit > 1), key=itemgetter(1), reverse=True)
"""Units of bytes, largest first, so that the largest unit that divides an amount is found first."""
_NANO = Decimal(10**9)
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_EXACT = Context(prec=200)
"""A precision that is sufficient for any text of 64 characters with a suffix."""
MAX = 2**63 - 1
"""The maximum amount. Amounts are 64-bit integers as in Kubernetes."""


class QuantityError(ValueError):
    """The text is not a valid quantity."""


@lru_cache(maxsize=4096)
def parse(text: str) -> Decimal:
    """Return the exact value. Raises QuantityError."""
    match = _SYNTAX.fullmatch(text)
    if match is None or len(text) > 64:
        raise QuantityError(f'"{text[:64]}" is not a quantity; expected a number with an optional suffix, e.g. 500m or 1.5Gi')
    sign, digits, suffix, exponent = match.groups()
    value = _EXACT.multiply(Decimal(digits), _SUFFIX[suffix]) if suffix else Decimal(digits)
    if exponent:
        value = value.scaleb(int(exponent), _EXACT)
    if value > MAX:
        raise QuantityError(f'"{text}" is larger than 2^63-1')
    return value.copy_negate() if sign == "-" else value


@lru_cache(maxsize=4096)
def canonicalize_quantity(text: str) -> str:
    """Return the canonical form in which Kubernetes serves a quantity: ".5" -> "500m", "1000M" -> "1G", "1.5Gi" -> "1536Mi".

    The number has no fraction. The suffix is the largest one that permits this, within the family of the text's suffix
    (decimal, binary or exponent). Binary amounts below 1024 or with a fraction become decimal. Raises QuantityError.
    Source: Quantity.CanonicalizeBytes in https://github.com/kubernetes/apimachinery/blob/master/pkg/api/resource/quantity.go
    """
    nanos = int(_EXACT.multiply(abs(parse(text)), _NANO).to_integral_value(ROUND_CEILING))
    if not nanos:
        return "0"
    sign = "-" if text.startswith("-") else ""
    units, fraction = divmod(nanos, 10**9)
    if text.endswith("i") and not fraction and units >= 1024:
        number, power = _factor_out(units, 1024)
        return f"{sign}{number}{_BINARY[power]}"
    number, thousands = _factor_out(nanos, 1000)
    exponent = 3 * thousands - 9
    if text[-1].isdigit() and ("e" in text or "E" in text):
        return f"{sign}{number}e{exponent}" if exponent else f"{sign}{number}"
    return f"{sign}{number}{_DECIMAL[exponent]}"


def _factor_out(number: int, base: int) -> tuple[int, int]:
    """Factor `number` > 0 into (rest, power) with rest * base**power == number and the largest power."""
    power = 0
    while number % base == 0:
        number, power = number // base, power + 1
    return number, power


@lru_cache(maxsize=4096)
def amount(resource: str, text: str) -> int:
    """Return the amount of a resource as an integer, rounded up: millicores for cpu, bytes or a count for other resources."""
    value = parse(text)
    return int((_EXACT.multiply(value, Decimal(1000)) if resource == "cpu" else value).to_integral_value(ROUND_CEILING))


def amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """Return the amounts of a resource list by resource name."""
    return {name: amount(name, quantity.string) for name, quantity in quantities.items()}


def format_amount(resource: str, value: int) -> str:
    """Return the shortest common notation: for cpu 1500 -> "1500m", 2000 -> "2"; for memory 536870912 -> "512Mi", 10**10 ->
    "10G"."""
    if resource == "cpu":
        return f"{value}m" if value % 1000 else str(value // 1000)
    if resource in ("memory", "ephemeral-storage"):
        for suffix, unit in _UNITS:
            if value and value % unit == 0:
                return f"{value // unit}{suffix}"
    return str(value)
