"""The history of a run, in memory: what etcd stores, what clients and followers see, what kubelets run."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from pinnace.api.resources import PODS, Resource
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.apiserver.storage.interface import ChangeBatch
from pinnace.client.informer import Delta, Informer
from pinnace.client.resource import ResourceClient
from pinnace.history.records import (
    Compaction,
    PodFacts,
    Record,
    StoredChange,
    WatchMessage,
    Word,
    decode_facts,
    digest_of,
    object_digest,
)
from pinnace.runtime.clock import Clock

_WORDS: Mapping[int, Word] = {ADDED: "added", MODIFIED: "modified", DELETED: "deleted"}


class MemoryJournal:
    """What `chaos.clients.HistoryJournal` is to real processes: `write` takes records, in order. Also says what
    etcd has."""

    def __init__(self, clock: Clock) -> None:
        self.records: list[Record] = []
        self.pods: dict[str, PodFacts] = {}
        """By key, as etcd has them now."""
        self.revision = 1
        """etcd's."""
        self._clock = clock

    def write(self, record: Record) -> None:
        self.records.append(record)

    def changed(self, changes: ChangeBatch) -> None:
        """etcd has made a revision."""
        now = self._clock.monotonic()
        self.revision = changes.revision
        for key, value, created, revision, lease in changes.changes:
            facts = decode_facts(key, value)
            self.write(StoredChange(now, revision, key, digest_of(key, value), created, lease, facts))
            if isinstance(facts, PodFacts):
                self.pods[key] = facts
            elif key.startswith(PODS.prefix):
                self.pods.pop(key, None)

    def compacted(self, revision: int) -> None:
        self.write(Compaction(self._clock.monotonic(), revision))

    def digest(self) -> str:
        """16 hex digits that are equal for equal histories."""
        return blake2b(repr(self.records).encode(), digest_size=8).hexdigest()


class RecordedInformer(Informer[Any]):
    """A real informer whose every word is in the history."""

    def __init__(self, name: str, client: ResourceClient[Any], journal: MemoryJournal, clock: Clock, fields: str = "") -> None:
        super().__init__(client, fields=fields, clock=clock)
        self.name = name
        self._journal = journal
        self._resource: Resource[Any] = client.resource
        self._selection = fields
        self._initial = False
        self.add_handler(self._handle)

    async def wait_for_revision(self, revision: int, timeout: float) -> bool:
        try:
            await self.wait_for(revision, timeout)
        except TimeoutError:
            return False
        return True

    def _replace_store(self, state: dict[str, Any], revision: int) -> None:
        if self.revision:
            self._say("relisted", revision)
        else:
            self._say("began", key=self._resource.prefix, selection=self._selection)
        self._initial = True
        super()._replace_store(state, revision)

    def _notify_handlers(self, deltas: Sequence[Delta[Any]], revision: int) -> None:
        super()._notify_handlers(deltas, revision)
        self._say("synced" if self._initial else "bookmark", revision)
        self._initial = False

    def _handle(self, deltas: Sequence[Delta[Any]]) -> None:
        for delta in deltas:
            obj = delta.obj
            key = self._resource.key_of(obj)
            self._say(_WORDS[delta.kind], int(obj.metadata.resourceVersion), key=key, digest=object_digest(obj))

    def _say(self, kind: Word, revision: int = 0, **more: Any) -> None:
        self._journal.write(WatchMessage(self.name, self.name, self._clock.monotonic(), kind, revision, **more))
