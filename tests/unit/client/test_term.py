"""A term is valid until its time has run out, and never again. Seconds on a clock that the tests write down."""

from pinnace.client.election import Term


def test_valid_until_its_end() -> None:
    term = Term(token=7, until=10.0)
    assert (term.valid(9.99), term.valid(10.0)) == (True, False)


def test_answers_extend_it() -> None:
    term = Term(token=7, until=10.0)
    assert term.extend(11.0, now=9.9)
    assert term.valid(10.9)


def test_an_answer_to_an_old_beat_does_not_shorten_it() -> None:
    term = Term(token=7, until=10.0)
    assert term.extend(9.0, now=8.0)
    assert term.valid(9.9)


def test_a_lapse_is_final() -> None:
    """After a stall the answers that waited in the socket are read, even to beats that were sent just now."""
    term = Term(token=7, until=10.0)
    assert not term.extend(20.0, now=10.5)
    assert not term.valid(10.6)
