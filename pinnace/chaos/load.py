"""The load of a chaos run: many clients at all API servers, watchers, rivals and an adversary, all recorded in the history.

    async with Load(cluster.config, journal, nodes, seed=1) as load:   # steady, until `settle`
        ...                                                       # break things
        ended = await load.settle(within=30)                      # faults are over: has everything recovered?

It runs in the caller's event loop: about RATE calls per second, with a bounded number of live pods that all fit, so that after
`settle` every one of them must run. A call that fails is recorded and is over; the worker continues with another.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from pinnace.api.core_v1_pb2 import Namespace, Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import NODES, PODS
from pinnace.chaos.clients import Journal, RecordingConnection, RecordingWatcher
from pinnace.chaos.workers import CONTESTED, HARM, LOAD, NOBODY, SEIZED, Adversary, Owner, Rival, Worker
from pinnace.check.history import Phase
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.errors import AlreadyExists, ApiError, Unavailable

RATE = 360.0
"""Calls a second, where nothing is broken: the bound of 200 and some more, since whoever waits for an answer makes none."""
OWNERS, RIVALS = 48, 4
PODS_PER_OWNER = 15
"""Pods of an owner that are alive at a time, at most. With room for fewer than three batches it fills and empties it all the
time, instead of choosing what to do."""
PODS_PER_NODE = 36
"""So many pods of the owners a node has room for, and a few more."""
ADVERSARY_RATE, RIVAL_RATE = 12.0, 8.0
"""Steps a second: of the adversary, of each rival. The rest is the owners'."""
CALLS_PER_STEP = 1.4
"""Of an owner, on average."""
PAUSE = 0.05
"""Seconds for which a worker waits after a call that no server took."""
ARREARS = 10.0
"""Seconds of lost time that a worker makes up for, as fast as it can."""
BEGINNING = 5.0
"""Seconds over which the workers begin. A hundred handshakes at once take a server 0.2 s; with libfaketime in it, which
intercepts each wait for Python's lock, a second and more: longer than a candidate may be silent, and no fault of anybody."""
POLL = 0.1
PRIVATE = (f"{PODS.prefix}{CONTESTED}/",)
"""For history.Run: what nobody but the load writes."""
BYSTANDER, BYSTANDER_RATE = "bystander", 10.0
"""Another user, and so many reads a second: what it gets while somebody does harm (bystander.py)."""
FENCED = (f"{PODS.prefix}{LOAD}/",)
"""For history.Run: what nobody but schedulers binds. The adversary binds its own pods by hand."""


class LoadError(Exception):
    """The load could not begin, or one of its parts has a bug."""


@dataclass(frozen=True, slots=True)
class Settled:
    """How it ended. `seconds`: from the end of the faults until all was well. `lacking`: what was not, in time; empty is good.
    `revision`: of the last list; the history of etcd must have got at least that far to be judged."""

    seconds: float
    lacking: tuple[str, ...]
    revision: int
    pods: int


