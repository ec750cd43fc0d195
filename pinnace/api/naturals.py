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
