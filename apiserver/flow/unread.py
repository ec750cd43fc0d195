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
READING = 50e-9
"""Seconds that a byte may take to be read, in which nobody else has a turn."""


class Unread(NamedTuple):
    """What has come."""

    data: bytes

    def ByteSize(self) -> int:  # noqa: N802
        """As a message's."""
        return len(self.data)


def items_in(data: bytes, number: int, most: int) -> int:
    """How often a message has the field with this number, which holds messages; `most`, if it is oftener. What does not look
    like a message has no more.

    Source: https://protobuf.dev/programming-guides/encoding/
    """
    tag, at, end, found = number << 3 | 2, 0, len(data), 0
    try:
        while at < end and found < most:
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
    """The number that begins there, and where it has ended."""
    value = data[at] & 0x7F
    shift = 7
    while data[at] >= 0x80:
        at += 1
        value |= (data[at] & 0x7F) << shift
        shift += 7
    return value, at + 1


def width_of_bytes(size: int) -> int:
    """Seats for a request of so many bytes, whatever is in it."""
    return min(1 + size // READ, WIDEST)
