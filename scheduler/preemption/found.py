"""Candidates of a preemption: hundreds, of which one is taken. Their ranks are arrays, so that the best is found at once."""

from collections.abc import Mapping, Sequence
from typing import overload

from pinnace.fit.table import IntArray
from scheduler.cache.table import FloatArray
from scheduler.preemption.rules import Victims


class Found(Sequence[Victims]):
    """In the order in which they were tried. It holds until the next search."""

    def __init__(self, places: IntArray, victims: Mapping[int, Victims], ranks: FloatArray) -> None:
        """Of each of these places in that order its victims; `ranks`: those of place p are `ranks[:, p]`."""
        self._places = places
        self._victims = victims
        self._ranks = ranks

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Victims: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Victims]: ...
    def __getitem__(self, index: int | slice) -> Victims | Sequence[Victims]:
        if isinstance(index, slice):
            return [self._victims[place] for place in self._places[index].tolist()]
        return self._victims[int(self._places[index])]

    @property
    def best(self) -> Victims:
        """By the rules; there must be one."""
        best = self._places
        for rank in self._ranks:
            values = rank[best]
            best = best[values == values.min()]
        return self._victims[int(best[0])]
