"""What a cached election key says about a leadership."""

import pytest

from pinnace.apiserver.election.candidate_queue import HeldKey, KeyState, key_state
from pinnace.apiserver.storage.interface import KeyValue

HELD = HeldKey(token=10, mod_revision=12)


def record(create_revision: int, mod_revision: int) -> KeyValue:
    return KeyValue("/registry/elections/scheduler", b"", create_revision, mod_revision, version=1)


@pytest.mark.parametrize(
    ("found", "cache_revision", "verdict"),
    [
        (record(10, 12), 12, KeyState.OURS),
        (record(10, 12), 99, KeyState.OURS),
        (None, 11, KeyState.OURS),  # the cache has not seen the key yet
        (record(8, 8), 11, KeyState.OURS),  # nor that the one before is gone
        (record(10, 10), 11, KeyState.OURS),  # nor that this server has taken it over
        (None, 12, KeyState.LOST),
        (record(15, 15), 15, KeyState.LOST),
        (record(10, 14), 14, KeyState.MOVED),
    ],
)
def test_judge(found: KeyValue | None, cache_revision: int, verdict: KeyState) -> None:
    assert key_state(HELD, found, cache_revision) is verdict
