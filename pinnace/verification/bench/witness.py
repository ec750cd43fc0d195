"""An independent witness. It watches all pods from before the first create, and records when each is bound and Running.

The witness has the view of a regular client, and checks:

    created (observed) -> bound: nodeName changes from empty to a node, once -> Running
    bound twice: nodeName or the token changes after the bind                violation
    lost: created, acknowledged, and never bound                             violation
    bound by a deposed leader: with an older token than that of an           violation
        earlier bind (a watch delivers events in order of revision)

Times are arrival times on the monotonic clock of this process, so they include the latency of the watch.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pinnace.api import fences
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.client.client import Client
from pinnace.client.errors import ApiError, Conflict, Unavailable
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.verification.bench import BenchError

RESUME_DELAY = 0.02
BOUND, RUNNING = "bound", "running"


@dataclass(slots=True)
class PodObservation:
    """The observations of one pod. Times are monotonic seconds; 0.0 means that the event has not been observed."""

    name: str
    node: str = ""
    token: int = 0
    bound: float = 0.0
    running: float = 0.0
    deleted: float = 0.0
    rebound: list[str] = field(default_factory=list)
    """Each further node that the pod was bound to; "" for none."""


class PodHistory:
    """Derives violations from watch events. Pods are identified by uid, because names can be reused."""

    def __init__(self) -> None:
        self.pods: dict[str, PodObservation] = {}
        self.counts = {BOUND: 0, RUNNING: 0}
        self.tokens: dict[int, float] = {}
        """The time of the first bind with each token."""
        self.deposed: list[str] = []
        """Names of pods that were bound with a token after a later token had been used."""

    def observe_events(self, events: Iterable[tuple[WatchEventType, Pod]], now: float) -> None:
        for kind, pod in events:
            uid, node = pod.metadata.uid, pod.spec.nodeName
            seen = self.pods.get(uid)
            if seen is None:
                seen = self.pods[uid] = PodObservation(pod.metadata.name)
            if node != seen.node or (node and fences.fence_of(pod).token != seen.token):
                self._note_bound(seen, pod, node, now)
            if not seen.running and pod.status.phase == "Running" and kind != WatchEventType.DELETED:
                seen.running = now
                self.counts[RUNNING] += 1
            if kind == WatchEventType.DELETED:
                seen.deleted = now

    def _note_bound(self, seen: PodObservation, pod: Pod, node: str, now: float) -> None:
        if seen.bound:
            seen.rebound.append(node)
        else:
            seen.bound = now
            seen.token = fences.fence_of(pod).token
            self.counts[BOUND] += 1
            if seen.token and seen.token < max(self.tokens, default=0):
                self.deposed.append(seen.name)
            self.tokens.setdefault(seen.token, now)
        seen.node = node

    def count_violations(self, acknowledged: Iterable[str]) -> dict[str, int]:
        """Return the number of violations by name. `acknowledged`: the uids of created pods."""
        return {
            "lost": len(self.lost_pods(acknowledged)),
            "bound_twice": len(self.bound_twice()),
            "bound_by_deposed": len(self.deposed),
        }

    def nodes_of(self, uids: Iterable[str]) -> list[str]:
        """Return the nodes of these pods. Deleted and unbound pods are omitted."""
        seen = (self.pods[uid] for uid in uids if uid in self.pods)
        return [item.node for item in seen if item.node and not item.deleted]

    def bound_twice(self) -> list[str]:
        """Return the names of pods whose node or token changed after the bind."""
        return [seen.name for seen in self.pods.values() if seen.rebound]

    def lost_pods(self, acknowledged: Iterable[str]) -> list[str]:
        """Return the uids of created pods that were never observed as bound."""
        return [uid for uid in acknowledged if (seen := self.pods.get(uid)) is None or not seen.bound]

    def first_bind_after(self, token: int) -> float | None:
        """Return the time of the first bind by a leader that was elected after `token`, or None."""
        return min((seen for elected, seen in self.tokens.items() if elected > token), default=None)


class PodWitness:
    """The watch that feeds a history. A broken watch is resumed. If it cannot be resumed, the run is void."""

    def __init__(self, client: Client, clock: Clock = SYSTEM_CLOCK) -> None:
        self.history = PodHistory()
        self._client = client
        self._clock = clock
        self._listening = asyncio.Event()
        self._news = asyncio.Event()
        self._blind: BenchError | None = None

    async def watch_events(self) -> None:
        """Watch until cancelled, or until events were missed. In the latter case, all waiting methods raise BenchError."""
        try:
            await self._watch((await self._client.pods.list()).resource_version)
        except ApiError as error:
            self._blind = BenchError(f"the witness has missed events: {error}")
            self._listening.set()
            self._news.set()

    async def _watch(self, revision: int) -> None:
        while True:
            self._listening.set()
            try:
                async for batch in self._client.pods.watch(resource_version=revision):
                    revision = batch.resource_version
                    if batch.events:
                        self.history.observe_events(batch.events, self._clock.monotonic())
                        self._news.set()
            except (Unavailable, Conflict):
                await self._clock.sleep(RESUME_DELAY)

    async def wait_until_watching(self) -> None:
        """Wait until the watch has started, so that no event can be missed. Raises BenchError."""
        await self._listening.wait()
        self._check()

    async def wait_for_stage(self, stage: str, count: int, timeout: float) -> None:
        """Wait until this number of pods has been observed BOUND or RUNNING. Raises BenchError."""
        if not await self._wait_until(lambda: self.history.counts[stage] >= count, timeout):
            raise BenchError(f"only {self.history.counts[stage]:,} of {count:,} pods are {stage} after {timeout:g} s")

    async def next_leader_binds(self, token: int, timeout: float) -> float:
        """Wait for the first bind by a leader that was elected after `token`, and return its time. Raises BenchError."""
        await self._wait_until(lambda: self.history.first_bind_after(token) is not None, timeout)
        if (result := self.history.first_bind_after(token)) is not None:
            return result
        raise BenchError(f"no leader elected after token {token} bound a pod within {timeout:g} s")

    async def _wait_until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait for the condition. Return False on timeout."""
        deadline = self._clock.monotonic() + timeout
        while not condition():
            self._check()
            self._news.clear()
            try:
                async with asyncio.timeout(deadline - self._clock.monotonic()):
                    await self._news.wait()
            except TimeoutError:
                return condition()
        return True

    def _check(self) -> None:
        if self._blind:
            raise self._blind


@asynccontextmanager
async def watch_pods(client: Client) -> AsyncIterator[PodWitness]:
    """Yield a witness whose watch has started."""
    witness = PodWitness(client)
    watching = asyncio.create_task(witness.watch_events())
    try:
        await witness.wait_until_watching()
        yield witness
    finally:
        watching.cancel()
        await asyncio.wait((watching,))
