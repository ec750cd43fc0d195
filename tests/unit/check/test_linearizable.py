"""The linear scan of I7 gives the same verdict as a search through all orders of small histories."""

from collections.abc import Sequence
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from pinnace.history.records import CallItem, CallRecord, RunInfo, StoredChange
from pinnace.verification.check.check import check_history
from tests.examples import examples

KEYS = ("/registry/namespaces/a", "/registry/namespaces/b")
LATE = 1e9
"""The watch of etcd delivers all events after the last call, so that only the calls are compared."""

intervals = st.tuples(st.integers(0, 8), st.integers(0, 5)).map(lambda pair: (float(pair[0]), float(sum(pair))))
writes = st.lists(st.tuples(st.sampled_from(KEYS), intervals), min_size=1, max_size=3)
reads = st.lists(st.tuples(st.sampled_from((*KEYS, "all")), intervals, st.integers(0, 4)), min_size=1, max_size=3)


@settings(max_examples=examples(200), deadline=None)
@given(writes, reads)
def test_linear_scan_agrees_with_exhaustive_search(
    written: list[tuple[str, tuple[float, float]]], read: list[tuple[str, tuple[float, float], int]]
) -> None:
    stored, calls = _history(written, read)
    report = check_history([RunInfo(0.0, private=("/registry/",)), *stored, *calls], only={"I7"})
    (verdict,) = [verdict for verdict in report.verdicts if verdict.name == "I7"]
    assert (verdict.status == "holds") == _search(stored, calls)


def _history(
    written: list[tuple[str, tuple[float, float]]], read: list[tuple[str, tuple[float, float], int]]
) -> tuple[list[StoredChange], list[CallRecord]]:
    """Writes have consecutive revisions from 2 on.

    A read returns the state at some revision: a version or nothing. A list returns its revision.
    """
    stored: list[StoredChange] = []
    calls: list[CallRecord] = []
    for revision, (key, (began, ended)) in enumerate(written, 2):
        created = next((item.revision for item in stored if item.key == key), revision)
        stored.append(StoredChange(LATE, revision, key, f"{revision}", created))
        calls.append(CallRecord("c", len(calls), "s", "update", "namespaces", began, ended, items=(CallItem(key, revision),)))
    for what, (began, ended), at in read:
        revision = min(1 + at, stored[-1].revision)
        result = [item for item in stored if item.key == what and item.revision <= revision]
        number = len(calls)
        if what == "all":
            calls.append(CallRecord("c", number, "s", "list", "namespaces", began, ended, snapshot=revision, of=number))
        else:
            items = (CallItem(what, result[-1].revision if result else 0),)
            calls.append(
                CallRecord("c", number, "s", "get", "namespaces", began, ended, code="" if result else "NOT_FOUND", items=items)
            )
    return stored, calls


def _search(stored: Sequence[StoredChange], calls: Sequence[CallRecord]) -> bool:
    """Whether some order of all calls respects real time and explains each response."""
    return any(_agrees(order) and _explains(order, stored) for order in permutations(calls))


def _agrees(order: Sequence[CallRecord]) -> bool:
    return not any(later.ended < earlier.began for index, earlier in enumerate(order) for later in order[index + 1 :])


def _explains(order: Sequence[CallRecord], stored: Sequence[StoredChange]) -> bool:
    """Writes are applied in the order of their revisions. A read returns the last version before it."""
    revision, now = 1, dict.fromkeys(KEYS, 0)
    for call in order:
        if call.verb == "update":
            (item,) = call.items
            if item.revision != revision + 1:
                return False
            revision = now[item.key] = item.revision
        elif call.verb == "list":
            if call.snapshot != revision:
                return False
        elif now[call.items[0].key] != call.items[0].revision:
            return False
    return True
