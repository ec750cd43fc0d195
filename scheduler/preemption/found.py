"""Candidates of a preemption: hundreds, of which one is taken."""

from collections.abc import Iterable, Mapping, Sequence
from typing import overload

from pinnace.fit.table import IntArray
from scheduler.framework.victims import Rank, Victims


class Found(Sequence[Victims]):
    """In the order in which they were tried. It holds until the next search."""

    def __init__(self, places: IntArray, victims: Mapping[int, Victims], ranked: Iterable[tuple[Rank, int]]) -> None:
        """Of each of these places, which ascend, its victims. `ranked`: these places among others, the best first."""
        self._places = places
        self._victims = victims
        self._ranked = ranked

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
        return next(self._victims[place] for _, place in self._ranked if self._has(place))

    def _has(self, place: int) -> bool:
        at = int(self._places.searchsorted(place))
        return at < len(self._places) and int(self._places[at]) == place
