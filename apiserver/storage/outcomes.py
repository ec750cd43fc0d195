"""What became of the writes of one transaction. Pure.

transaction --> Committed --> every write happened, at its revision
            --> Refused   --> the losers: a compare or guard of theirs fails  --> Conflict, GuardFailed
            |                 the others                                      --> go again
"""

from collections.abc import Mapping

from apiserver.storage.interface import Guard, KeyValue, Write


class Conflict(Exception):
    """The key is not at `write.expected`; `current` is what it is instead, None when it is absent. Nothing was written."""

    def __init__(self, write: Write, current: KeyValue | None) -> None:
        super().__init__(f"{write.key} is at revision {current.mod_revision if current else 0}, not at {write.expected}")
        self.write = write
        self.current = current


class GuardFailed(Exception):
    """The guard does not hold; `current` is the guard's key now, None when it is absent. Nothing was written."""

    def __init__(self, guard: Guard, current: KeyValue | None) -> None:
        found = f"created at revision {current.create_revision}, modified at {current.mod_revision}" if current else "absent"
        modified = f", modified at {guard.mod_revision}" if guard.mod_revision else ""
        super().__init__(f"{guard.key} is {found}, not created at {guard.create_revision}{modified}")
        self.guard = guard
        self.current = current


class Denied(Exception):
    """Somebody who was asked before the transaction left will not have this write. Nothing was written."""


States = Mapping[str, KeyValue | None]
"""What some keys were at one revision; None: absent."""


def failure_of(write: Write, current: States) -> Conflict | GuardFailed | None:
    """Why `write` cannot happen in this state; None when it could. A lost fence says more than a lost race: it comes first."""
    for guard in write.guards:
        found = current[guard.key]
        if not guard.holds(found):
            return GuardFailed(guard, found)
    return None if is_at_expected(write, current[write.key]) else Conflict(write, current[write.key])


def is_at_expected(write: Write, state: KeyValue | None) -> bool:
    return (state.mod_revision if state else 0) == write.expected
