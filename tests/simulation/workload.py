"""Who uses a simulated cluster, and what becomes of it when all faults are over.

Clients and watches are those of the chaos engine (pinnace.verification.chaos): their every call and word is in the history.
Candidates of an election bind pods by hand, under their token, and go on with it for a while after they have lost it.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from pinnace.api.core_v1_pb2 import Binding, Namespace, ObjectReference
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.pods_pb2 import Fence
from pinnace.api.resources import NODES, PODS, Resource
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.election import LeaderElector
from pinnace.client.errors import AlreadyExists, ApiError
from pinnace.client.informer import OtherHistory
from pinnace.scheduler.scheduler import Scheduler
from pinnace.verification.chaos.clients import RecordingConnection, RecordingWatcher
from pinnace.verification.chaos.workers import (
    CONTESTED,
    LOAD,
    NOBODY,
    SEIZED,
    Adversary,
    ContestingWriter,
    LoadWorker,
    PodOwner,
    build_pod,
)
from tests.simulation.cluster import Cluster, Member
from tests.simulation.journal import RecordedInformer
from tests.simulation.plan import ROOM, Kind, Plan
from tests.simulation.process import Process
from tests.simulation.users import FLEET

ELECTION = "scheduler"
FOREIGN = "nobody-else"
"""A scheduler for which no candidate stands."""
STUBBORN = 2.5
"""Seconds for which a candidate goes on with a token that it has lost."""
PATIENCE = 30.0
"""Seconds within which all must be well when the faults are over."""
MAKE_TIMEOUT = 20.0


class Follower(Protocol):
    name: str

    async def run(self) -> None: ...
    async def wait_for_revision(self, revision: int, timeout: float) -> bool: ...


class Workload:
    """`start` everybody, `stop` the clients, then wait until all is `well`."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._on = True
        self._followers: list[tuple[Process, Follower]] = []

    async def prepare(self) -> None:
        """Makes the namespaces. Raises ApiError when that takes too long, which it does not without faults."""
        client = self._cluster.client()
        for name in (LOAD, CONTESTED, SEIZED):
            deadline = asyncio.get_running_loop().time() + MAKE_TIMEOUT
            while True:
                try:
                    await client.namespaces.create(Namespace(metadata=ObjectMeta(name=name)))
                except AlreadyExists:
                    break
                except ApiError:
                    if asyncio.get_running_loop().time() > deadline:
                        raise
                    await asyncio.sleep(0.1)
                else:
                    break

    def start(self) -> None:
        plan, cluster = self._plan, self._cluster
        if plan.kind is Kind.ELECTION:
            for index in range(plan.replicas):
                cluster.start("candidate", f"candidate-{index}", self._stand)
        for index in range(plan.owners):
            self._work(f"owner-{index}", lambda name, client, rng: PodOwner(name, client, ROOM, rng))
        for index in range(plan.rivals):
            self._work(f"rival-{index}", lambda name, client, rng: ContestingWriter(client, rng))
        if plan.nodes > 1 and plan.rivals:
            nodes = [f"{FLEET}-{index}" for index in range(plan.nodes)]
            self._work("adversary", lambda name, client, rng: Adversary(client, nodes, rng))
        for index in range(plan.followers):
            self._follow(index)

    def stop(self) -> None:
        """Nothing new is asked for."""
        self._on = False

    async def well(self) -> list[str]:
        """Waits until what should run does, and everybody has been told; what is lacking still after PATIENCE."""
        loop, journal = asyncio.get_running_loop(), self._cluster.journal
        deadline = loop.time() + PATIENCE
        while (lacking := self._lacking()) and loop.time() < deadline:  # noqa: ASYNC110 - a simulation polls for nothing
            await asyncio.sleep(0.2)
        revision = journal.revision
        for process, follower in self._followers:
            reaching = process.context.copy().run(loop.create_task, follower.wait_for_revision(revision, PATIENCE))
            if not await reaching:
                lacking.append(f"{follower.name} has not been told everything up to revision {revision}")
        for name, scheduler in self._cluster.schedulers.items():
            lacking += [f"{name}: {problem}" for problem in await self._mistaken(scheduler, revision)]
        return lacking

    async def _mistaken(self, scheduler: Scheduler, revision: int) -> list[str]:
        """What a scheduler, leading or not, believes wrongly: its cache must be the state when nothing moves any more. Only one
        that does not lead may go on assuming a pod that nobody has bound: it finds out when it is elected again."""
        try:
            await scheduler._informers.pods.wait_for(revision, PATIENCE)
        except TimeoutError as error:
            return [str(error)]
        cache, pods = scheduler._cache, self._cluster.journal.pods
        leads = scheduler._standby.token is not None
        placed = {facts.uid: facts.node for facts in pods.values() if facts.node and not facts.finished}
        waiting = {facts.uid for facts in pods.values() if not facts.node and not leads}
        assumed = {info.uid: info.key for info in cache.assumed_pods()}
        problems = [f"still assumes pod {key}" for uid, key in assumed.items() if uid not in waiting]
        problems += [
            f"takes pod {uid} to be on {cache.node_of(uid) or 'no node'}, not on {node}"
            for uid, node in placed.items()
            if cache.node_of(uid) != node
        ]
        if not problems and len(cache) != len(placed) + len(assumed):
            problems.append(f"counts {len(cache)} pods on nodes, not {len(placed)}")
        return problems

    def _lacking(self) -> list[str]:
        """Pods that should run and do not, and those that do not go although somebody sees to it. Owners may ask for more pods
        than there is room for: then some wait."""
        plan = self._plan
        if plan.kind is not Kind.WHOLE:
            return []
        pods = {key: facts for key, facts in self._cluster.journal.pods.items() if key.startswith(f"{PODS.prefix}{LOAD}/")}
        full = sum(bool(facts.node) for facts in pods.values()) >= plan.nodes * plan.capacity
        return [
            f"{key} is {facts.phase} on {facts.node or 'no node'}{', terminating' if facts.terminating else ''}"
            for key, facts in pods.items()
            if facts.terminating or (facts.phase != "Running" and (facts.node or not full))
        ]

    def _work(self, name: str, make: Any) -> None:
        """Starts a client that takes one step after another."""

        async def work(process: Process, member: Member) -> None:
            rng = self._cluster.fork()
            worker: LoadWorker = make(name, self._recording(process, rng), rng)
            while self._on:
                with suppress(ApiError):
                    await worker.execute_step()
                await asyncio.sleep(rng.expovariate(1 / self._plan.pace))

        self._cluster.start("client", name, work)

    def _follow(self, index: int) -> None:
        """Starts a watch or an informer."""
        cluster, journal = self._cluster, self._cluster.journal
        rng = cluster.fork()
        name = f"follower-{index}"
        resource = rng.choice((PODS, PODS, PODS, NODES))
        fields = rng.choice(("", "", f"spec.nodeName={FLEET}-0")) if resource is PODS else ""
        verified = random.Random(f"verified {self._plan.seed} {index}").random() < 0.5  # does not change the other choices

        async def follow(process: Process, member: Member) -> None:
            if rng.random() < 0.5:
                watched: Resource[Any] = resource
                watcher = RecordingWatcher(name, watched, cluster.endpoints, journal, rng, fields=fields, verified=verified)
                self._followers.append((process, watcher))
                await watcher.watch_until_cancelled()
            client = Client(Connection(cluster.endpoints)).of(resource)
            while True:
                informer = RecordedInformer(name, client, journal, process.clock, fields)
                self._followers.append((process, informer))
                with suppress(OtherHistory):  # compaction was faster
                    await informer.run()
                self._followers.remove((process, informer))

        cluster.start("client", name, follow)

    async def _stand(self, process: Process, member: Member) -> None:
        """A candidate that binds pods as long as it thinks that it leads, and longer."""
        cluster, clock, rng = self._cluster, process.clock, self._cluster.fork()
        last: list[tuple[int, float]] = []  # the tokens that it had, and until when it goes on with them

        def won(token: int) -> None:
            last.append((token, float("inf")))

        def lost(reason: str) -> None:
            token, _ = last.pop()
            last.append((token, clock.monotonic() + rng.uniform(0.0, STUBBORN)))

        connection = Connection(cluster.endpoints)
        candidate = LeaderElector(
            connection, ELECTION, process.name, on_elected=won, on_lost=lost, scheduler_names=(NOBODY,), clock=clock
        )
        client = self._recording(process, rng)
        member.stop = candidate.release

        async def bind() -> None:
            serial = 0
            life = rng.getrandbits(24)
            while True:
                await asyncio.sleep(rng.expovariate(1 / self._plan.pace))
                tokens = [token for token, until in last if clock.monotonic() < until]
                if not tokens or not self._on:
                    continue
                serial += 1
                with suppress(ApiError):
                    await bind_one(client, f"{process.name}-{life:x}-{serial}", candidate.fence_of(rng.choice(tokens)), rng)

        async with asyncio.TaskGroup() as group:
            group.create_task(candidate.run())
            group.create_task(bind())

    def _recording(self, process: Process, rng: random.Random) -> Client:
        connection = RecordingConnection(process.name, self._cluster.endpoints, self._cluster.journal, rng)
        process.on_crash.append(connection.abandon_pending_calls)
        return Client(connection)


async def bind_one(client: Client, name: str, fence: Fence, rng: random.Random, nodes: Sequence[str] = ("a", "b", "c")) -> None:
    """Makes a pod, and binds it under the fence. Some pods are of a scheduler for which the candidates do not stand. Raises
    ApiError."""
    made = await client.pods.create(build_pod(CONTESTED, name, scheduler=FOREIGN if rng.random() < 0.1 else NOBODY))
    binding = Binding(
        metadata=ObjectMeta(namespace=CONTESTED, name=name, uid=made.metadata.uid),
        target=ObjectReference(kind="Node", name=rng.choice(nodes)),
    )
    await client.pods.bind_batch([binding], fence)
