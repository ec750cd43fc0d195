"""Integers in text, as Kubernetes reads them. The module imports nothing, because short commands use it."""

_MOST = 2**63 - 1
_MOST_DIGITS = len(str(_MOST))
"""The maximum number of digits to parse. Python raises ValueError for numbers with thousands of digits."""


def parse_natural(text: str) -> int | None:
    """Parse a non-negative 64-bit integer in decimal digits. Return None if the text is invalid."""
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        return None
    number = int(text)
    return number if number <= _MOST else None


def parse_integer(text: str) -> int | None:
    """Parse a signed 64-bit integer in decimal digits, like Go's strconv.ParseInt. Return None if the text is invalid."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if text[:1] != "-":
        return parse_natural(digits)
    number = parse_natural(digits)
    return -number if number is not None else (-_MOST - 1 if digits == str(_MOST + 1) else None)


def parse_int32(text: str) -> int | None:
    """Parse a signed 32-bit integer without a plus sign and without leading zeros, as in Kubernetes' annotations. Return None
    if the text is invalid."""
    if text.startswith("+") or (text.startswith("0") and text != "0"):
        return None
    number = parse_integer(text)
    return number if number is not None and -(2**31) <= number < 2**31 else None
