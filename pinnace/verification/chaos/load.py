"""The load of a chaos run: clients of all API servers, watchers, rivals and an adversary. All calls are recorded in the
history.

    async with ChaosLoad(cluster.config, journal, nodes, seed=1) as load:   # constant load until `stop_and_settle`
        ...                                                       # inject faults
        ended = await load.stop_and_settle(within=30)                      # after the faults: check the recovery

The load runs in the caller's event loop: about RATE calls per second, with a bounded number of live pods that all fit, so that
all of them must be Running after `stop_and_settle`. A failed call is recorded and not retried; the worker continues with
another call."""

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
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.errors import AlreadyExists, ApiError, Unavailable
from pinnace.history.records import RunPhase
from pinnace.verification.chaos.clients import HistoryJournal, RecordingConnection, RecordingWatcher
from pinnace.verification.chaos.gateways import NAMESPACE as GATEWAYS
from pinnace.verification.chaos.gateways import GatewayClients
from pinnace.verification.chaos.workers import (
    CONTESTED,
    HARM,
    LOAD,
    NOBODY,
    SEIZED,
    Adversary,
    ContestingWriter,
    LoadWorker,
    PodOwner,
)

RATE = 360.0
"""Calls per second without faults. It exceeds the required 200, because workers that wait for a response send no calls."""
OWNERS, RIVALS = 48, 4
PODS_PER_OWNER = 15
"""The maximum number of live pods of an owner. An owner with less than three batches would only fill and empty its share."""
PODS_PER_NODE = 36
"""The number of owners' pods per node. A node has resources for a few more."""
ADVERSARY_RATE, RIVAL_RATE = 12.0, 8.0
"""Steps per second of the adversary and of each rival. The owners make the remaining calls."""
CALLS_PER_STEP = 1.4
"""The average number of calls per step of an owner."""
PAUSE = 0.05
"""Seconds to wait after a call that no server accepted."""
ARREARS = 10.0
"""The maximum delay in seconds that a worker catches up at full speed."""
BEGINNING = 5.0
"""Seconds over which the starts of workers are distributed. A hundred simultaneous TLS handshakes take a server 0.2 s. With
libfaketime, which intercepts each wait for Python's lock, they take more than a second, which is longer than a candidate may be
silent."""
POLL = 0.1
PRIVATE = (f"{PODS.prefix}{CONTESTED}/",)
"""For records.Run: prefixes that only the load writes."""
BYSTANDER, BYSTANDER_RATE = "bystander", 10.0
"""Another user and its reads per second, to measure the effect of hostile faults on other users (bystander.py)."""
GATEWAY_BYSTANDER = "gateway-bystander"
"""A user of the gateways, and its namespace."""
FENCED = (f"{PODS.prefix}{LOAD}/",)
"""For records.Run: prefixes of pods that only schedulers bind. The adversary binds its own pods manually."""


class LoadError(Exception):
    """The load could not be started, or one of its workers has a bug."""


@dataclass(frozen=True, slots=True)
class SettleResult:
    """The result of the recovery. `seconds`: from the end of the faults until the cluster was healthy. `lacking`: problems that
    remained at the timeout. `revision`: the revision of the last list; etcd's history must be recorded up to here."""

    seconds: float
    lacking: tuple[str, ...]
    revision: int
    pods: int


