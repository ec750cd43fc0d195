"""Requests that wait as they came. To read four megabytes of empty containers takes a sixth of a second, and 400 MB for as long
as they are kept: what may consist of so much is read when its call has its seats, which are as many as it has bytes. (An etcd
that is asked for something keeps a call waiting, and with it all that was read for it.)
"""

from typing import NamedTuple

SMALL = 4 << 10
"""Bytes of a request that is read at once: that takes less than half a megabyte."""
READ = 32 << 10
"""Bytes of a larger one, for a seat."""
WIDEST = 90
"""So wide that a flow has one such call at work, and not two (apiserver.flow.queue)."""
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
