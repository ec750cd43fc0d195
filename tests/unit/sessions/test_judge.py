"""What a cached election key says about a leadership."""

import pytest

from apiserver.election.candidates import Held, Verdict, judge
from apiserver.storage.interface import KeyValue

HELD = Held(token=10, mod_revision=12)


def record(create_revision: int, mod_revision: int) -> KeyValue:
    return KeyValue("/registry/elections/scheduler", b"", create_revision, mod_revision, version=1)


@pytest.mark.parametrize(
    ("found", "cache_revision", "verdict"),
    [
        (record(10, 12), 12, Verdict.OURS),
        (record(10, 12), 99, Verdict.OURS),
        (None, 11, Verdict.OURS),  # the cache has not seen the key yet
        (record(8, 8), 11, Verdict.OURS),  # nor that the one before is gone
        (record(10, 10), 11, Verdict.OURS),  # nor that this server has taken it over
        (None, 12, Verdict.LOST),
        (record(15, 15), 15, Verdict.LOST),
        (record(10, 14), 14, Verdict.MOVED),
    ],
)
def test_judge(found: KeyValue | None, cache_revision: int, verdict: Verdict) -> None:
    assert judge(HELD, found, cache_revision) is verdict
