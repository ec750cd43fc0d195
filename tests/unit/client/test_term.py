"""A term is valid until its time has passed, and never again. Times are seconds of a written-down clock."""

from pinnace.client.election import LocalTerm


def test_term_is_valid_until_its_end() -> None:
    term = LocalTerm(token=7, expires_at=10.0)
    assert (term.is_valid(9.99), term.is_valid(10.0)) == (True, False)


def test_extension_moves_the_end() -> None:
    term = LocalTerm(token=7, expires_at=10.0)
    assert term.extend_until(11.0, now=9.9)
    assert term.is_valid(10.9)


def test_earlier_end_does_not_shorten_the_term() -> None:
    term = LocalTerm(token=7, expires_at=10.0)
    assert term.extend_until(9.0, now=8.0)
    assert term.is_valid(9.9)


def test_lapsed_term_cannot_be_extended() -> None:
    """After a stall, the client reads waiting responses, even those to recent heartbeats."""
    term = LocalTerm(token=7, expires_at=10.0)
    assert not term.extend_until(20.0, now=10.5)
    assert not term.is_valid(10.6)
