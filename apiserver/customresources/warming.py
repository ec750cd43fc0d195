"""Computation of large definitions and custom objects in a thread, so that they do not hold the event loop.

    service: large request --thread: warm--> strategy with the same arguments --remembers--> results
             '--event loop: admission, compare-and-swap--> strategy --looks up------------> results

Results are remembered by the bytes that they depend on. A write that finds none, for example after a concurrent change,
computes them on the event loop.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

LARGE = 32 << 10
"""Bytes of an object from which it is computed in a thread: about ten milliseconds."""
REMEMBERED = 16
"""The maximum number of results of one function."""
R = TypeVar("R")
log = logging.getLogger(__name__)


class RecentResults(Generic[R]):
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


async def warm(size: int, compute: Callable[[], object]) -> None:
    """Call a function in a thread if its arguments are large. Errors are left to the write itself."""
    if size < LARGE:
        return
    try:
        await asyncio.to_thread(compute)
    except Exception as error:
        log.debug("a large object cannot be computed in advance: %r", error)
