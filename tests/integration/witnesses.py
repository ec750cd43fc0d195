"""What clients of a cluster saw, compared with what happened: etcd's own history, taken past the API servers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import count, zip_longest
from typing import NamedTuple

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS, election_key
from pinnace.api.verbs_pb2 import DELETED
from pinnace.api.wellknown import FENCE_ANNOTATION
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.client.errors import from_status
from pinnace.client.informer import Delta, Informer
from pinnace.client.resource import delete_request
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import ELECTION, ETCD
from tests.builders import make_pod

PATIENCE = 20.0


class Seen(NamedTuple):
    """One change of a pod."""

    revision: int
    key: str
    deleted: bool


class History:
    """What happened, up to `revision`."""

    def __init__(self) -> None:
        self.revision = 0
        self.pods: list[Seen] = []
        self.tokens: list[int] = []
        """Of the schedulers' election, in order."""
        self.misbound: list[str] = []
        """Binds under a token that did not lead at that revision."""

    @classmethod
    async def of(cls, cluster: Cluster) -> "History":
        """Everything since the cluster began."""
        history = cls()
        storage = EtcdStorage([record.plan.address for record in cluster.state.processes_of(ETCD)], tls=cluster.etcd_tls)
        try:
            async with asyncio.timeout(PATIENCE):
                now = await storage.current_revision()
                async with aclosing(storage.watch(2)) as batches:
                    async for batch in batches:
                        for change in batch.changes:
                            history._add(change.key, change.value, change.create_revision, change.mod_revision)
                        history.revision = batch.revision
                        if batch.revision >= now:
                            break
        finally:
            await storage.close()
        return history

    def _add(self, key: str, value: bytes | None, created: int, modified: int) -> None:
        if key == election_key(ELECTION):
            if value is not None and created == modified:
                self.tokens.append(created)
        elif key.startswith(PODS.prefix):
            self.pods.append(Seen(modified, key, value is None))
            if value is not None and (fence := Pod.FromString(value).metadata.annotations.get(FENCE_ANNOTATION)):
                self._check(key, fence, modified)

    def _check(self, key: str, fence: str, revision: int) -> None:
        """A fence stays on its pod: only one that is of no leader so far is wrong here."""
        if int(fence.partition("/")[2]) not in self.tokens:
            self.misbound.append(f"{key} at {revision} under {fence}")

    def after(self, revision: int) -> list[Seen]:
        return [seen for seen in self.pods if seen.revision > revision]


class Witness:
    """An informer of all pods that keeps every event that it is told."""

    def __init__(self, servers: ClientConfig) -> None:
        self._connection = Connection(servers.endpoints, tls=servers.tls)
        self.informer = Informer(Client(self._connection).pods)
        self.since = 0
        self.seen: list[Seen] = []
        self._running = asyncio.ensure_future(self.informer.run())

    async def begin(self) -> None:
        await self.informer.wait_synced(PATIENCE)
        self.since = self.informer.revision
        self.informer.add_handler(self._note)

    def _note(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            self.seen.append(Seen(int(delta.obj.metadata.resourceVersion), PODS.key_of(delta.obj), delta.kind == DELETED))

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.wait((self._running,))
        await self._connection.close()


@asynccontextmanager
async def witnesses(cluster: Cluster, number: int) -> AsyncIterator[list[Witness]]:
    """Each asks the servers in an order of its own."""
    result = [Witness(cluster.config) for _ in range(number)]
    try:
        for witness in result:
            await witness.begin()
        yield result
    finally:
        for witness in result:
            await witness.stop()


async def compare(cluster: Cluster, found: Sequence[Witness]) -> History:
    """Each witness has been told what happened: nothing more, nothing less, in that order."""
    history = await History.of(cluster)
    for witness in found:
        await witness.informer.wait_for(history.revision, PATIENCE)
        told = [seen for seen in witness.seen if seen.revision <= history.revision]
        assert told == history.after(witness.since), _first_difference(told, history.after(witness.since))
    assert history.misbound == []
    return history


def _first_difference(told: Sequence[Seen], happened: Sequence[Seen]) -> str:
    for number, (one, other) in enumerate(zip_longest(told, happened)):
        if one != other:
            here = slice(number, number + 3)
            return f"event {number} of {len(happened)}: told {told[here]}, happened {happened[here]}"
    return "none"


class Load:
    """Creates pods and deletes them again, through a connection of its own, by calls that must simply succeed. `errors` are
    those that did not."""

    def __init__(self, name: str, servers: ClientConfig, *, pause: float = 0.02) -> None:
        self.calls = 0
        self.errors: list[str] = []
        self.created: dict[str, int] = {}
        """The pods whose creation was acknowledged, by name, and the revision."""
        self._name = name
        self._pause = pause
        self._connection = Connection(servers.endpoints, tls=servers.tls)
        self._running = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        pods = Client(self._connection).pods
        alive: list[Pod] = []
        for turn in count():
            try:
                one = await pods.create(make_pod(f"{self._name}-{turn}").req(cpu="10m").new())
                self.created[one.metadata.name] = int(one.metadata.resourceVersion)
                items = await pods.create_batch([make_pod(f"{self._name}-{turn}-{n}").req(cpu="10m").new() for n in range(4)])
                self.errors += [f"create in a batch: {from_status(item.error)!r}" for item in items if item.HasField("error")]
                self.created.update({item.name: int(item.resourceVersion) for item in items if item.name})
                gone, alive = alive, [one]
                alive += [Pod(metadata={"name": item.name, "uid": item.uid}) for item in items if item.name]
                deletes = [delete_request(pod.metadata.name, "default", grace=0, uid=pod.metadata.uid) for pod in gone]
                if deletes:
                    items = await pods.delete_batch(deletes)
                    self.errors += [f"delete: {from_status(item.error)!r}" for item in items if item.HasField("error")]
                self.calls += 3
            except Exception as error:
                self.errors.append(f"turn {turn}: {error!r}")
            await asyncio.sleep(self._pause)

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.wait((self._running,))
        await self._connection.close()


@asynccontextmanager
async def loads(cluster: Cluster, number: int, *, pause: float = 0.02) -> AsyncIterator[list[Load]]:
    result = [Load(f"load-{n}", cluster.config, pause=pause) for n in range(number)]
    try:
        yield result
    finally:
        for load in result:
            await load.stop()
