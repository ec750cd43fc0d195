"""Whole numbers that somebody has written into a text: an annotation, a label, a resourceVersion."""

_MOST = 2**63 - 1
_MOST_DIGITS = len(str(_MOST))
"""Of thousands of digits Python reads no number, and raises ValueError."""


def natural(text: str) -> int | None:
    """The number, from 0 on and of 64 bits at most, in plain digits; None: it is none."""
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        return None
    number = int(text)
    return number if number <= _MOST else None


def integer(text: str) -> int | None:
    """The number, of 64 bits with its sign, in plain digits with or without a sign before them, as Go's strconv.ParseInt reads
    it; None: it is none."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if text[:1] != "-":
        return natural(digits)
    number = natural(digits)
    return -number if number is not None else (-_MOST - 1 if digits == str(_MOST + 1) else None)


def int32(text: str) -> int | None:
    """The number, of 32 bits with its sign, as annotations of Kubernetes have it: without a plus, and zeros before it;
    None: it is none."""
    if text.startswith("+") or (text.startswith("0") and text != "0"):
        return None
    number = integer(text)
    return number if number is not None and -(2**31) <= number < 2**31 else None
