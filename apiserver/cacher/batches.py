"""Cutting what the storage's watch delivers into batches of a size that one response can carry. Pure."""

from collections.abc import Iterator, Sequence

from apiserver.storage.interface import Change, Changes

MAX_CHANGES = 1000
MAX_BYTES = 1 << 20
"""Of values. A batch has at least one revision, however large."""


def batches(told: Changes, after: int) -> Iterator[Changes]:
    """The changes after revision `after`, in whole revisions.

    Those before are repeats and left out: a member of etcd that lags behind can answer a watch from the future with what it
    had told before (etcd#15271).
    """
    changes = told.changes
    if changes and changes[0].mod_revision <= after:
        changes = [change for change in changes if change.mod_revision > after]
    start = 0
    while (end := _end(changes, start)) < len(changes):
        yield Changes(changes[end - 1].mod_revision, changes[start:end])
        start = end
    yield Changes(max(told.revision, after), changes[start:])


def _end(changes: Sequence[Change], start: int) -> int:
    """Where the batch that begins at `start` ends."""
    end, size = start, 0
    while end < len(changes):
        if (end - start >= MAX_CHANGES or size >= MAX_BYTES) and changes[end].mod_revision != changes[end - 1].mod_revision:
            break
        size += len(changes[end].value or b"")
        end += 1
    return end
