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


def width_of_bytes(size: int) -> int:
    """Seats for a request of so many bytes, whatever is in it."""
    return min(1 + size // READ, WIDEST)
