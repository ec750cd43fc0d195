"""Which waiting writes go into the next transaction. Pure.

Guarantees:

* Writes of one key happen in the order in which they came (FIFO). A key has at most one write ready or in flight; the others
  wait behind it.
* A group keeps the store's limits, less what a lane adds to it, and its own: one lease at most, so that "lease not found" is
  about all writes with a lease; and no key that is written is also a guard, so that a guarded write never shares a revision
  with the end of its guard.
* Otherwise writes go in the order in which they came; the first one that does not fit ends the group, and begins the next.
* What goes again because others have failed goes without newer writes, which might be what the next transaction fails for. So
  a write that nothing speaks against is in few such transactions, however many of the others come.
"""

from collections import deque
from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

from apiserver.storage.interface import MAX_BYTES, MAX_OPERATIONS, Guard, Write
from apiserver.storage.lane import MARKER_BYTES

MAX_GROUP = MAX_OPERATIONS - 1
"""Most writes and distinct guards, together, in one group."""
MAX_GROUP_BYTES = MAX_BYTES - MARKER_BYTES


class Item(Protocol):
    @property
    def write(self) -> Write: ...


ItemT = TypeVar("ItemT", bound=Item)


class WriteQueue(Generic[ItemT]):
    """An item is in one of three places: ready, behind another item of its key, or handed out by `next_group`. What was handed
    out must come back through `put_back` or `release`."""

    def __init__(self) -> None:
        self._ready: deque[ItemT] = deque()
        self._again = 0  # the first so many of these go without the others
        self._behind: dict[str, deque[ItemT] | None] = {}  # its keys: every key that is ready or handed out

    @property
    def ready(self) -> Collection[ItemT]:
        """Items that could be handed out now."""
        return self._ready

    def add(self, item: ItemT) -> None:
        key = item.write.key
        if key not in self._behind:
            self._behind[key] = None
            self._ready.append(item)
        elif (behind := self._behind[key]) is not None:
            behind.append(item)
        else:
            self._behind[key] = deque((item,))

    def next_group(self) -> list[ItemT]:
        """Distinct keys, within the limits of one transaction; empty when nothing is ready."""
        group: list[ItemT] = []
        limits = _Limits()
        most = self._again or len(self._ready)
        while len(group) < most and limits.take(self._ready[0].write):
            group.append(self._ready.popleft())
        self._again = max(0, self._again - len(group))
        return group

    def put_back(self, items: list[ItemT], *, alone: bool = False) -> None:
        """They go again, before everything that is ready, or (`alone`) also without that."""
        self._ready.extendleft(reversed(items))
        if alone or self._again:
            self._again += len(items)

    def release(self, item: ItemT) -> None:
        """It is done: the next one of its key becomes ready."""
        key = item.write.key
        if behind := self._behind[key]:
            self._ready.append(behind.popleft())
        else:
            del self._behind[key]

    def drain(self) -> list[ItemT]:
        """Takes out all that are not handed out."""
        items = [*self._ready, *(item for behind in self._behind.values() if behind for item in behind)]
        self._ready.clear()
        self._again = 0
        self._behind.clear()
        return items


class _Limits:
    """What the transaction that is being put together holds so far."""

    def __init__(self) -> None:
        self._writes = 0
        self._bytes = 0
        self._lease = 0
        self._keys: set[str] = set()
        self._guards: set[Guard] = set()
        self._guard_keys: set[str] = set()

    def take(self, write: Write) -> bool:
        """Counts `write` in, if there is room. A write always fits into an empty transaction."""
        size = self._bytes + len(write.value or b"")
        new_guards = [guard for guard in write.guards if guard not in self._guards] if write.guards else ()
        if self._writes and (
            self._writes + 1 + len(self._guards) + len(new_guards) > MAX_GROUP
            or size > MAX_GROUP_BYTES
            or (write.lease and self._lease and write.lease != self._lease)
            or write.key in self._guard_keys
            or (new_guards and any(guard.key in self._keys for guard in new_guards))
        ):
            return False
        self._writes += 1
        self._bytes = size
        self._lease = self._lease or write.lease
        self._keys.add(write.key)
        if new_guards:
            self._guards.update(new_guards)
            self._guard_keys.update(guard.key for guard in new_guards)
        return True
