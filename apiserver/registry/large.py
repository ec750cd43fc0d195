"""Computation of large objects in a thread, so that they do not hold the event loop.

    create:           thread: defaults, violations --remembered--> event loop: admission looks them up
    update, patch:    thread: patch or apply, defaults, violations, owners of fields --> event loop: admission, write

Results of the slowest functions are remembered by the bytes that they depend on, because admission may need them again after a
webhook or a refresh.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

LARGE = 32 << 10
"""Bytes of an object from which it is computed in a thread: about ten milliseconds."""
REMEMBERED = 16
"""The maximum number of results of one function."""
R = TypeVar("R")


class LargeResultCache(Generic[R]):
    """The results of a pure function for its latest large arguments."""

    def __init__(self) -> None:
        self._results: OrderedDict[Hashable, R] = OrderedDict()

    def get(self, size: int, key: Hashable, compute: Callable[[], R]) -> R:
        """Return the result for a key. `size`: of the arguments in bytes; small ones are not remembered."""
        if size < LARGE:
            return compute()
        result = self._results.get(key)
        if result is None:
            result = self._results[key] = compute()
            while len(self._results) > REMEMBERED:
                self._results.popitem(last=False)
        return result


async def compute_in_thread_if_large(size: int, function: Callable[[], R]) -> R:
    """Call a pure function of arguments of this size in bytes, in a thread if they are large. Raises what it raises."""
    return function() if size < LARGE else await asyncio.to_thread(function)
