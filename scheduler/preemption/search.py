"""What dry runs have found for pods that are alike, kept from one of them to the next: only nodes that have changed are looked
at again. It holds as long as rows keep their nodes: for one epoch of the table."""

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from pinnace.fit.table import BoolArray, IntArray
from scheduler.cache.columns import ALL, Rows
from scheduler.cache.pod_info import PodInfo
from scheduler.framework.victims import Rank, Victims
from scheduler.preemption.found import Found

_NEVER = -1


class Exhausted(Exception):
    """No more dry runs are made in this decision."""


class Search:
    """All arrays are in the order in which nodes are tried: by place, not by row."""

    def __init__(self, pod: PodInfo, rows: int, seed: int, passed: int = 0) -> None:
        """`passed`: places that another search has tried."""
        self._start = (crc32(pod.raw.spec.SerializeToString(deterministic=True), seed) + passed) % rows
        self.last = 0
        """The last place that was tried, or would have been."""
        self._versions: IntArray = np.full(rows, _NEVER)
        """Those of the nodes when they were last looked at."""
        self._curable: BoolArray | None = None
        self._promising = np.zeros(rows, np.bool_)
        self._tried = np.zeros(rows, np.bool_)
        self._helps = np.zeros(rows, np.bool_)
        self._harmless = np.zeros(rows, np.bool_)
        """It helps, and violates no budget."""
        self._victims: dict[int, Victims] = {}
        """Of the places that help."""
        self._ranked: list[tuple[Rank, int]] = []
        """The same places, the best first."""

    def forget(self, row: int | None) -> None:
        """It is to be looked at anew."""
        if row is not None:
            self._versions[(row - self._start) % len(self._versions)] = _NEVER

    def look(self, versions: IntArray, curable: BoolArray, promise: Callable[[Rows], BoolArray]) -> None:
        """Looks at what has changed. `versions`, `curable`: of all nodes, by row; another array if it is not what it was the
        last time. `promise`: would room be enough there without pods of a lower priority?"""
        versions = self._in_order(versions)
        places = (versions != self._versions).nonzero()[0]
        if curable is not self._curable:
            self._promising = self._in_order(promise(ALL) & curable)
        elif len(places):
            rows = (places + self._start) % len(versions)
            self._promising[places] = promise(rows) & curable[rows]
        self._drop(places)
        self._versions, self._curable = versions, curable

    def run(self, enough: int, attempt: Callable[[int], Victims | None]) -> Found:
        """The first candidates, in order, that are enough; all there are if they are not. Only what is not known is tried. When
        `attempt` raises Exhausted, those that are known by then. Raises it, if there are none."""
        while True:
            found = (self._promising & self._helps).nonzero()[0]
            missing = enough - len(found)
            enough_found = _enough(found, enough, self._harmless)
            end = int(found[enough_found - 1]) + 1 if enough_found else len(self._tried)
            unknown = (self._promising[:end] & ~self._tried[:end]).nonzero()[0]
            if not len(unknown):
                return Found(found[:enough_found] if enough_found else found, self._victims, self._ranked)
            for place in (unknown[:missing] if missing > 0 else unknown).tolist():
                self.last = place
                try:
                    victims = attempt((place + self._start) % len(self._tried))
                except Exhausted:
                    found = (self._promising & self._helps).nonzero()[0]
                    if not len(found):
                        raise
                    return Found(found, self._victims, self._ranked)
                self._note(place, victims)
                if missing <= 0 and self._harmless[place]:
                    break

    def _note(self, place: int, victims: Victims | None) -> None:
        """What a dry run has found."""
        self._tried[place] = True
        if victims is not None:
            self._helps[place] = True
            self._harmless[place] = not victims.violations
            self._victims[place] = victims
            insort(self._ranked, (victims.rank, place))

    def _drop(self, places: IntArray) -> None:
        """Nothing is known of them any more."""
        for place in places[self._helps[places]].tolist():
            del self._ranked[bisect_left(self._ranked, (self._victims.pop(place).rank, place))]
        self._tried[places] = self._helps[places] = self._harmless[places] = False

    def _in_order(self, by_row: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate((by_row[self._start :], by_row[: self._start]))


def _enough(found: IntArray, enough: int, harmless: BoolArray) -> int:
    """With how many of the candidates found, from the first, they are enough and one of them is harmless; 0: they are not."""
    if len(found) < enough:
        return 0
    harmless_at = harmless[found].nonzero()[0]
    return max(enough, int(harmless_at[0]) + 1) if len(harmless_at) else 0
