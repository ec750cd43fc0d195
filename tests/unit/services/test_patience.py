"""How long a read may wait."""

from types import SimpleNamespace

import pytest

from pinnace.apiserver.services.methods import READ_TIMEOUT, REPLY_MARGIN, read_timeout


@pytest.mark.parametrize(
    ("remaining", "waits"),
    [
        (None, READ_TIMEOUT),
        (60.0, READ_TIMEOUT),
        (READ_TIMEOUT, READ_TIMEOUT - REPLY_MARGIN),
        (0.5, 0.4),
        (0.0, 0.0),
        (-1.0, 0.0),
    ],
)
def test_there_is_time_to_tell_the_caller(remaining: float | None, waits: float) -> None:
    assert read_timeout(SimpleNamespace(time_remaining=lambda: remaining)) == pytest.approx(waits)
