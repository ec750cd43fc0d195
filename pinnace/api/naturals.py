"""Whole numbers that somebody has written into a text: an annotation, a label, a resourceVersion."""

_MOST_DIGITS = 18
"""What fits into 64 bits. Of thousands of digits Python reads no number, and raises ValueError."""


def natural(text: str) -> int | None:
    """The number, from 0 on, in plain digits; None: it is none, or none that anybody counts to."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
