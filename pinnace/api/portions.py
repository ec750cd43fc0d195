"""Cutting what is to be sent into requests that a server takes: few enough items, and small enough together.

The number alone does not bound a request: five hundred pods of a large template are more than a server receives, and a call
that is refused for its size is refused each time it is repeated.
"""

from collections.abc import Callable, Iterable, Iterator
from operator import methodcaller
from typing import TypeVar

T = TypeVar("T")

MAX_BYTES = 1 << 20
"""Of the items of one request: a gRPC server takes 4 MiB unless it is told otherwise."""


def portions(items: Iterable[T], most: int, size: Callable[[T], int] = methodcaller("ByteSize")) -> Iterator[list[T]]:
    """All of them, in order: at most `most` together, and MAX_BYTES. One that is larger than that goes alone. `size`: the bytes
    of an item; unless given they are messages."""
    portion, total = list[T](), 0
    for item in items:
        own = size(item)
        if portion and (len(portion) == most or total + own > MAX_BYTES):
            yield portion
            portion, total = [], 0
        portion.append(item)
        total += own
    if portion:
        yield portion
