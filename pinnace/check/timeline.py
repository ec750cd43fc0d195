"""Calls in the order of real time."""

from collections.abc import Iterable, Iterator

from pinnace.check.history import Call


def moments(calls: Iterable[Call]) -> Iterator[tuple[bool, int, Call]]:
    """(began, index, call): twice for each call, its begin and its end, as time goes by.

    One call is before another only when it ended before the other began. So at one instant all begins come first.
    """
    listed = list(calls)
    order = [(call.began, 0, index) for index, call in enumerate(listed)]
    order += [(max(call.ended, call.began), 1, index) for index, call in enumerate(listed)]
    order.sort()
    for _, end, index in order:
        yield not end, index, listed[index]