class Load:
    """`nodes`: names of nodes; there are as many owners as these have room for."""

    def __init__(
        self,
        servers: ClientConfig,
        journal: Journal,
        nodes: Sequence[str],
        *,
        seed: int = 0,
        rate: float = RATE,
    ) -> None:
        self._endpoints, self._tls = servers.endpoints, servers.tls
        self._journal = journal
        self._nodes = nodes
        self._random = random.Random(seed)
        self._rate = rate
        self._connections: list[RecordingConnection] = []
        self._watchers: list[RecordingWatcher[Any]] = []
        self._working: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []
        self._adversary: Adversary | None = None
        self._began = self._stopped = 0.0

    @property
    def calls(self) -> Counter[str]:
        """Calls so far, by outcome."""
        return sum((connection.outcomes for connection in self._connections), Counter())

    @property
    def rate(self) -> float:
        """Calls a second, from the beginning until they were stopped."""
        return self.calls.total() / ((self._stopped or time.monotonic()) - self._began)

    @property
    def adversary(self) -> Adversary:
        """Once the load has begun."""
        assert self._adversary is not None
        return self._adversary

    @property
    def attempts(self) -> Counter[str]:
        """What became of the adversary's attempts; see adversary.py."""
        return self.adversary.counts

    async def __aenter__(self) -> Self:
        """Raises LoadError when its namespaces cannot be made."""
        try:
            await self._make_namespaces()
        except ApiError as error:
            await self._close()
            raise LoadError(f"the load cannot begin: {error}") from error
        self._began = time.monotonic()
        self._journal.write(Phase(self._began, "load"))
        self._start_watchers()
        self._start_workers()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop(self._working)
        await self._stop(self._watching)
        await self._close()

    async def settle(self, within: float) -> Settled:
        """Call it when all faults are over. No more is asked for; what there is must come to run within so many seconds, all
        servers must tell the same, and the watchers must have been told everything. Raises LoadError when the load itself had
        a bug."""
        began = self._stopped = time.monotonic()
        self._journal.write(Phase(began, "quiet"))
        await self._stop(self._working)
        client = self.client("settling")
        deadline = began + within
        lacking = await self._until_well(client, deadline)
        seconds = time.monotonic() - began
        pods, revision, differ = await self._compare(deadline)
        lacking += differ
        for watcher in self._watchers:
            if not await watcher.reached(revision, max(0.0, deadline - time.monotonic())):
                lacking.append(f"{watcher.name} has been told up to revision {watcher.revision}, not {revision}")
        await self._stop(self._watching)
        self._journal.write(Phase(time.monotonic(), "end"))
        return Settled(seconds, tuple(lacking), revision, pods)

    def client(self, name: str, endpoints: Sequence[str] = ()) -> Client:
        """A further client whose calls are in the history and count; of these servers, or of all. Closed with the load."""
        connection = RecordingConnection(name, endpoints or self._endpoints, self._journal, self._fork(), self._tls)
        self._connections.append(connection)
        return Client(connection)

    # --- the parts

    def _fork(self) -> random.Random:
        return random.Random(self._random.random())

    async def _make_namespaces(self) -> None:
        client = self.client("preparing")
        for name in (LOAD, CONTESTED, SEIZED, HARM):
            with suppress(AlreadyExists):
                await client.namespaces.create(Namespace(metadata=ObjectMeta(name=name)))

    def _start_watchers(self) -> None:
        one = f"spec.nodeName={self._random.choice(self._nodes)}"
        for name, resource, fields in (
            ("watcher-pods-0", PODS, ""),
            ("watcher-pods-1", PODS, ""),
            ("watcher-node", PODS, one),
            ("watcher-nodes", NODES, ""),
        ):
            watcher: RecordingWatcher[Any] = RecordingWatcher(
                name, resource, self._endpoints, self._journal, self._fork(), tls=self._tls, fields=fields
            )
            self._watchers.append(watcher)
        self._watching = [asyncio.create_task(watcher.run()) for watcher in self._watchers]

    def _start_workers(self) -> None:
        def work(worker: Worker, rate: float) -> None:
            self._working.append(asyncio.create_task(pace(worker, rate, self._random.random() * BEGINNING)))

        self._adversary = Adversary(self.client("adversary"), self._nodes, self._fork())
        work(self._adversary, ADVERSARY_RATE / 3)  # calls, of which a step has three
        for i in range(RIVALS):
            work(Rival(self.client(f"rival-{i}"), self._fork()), RIVAL_RATE)
        steps = (self._rate - ADVERSARY_RATE - RIVALS * RIVAL_RATE) / CALLS_PER_STEP
        owners = max(1, min(OWNERS, len(self._nodes) * PODS_PER_NODE // PODS_PER_OWNER))
        for i in range(owners):
            name = f"owner-{i}"
            work(Owner(name, self.client(name), PODS_PER_OWNER, self._fork()), steps / owners)

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        """Ends them in the middle of what they do. Raises LoadError when one had ended before: it has a bug."""
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        tasks.clear()
        for error in ended:
            if isinstance(error, Exception):
                raise LoadError(f"a part of the load failed: {type(error).__name__}: {error}") from error

    async def _close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))

    # --- the end

    async def _until_well(self, client: Client, deadline: float) -> list[str]:
        """Waits until what should run does; what is lacking still at the deadline."""
        while True:
            try:
                await self.adversary.clean_up()
                lacking = unwell((await client.pods.list()).items)
            except ApiError as error:
                lacking = [f"the API does not answer: {error}"]
            if not lacking or time.monotonic() > deadline:
                return lacking
            await asyncio.sleep(POLL)

    async def _compare(self, deadline: float) -> tuple[int, int, list[str]]:
        """Lists everything at each server: how many pods there are, the latest revision, and which servers did not answer.
        Whether they told the truth is judged from the history."""
        pods, revision, lacking = 0, 0, list[str]()
        for endpoint in self._endpoints:
            client = self.client(f"final-{endpoint}", [endpoint])
            while True:
                try:
                    found = await client.pods.list()
                    await client.nodes.list()
                except ApiError as error:
                    if time.monotonic() < deadline:
                        await asyncio.sleep(POLL)
                        continue
                    lacking.append(f"API server {endpoint} does not answer: {error}")
                else:
                    pods, revision = len(found.items), max(revision, found.resource_version)
                break
        return pods, revision, lacking


async def pace(worker: Worker, rate: float, offset: float) -> None:
    """Steps at this rate on average, until cancelled."""
    due = time.monotonic() + offset
    while True:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        try:
            await worker.step()
        except Unavailable:
            await asyncio.sleep(PAUSE)
        except ApiError:
            pass  # it is in the history
        due = max(due + 1 / rate, time.monotonic() - ARREARS)


def unwell(pods: Sequence[Pod]) -> list[str]:
    """Pods that do not run, although they should: neither bound by hand nor for nobody. And those that do not go."""
    return [
        f'pod {pod.metadata.namespace}/{pod.metadata.name} is {pod.status.phase or "Pending"}, node "{pod.spec.nodeName}"'
        for pod in pods
        if pod.metadata.HasField("deletionTimestamp") or (pod.spec.schedulerName != NOBODY and pod.status.phase != "Running")
    ]