class ChaosLoad:
    """The load on a cluster. `nodes`: names of nodes; they determine the number of owners."""

    def __init__(
        self,
        servers: ClientConfig,
        journal: HistoryJournal,
        nodes: Sequence[str],
        *,
        seed: int = 0,
        rate: float = RATE,
        gateways: Sequence[str] = (),
    ) -> None:
        """`gateways`: addresses of gateways, which have clients of their own (gateways.py)."""
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
        self.gateways: GatewayClients | None = None
        if gateways and self._tls is not None:
            self.gateways = GatewayClients(gateways, self._tls, journal, self._fork_random())
        self._began = self._stopped = 0.0

    @property
    def calls(self) -> Counter[str]:
        """The number of calls by outcome."""
        of_gateways = self.gateways.calls if self.gateways is not None else Counter[str]()
        return sum((connection.outcomes for connection in self._connections), Counter(of_gateways))

    @property
    def rate(self) -> float:
        """Calls per second from the start to the end of the load."""
        return self.calls.total() / ((self._stopped or time.monotonic()) - self._began)

    @property
    def adversary(self) -> Adversary:
        """The adversary. Available after the load has started."""
        assert self._adversary is not None
        return self._adversary

    @property
    def attempts(self) -> Counter[str]:
        """The results of the adversary's attempts; see workers.py."""
        return self.adversary.counts

    async def __aenter__(self) -> Self:
        """Raises LoadError if the namespaces cannot be created."""
        try:
            await self._make_namespaces()
        except ApiError as error:
            await self._close()
            raise LoadError(f"unable to start the load: {error}") from error
        self._began = time.monotonic()
        self._journal.write(RunPhase(self._began, "load"))
        self._start_watchers()
        self._start_workers()
        if self.gateways is not None:
            self.gateways.start_clients()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop(self._working)
        await self._stop(self._watching)
        if self.gateways is not None:
            await self.gateways.close()
        await self._close()

    async def stop_and_settle(self, within: float) -> SettleResult:
        """Stop the load and wait for the recovery. Call it after all faults have ended. Within `within` seconds, existing pods
        must be Running, all servers must respond, and watchers must have received all events. Raises LoadError if a worker has
        a bug."""
        began = self._stopped = time.monotonic()
        self._journal.write(RunPhase(began, "quiet"))
        await self._stop(self._working)
        if self.gateways is not None:
            await self.gateways.stop_writers()
        client = self.create_client("settling")
        deadline = began + within
        lacking = await self._wait_until_running(client, deadline)
        seconds = time.monotonic() - began
        pods, revision, differ = await self._compare(deadline)
        lacking += differ
        if self.gateways is not None and (
            problem := await self.gateways.check_watch_delivery(max(5.0, deadline - time.monotonic()))
        ):
            lacking.append(problem)
        for watcher in self._watchers:
            if not await watcher.wait_for_revision(revision, max(0.0, deadline - time.monotonic())):
                lacking.append(f"{watcher.name} received events up to revision {watcher.revision}, not {revision}")
        await self._stop(self._watching)
        self._journal.write(RunPhase(time.monotonic(), "end"))
        return SettleResult(seconds, tuple(lacking), revision, pods)

    def create_client(self, name: str, endpoints: Sequence[str] = ()) -> Client:
        """Return an additional recorded client of these servers, or of all. It is closed with the load."""
        connection = RecordingConnection(name, endpoints or self._endpoints, self._journal, self._fork_random(), self._tls)
        self._connections.append(connection)
        return Client(connection)

    # --- the parts

    def _fork_random(self) -> random.Random:
        return random.Random(self._random.random())

    async def _make_namespaces(self) -> None:
        client = self.create_client("preparing")
        for name in (LOAD, CONTESTED, SEIZED, HARM, *((GATEWAYS,) if self.gateways is not None else ())):
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
                name, resource, self._endpoints, self._journal, self._fork_random(), tls=self._tls, fields=fields
            )
            self._watchers.append(watcher)
        self._watching = [asyncio.create_task(watcher.watch_until_cancelled()) for watcher in self._watchers]

    def _start_workers(self) -> None:
        def work(worker: LoadWorker, rate: float) -> None:
            self._working.append(asyncio.create_task(run_at_rate(worker, rate, self._random.random() * BEGINNING)))

        self._adversary = Adversary(self.create_client("adversary"), self._nodes, self._fork_random())
        work(self._adversary, ADVERSARY_RATE / 3)  # a step makes three calls
        for i in range(RIVALS):
            work(ContestingWriter(self.create_client(f"rival-{i}"), self._fork_random()), RIVAL_RATE)
        steps = (self._rate - ADVERSARY_RATE - RIVALS * RIVAL_RATE) / CALLS_PER_STEP
        owners = max(1, min(OWNERS, len(self._nodes) * PODS_PER_NODE // PODS_PER_OWNER))
        for i in range(owners):
            name = f"owner-{i}"
            work(PodOwner(name, self.create_client(name), PODS_PER_OWNER, self._fork_random()), steps / owners)

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        """Cancel the tasks. Raises LoadError if a task had failed, which is a bug."""
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        tasks.clear()
        for error in ended:
            if isinstance(error, Exception):
                raise LoadError(f"a worker failed: {type(error).__name__}: {error}") from error

    async def _close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections))

    # --- the end

    async def _wait_until_running(self, client: Client, deadline: float) -> list[str]:
        """Wait until all pods that should run are Running. Return the remaining problems at the deadline."""
        while True:
            try:
                await self.adversary.clean_up()
                lacking = find_unready_pods((await client.pods.list()).items)
            except ApiError as error:
                lacking = [f"the API server does not respond: {error}"]
            if not lacking or time.monotonic() > deadline:
                return lacking
            await asyncio.sleep(POLL)

    async def _compare(self, deadline: float) -> tuple[int, int, list[str]]:
        """List everything on each server. Return the number of pods, the latest revision, and the servers that do not respond.
        The checkers verify the responses."""
        pods, revision, lacking = 0, 0, list[str]()
        for endpoint in self._endpoints:
            client = self.create_client(f"final-{endpoint}", [endpoint])
            while True:
                try:
                    listing = await client.pods.list()
                    await client.nodes.list()
                except ApiError as error:
                    if time.monotonic() < deadline:
                        await asyncio.sleep(POLL)
                        continue
                    lacking.append(f"API server {endpoint} does not respond: {error}")
                else:
                    pods, revision = len(listing.items), max(revision, listing.resource_version)
                break
        return pods, revision, lacking


async def run_at_rate(worker: LoadWorker, rate: float, offset: float) -> None:
    """Execute steps at this average rate until cancelled."""
    due = time.monotonic() + offset
    while True:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        try:
            await worker.execute_step()
        except Unavailable:
            await asyncio.sleep(PAUSE)
        except ApiError:
            pass  # recorded in the history
        due = max(due + 1 / rate, time.monotonic() - ARREARS)


def find_unready_pods(pods: Sequence[Pod]) -> list[str]:
    """Return the pods that should be Running but are not, and pods whose deletion has not finished. Pods of NOBODY are
    ignored."""
    return [
        f'pod {pod.metadata.namespace}/{pod.metadata.name} is {pod.status.phase or "Pending"}, node "{pod.spec.nodeName}"'
        for pod in pods
        if pod.metadata.HasField("deletionTimestamp") or (pod.spec.schedulerName != NOBODY and pod.status.phase != "Running")
    ]
