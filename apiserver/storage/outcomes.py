"""What became of the writes of one transaction. Pure.

transaction --> Committed --> every write happened, at its revision
            --> Refused   --> the losers: a compare or guard of theirs fails  --> Conflict, GuardFailed
            |                 the others                                      --> go again
            --> OutcomeUnknown --> apiserver.storage.resolution
"""

from collections.abc import Mapping, Sequence

from apiserver.storage.interface import Committed, Guard, KeyValue, OutcomeUnknown, OutOfSpace, Write


class Conflict(Exception):
    """The key is not at `write.expected`; `current` is what it is instead, None when it is absent. Nothing was written."""

    def __init__(self, write: Write, current: KeyValue | None) -> None:
        super().__init__(f"{write.key} is at revision {current.mod_revision if current else 0}, not at {write.expected}")
        self.write = write
        self.current = current


class GuardFailed(Exception):
    """The guard does not hold; `current` is the guard's key now, None when it is absent. Nothing was written."""

    def __init__(self, guard: Guard, current: KeyValue | None) -> None:
        found = f"created at revision {current.create_revision}" if current else "absent"
        super().__init__(f"{guard.key} is {found}, not created at {guard.create_revision}")
        self.guard = guard
        self.current = current


States = Mapping[str, KeyValue | None]
"""What some keys were at one revision; None: absent."""


def failure_of(write: Write, current: States) -> Conflict | GuardFailed | None:
    """Why `write` cannot happen in this state; None when it could. A lost fence says more than a lost race: it comes first."""
    for guard in write.guards:
        found = current[guard.key]
        if found is None or found.create_revision != guard.create_revision:
            return GuardFailed(guard, found)
    return None if is_at_expected(write, current[write.key]) else Conflict(write, current[write.key])


def is_at_expected(write: Write, state: KeyValue | None) -> bool:
    return (state.mod_revision if state else 0) == write.expected


def is_dead(writes: Sequence[Write], current: States) -> bool:
    """Whether a transaction of `writes` can never commit from this state on, not even a copy of it that is still on its way.

    A mod_revision or create_revision that has passed never comes back. Absence does: a create that finds its key in place says
    nothing about later.
    """
    return any(
        isinstance(failure, GuardFailed) or (failure is not None and write.expected != 0)
        for write in writes
        for failure in (failure_of(write, current),)
    )


def find_anchor(writes: Sequence[Write]) -> Write | None:
    """A write of which only one copy of the transaction can ever pass: an update or a delete. None: all are creates."""
    return next((write for write in writes if write.expected != 0), None)


def is_trace_of(write: Write, state: KeyValue | None, revision: int) -> bool:
    """Whether the state at `revision` is what `write` leaves behind when it happens at that very revision."""
    if write.value is None:
        return state is None
    is_new = write.expected == 0
    return (
        state is not None
        and state.mod_revision == revision
        and state.value == write.value
        and (state.lease == write.lease or not (write.lease or is_new))  # a key keeps its lease when none is named
        and (state.create_revision == revision) == is_new
    )


def settle_out_of_space(writes: Sequence[Write], current: States, error: OutOfSpace) -> Committed:
    """Whether a transaction happened that was answered with "out of space", by the state afterwards. Raises `error` when it did
    not, OutcomeUnknown when that cannot be seen.

    A create that happened, and whose key another client deleted before the look, is taken for one that did not.
    """
    revision = max((state.mod_revision for write in writes if (state := current[write.key])), default=0)
    if revision and all(is_trace_of(write, current[write.key], revision) for write in writes):
        return Committed(revision)
    if all(is_at_expected(write, current[write.key]) for write in writes):
        raise error
    raise OutcomeUnknown(str(error))
