"""Counting what there is in a namespace, from the cache: at one revision, since nothing is applied while a count is made.

What was worked out for an object holds as long as its entry stays, and a whole count until something changes: a namespace in
which little happens costs little, however much there is in it.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from apiserver.cacher.cacher import Cacher
from apiserver.cacher.store import Entry, Selection
from apiserver.quota.usage import COUNTED, Use, spent_at, use_of
from pinnace.api.resources import PODS
from pinnace.runtime.clock import Clock


class _Count(NamedTuple):
    versions: tuple[int, ...]
    """Of the caches."""
    until: float
    """Unix seconds at which time alone changes it."""
    uses: Counter[Use]
    known: dict[str, tuple[Entry[Any], Use]]
    """By key; without the pods that time alone changes."""


class Tally:
    def __init__(self, cacher: Cacher, clock: Clock) -> None:
        self._caches = {resource: cacher.of(resource) for resource in COUNTED}
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    def of(self, namespace: str) -> Mapping[Use, int]:
        """The number of objects for each use that there is."""
        last, now = self._counts.get(namespace), self._clock.time()
        versions = tuple(cache.version for cache in self._caches.values())
        if last is None or last.versions != versions or last.until <= now:
            last = self._counts[namespace] = self._count(namespace, versions, last.known if last else {}, now)
        return last.uses

    def keep(self, namespaces: Collection[str]) -> None:
        """Forgets what is known of others."""
        self._counts = {namespace: count for namespace, count in self._counts.items() if namespace in namespaces}

    def _count(
        self, namespace: str, versions: tuple[int, ...], before: Mapping[str, tuple[Entry[Any], Use]], now: float
    ) -> _Count:
        uses, known, until = Counter[Use](), dict[str, tuple[Entry[Any], Use]](), float("inf")
        for resource, cache in self._caches.items():
            for entry in cache.select(Selection.parse(resource, namespace, "", "")):
                seen = before.get(entry.key)
                if seen is None or seen[0] is not entry:
                    obj = entry.peek()
                    seen = entry, use_of(obj, now)
                    if resource is PODS and now <= (spent := spent_at(obj)) < float("inf"):
                        until = min(until, spent)
                        uses[seen[1]] += 1
                        continue
                uses[seen[1]] += 1
                known[entry.key] = seen
        return _Count(versions, until, uses, known)
