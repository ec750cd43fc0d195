"""An honest watcher: it reads `World.past` with interruptions, resumptions, bookmarks and relists."""

import random
from typing import TYPE_CHECKING

from pinnace.history.records import PodFacts, StoredChange, WatchMessage, Word

if TYPE_CHECKING:
    from tests.unit.check.world import World


class Follower:
    """With `informer`, a relist keeps the known state and delivers only the differences."""

    def __init__(self, world: "World", name: str, prefix: str, selection: str = "", *, informer: bool = False) -> None:
        self._world = world
        self._name = name
        self._prefix = prefix
        self._selection = selection
        self._informer = informer
        self._position = 0  # in world.past
        self._known: dict[str, StoredChange] = {}
        self._open = False
        self._server = 0
        self._synced = False

    def move(self, rng: random.Random) -> None:
        if not self._open:
            self._begin(anew=not self._synced or rng.random() < 0.5)
        elif rng.random() < 0.15:
            self._tell("ended", code="UNAVAILABLE")
            self._open = False
        elif rng.random() < 0.5:
            self.catch_up(rng.randint(1, 6))

    def catch_up(self, changes: int = 1 << 30) -> None:
        """Read to the end of the last whole revision within so many changes."""
        if not self._open:
            self._begin(anew=not self._synced)
        past = self._world.past
        end = min(len(past), self._position + changes)
        while end < len(past) and past[end][0].revision == past[end - 1][0].revision:
            end += 1
        for stored, before in past[self._position : end]:
            self._event(stored, before)
        self._position = end
        if end:
            self._tell("bookmark", past[end - 1][0].revision)

    def _begin(self, *, anew: bool) -> None:
        self._open = True
        self._server += 1
        revision = self._world.past[self._position - 1][0].revision if self._position else 1
        if not anew:
            self._tell("began", revision, self._prefix)
            return
        there = {key: stored for key, stored in sorted(self._world.state.items()) if self._selects(stored)}
        self._position = len(self._world.past)
        if self._informer and self._synced:
            self._tell("began", revision, self._prefix)
            self._tell("relisted", self._world.revision)
            self._differences(there)
        else:
            self._tell("began", 0, self._prefix)
            for stored in there.values():
                self._tell("added", stored.revision, stored.key, stored.digest)
        self._known = there
        self._synced = True
        self._tell("synced", self._world.revision)

    def _differences(self, there: dict[str, StoredChange]) -> None:
        for key in self._known.keys() - there.keys():
            self._tell("deleted", self._known[key].revision, key, self._known[key].digest)
        for key, stored in there.items():
            known = self._known.get(key)
            if known is None or known.revision != stored.revision:
                self._tell("modified" if known else "added", stored.revision, key, stored.digest)

    def _event(self, stored: StoredChange, before: StoredChange | None) -> None:
        was, is_now = self._selects(before), self._selects(stored)
        if is_now:
            self._known[stored.key] = stored
            self._tell("modified" if was else "added", stored.revision, stored.key, stored.digest)
        elif was and before:
            del self._known[stored.key]
            self._tell("deleted", stored.revision, stored.key, before.digest)

    def _selects(self, stored: StoredChange | None) -> bool:
        if stored is None or not stored.digest or not stored.key.startswith(self._prefix):
            return False
        facts = stored.facts
        return not self._selection or (isinstance(facts, PodFacts) and f"spec.nodeName={facts.node}" == self._selection)

    def _tell(self, kind: Word, revision: int = 0, key: str = "", digest: str = "", code: str = "") -> None:
        server = f"apiserver-{self._server % 2}"
        selection = self._selection if kind == "began" else ""
        told = WatchMessage("watcher", self._name, self._world.tick(), kind, revision, key, digest, server, selection, code)
        self._world.say(told)
