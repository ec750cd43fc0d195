"""What a refusal may take of a call's trailers: many peers refuse more than 8 KiB, and tell their user that instead."""

from urllib.parse import quote

import pytest

from apiserver.services.handlers import MAX_DETAILS, MAX_MESSAGE, shorten
from pinnace.api.status import Code, Refusal, Violation, encode

ROOM = 8192


def refusal(message: str, *violations: Violation) -> Refusal:
    return Refusal(Code.INVALID_ARGUMENT, "Invalid", message, violations)


@pytest.mark.parametrize("text", ["a", "é", "😀", "%", "\n", "\0"])
def test_whatever_it_says_fits_into_the_trailers(text: str) -> None:
    told = shorten(refusal(text * 5000, *[Violation(text * 100, text * 200)] * 50))
    sent = len(quote(told.message, safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}")) + len(encode(told).SerializeToString()) * 4 // 3
    assert sent < ROOM - 500
    assert told.message and told.violations[-1].message.startswith("... and ")


def test_what_fits_is_told_as_it_is() -> None:
    short = refusal("a" * MAX_MESSAGE, Violation("spec", "b" * (MAX_DETAILS - 20)))
    assert shorten(short) == short
