"""The cost of a call, in seats: its work relative to a call about one object.

One create takes 1.1 ms of CPU, and each object of a batch of a hundred 0.07 to 0.11 ms (`pinnace bench create`). The cost of a
list follows from its limit and the number of objects: as in Kubernetes, one seat for each hundred objects, and at most ten. A
list tests the selector on every object, whatever the limit: to find none of 20,000 pods takes 40 ms of CPU, to show the first
thousand 3 ms. Lists that may read etcd (the past, later pages) cost three times as much (a page of 500 pods takes 18 ms of CPU
instead of 6). The cost of a patch follows from the size of the object: a patch of 55 bytes took 0.3 s on an object of 276 KB.

Large requests are parsed only when their call has its seats, whose number follows from the size in bytes. To parse 4 MB of
empty containers takes a sixth of a second, and the result needs 400 MB.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from google.protobuf.descriptor import MethodDescriptor

from pinnace.api.meta_v1_pb2 import ListOptions

ITEMS = 20
"""Of a batch, for a seat."""
LISTED = 100
WIDEST_LIST = 10
STORED = 3
"""Times as many seats for what is read from the storage."""
PRINTED = 4
"""Times as many more for what is printed: a page of 500 pods as a table took 42 ms of CPU instead of 8."""

PATCHED = 4 << 10
"""Bytes of a patch and of the object that it changes, for a seat: four times fewer than their CPU would say."""
WIDEST_PATCH = 50
"""As a batch of a thousand: wider ones would keep others from their seats while etcd writes."""

MOST_DELETED = 1000
"""Of a collection, by one call."""

Width = Callable[[Any], int]
"""Of a request."""


@runtime_checkable
class KnowsSizes(Protocol):
    """A service that can tell how large a stored object is."""

    def stored_size(self, request: Any) -> int:
        """Bytes of the object that a request names; 0: there is none."""
        ...


@runtime_checkable
class KnowsCounts(Protocol):
    """A service that can tell how many objects there are."""

    def stored_count(self, request: Any) -> int:
        """Objects of the collection that a request names, whichever of them it selects; 1 if it is to be one of that name."""
        ...


def width_of(method: MethodDescriptor, service: object = None) -> Width:
    size = service.stored_size if isinstance(service, KnowsSizes) else lambda request: 0
    count = service.stored_count if isinstance(service, KnowsCounts) else lambda request: sys.maxsize
    fields = method.input_type.fields_by_name
    if "items" in fields:
        return lambda request: width_of_batch(len(request.items))
    if method.name == "List" and "options" in fields:
        printed = PRINTED if "includeObject" in fields else 0
        return lambda request: _of_list(request.options, count(request), printed)
    if method.name == "DeleteCollection":
        return lambda request: _of_deletes(request.options, count(request))
    if method.name == "Patch":
        return lambda request: min(1 + (len(request.patch) + size(request)) // PATCHED, WIDEST_PATCH)
    return lambda request: 1


def width_of_batch(items: int) -> int:
    return 1 + items // ITEMS


def _most_deleted(limit: int) -> int:
    """By a call with this limit: the service reads all that is no limit as the largest."""
    return limit if 0 < limit < MOST_DELETED else MOST_DELETED


def _of_deletes(options: ListOptions, count: int) -> int:
    return max(1 + min(_most_deleted(options.limit), count) // ITEMS, _of_list(options, count, printed=0))


def _of_list(options: ListOptions, count: int, printed: int) -> int:
    """`count`: of the objects that there are now; how many there have been is not known."""
    past = options.resourceVersionMatch == "Exact" or bool(getattr(options, "continue"))
    there = sys.maxsize if past else count
    shown = min(options.limit, there) if options.limit > 0 else there
    looked_at = there if options.labelSelector or options.fieldSelector else shown
    return _listed(looked_at) * (STORED if past else 1) + _listed(shown) * printed


def _listed(objects: int) -> int:
    return max(1, min(-(-objects // LISTED), WIDEST_LIST))


SMALL = 4 << 10
"""Bytes of a request that is read at once: that takes less than half a megabyte."""
READ = 32 << 10
"""Bytes of a larger one, for a seat."""
WIDEST = 90
"""So wide that a flow has one such call at work, and not two (apiserver.flow.levels)."""
LONGEST = 5
"""Bytes of a number that is a length, or begins a field."""
READING = 50e-9
"""Seconds that a byte may take to be read, in which nobody else has a turn."""


class Unread(NamedTuple):
    """What has come."""

    data: bytes

    def ByteSize(self) -> int:  # noqa: N802 (protobuf's name)
        """As a message's."""
        return len(self.data)


def items_in(data: bytes, number: int, most: int) -> int:
    """How often a message has the field with this number, which holds messages, among its first `most` fields: so hostile ones
    take no longer. What does not look like a message has no more.

    Source: https://protobuf.dev/programming-guides/encoding/
    """
    tag, at, found = number << 3 | 2, 0, 0
    try:
        for _ in range(most):
            key, at = _varint(data, at)
            if key & 7 != 2:
                break
            size, at = _varint(data, at)
            at += size
            found += key == tag
    except IndexError:
        pass
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where it has ended. Raises IndexError when it does not end in time."""
    value = 0
    for shift in range(0, 7 * LONGEST, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError


def width_of_bytes(size: int) -> int:
    """Seats for a request of so many bytes, whatever is in it."""
    return min(1 + size // READ, WIDEST)
