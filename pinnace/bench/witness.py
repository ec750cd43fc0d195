"""An independent witness: watches the pods from before the first one is created, and records when each is bound and Running.

It sees what any client sees, and judges by it:

    created (seen) -> bound: nodeName goes empty -> X, once -> Running
    bound again: nodeName or the token changes once it is set             must never happen
    lost: created, acknowledged, and never bound                          must never happen
    bound by a deposed leader: with a token older than that of an         must never happen
        earlier bind (a watch delivers in the order of the revisions)

Times are those of arrival here, on this process' monotonic clock: they include the latency of the watch.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pinnace.api import fences
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.bench import BenchError
from pinnace.client.client import Client
from pinnace.client.errors import ApiError, Conflict, Unavailable
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

RESUME_DELAY = 0.02
BOUND, RUNNING = "bound", "running"


@dataclass(slots=True)
class Seen:
    """What is known of one pod. Times are monotonic seconds, 0.0 for what has not happened."""

    name: str
    node: str = ""
    token: int = 0
    bound: float = 0.0
    running: float = 0.0
    deleted: float = 0.0
    rebound: list[str] = field(default_factory=list)
    """Every further node ("" for none) that the pod was bound to."""


class PodHistory:
    """The pure part: events in, judgement out. By uid, since a name may be used again."""

    def __init__(self) -> None:
        self.pods: dict[str, Seen] = {}
        self.counts = {BOUND: 0, RUNNING: 0}
        self.tokens: dict[int, float] = {}
        """When the first bind under each token was seen."""
        self.deposed: list[str] = []
        """Names of the pods that were bound under a token when a later one had been used already."""

    def observe(self, events: Iterable[tuple[WatchEventType, Pod]], now: float) -> None:
        for kind, pod in events:
            uid, node = pod.metadata.uid, pod.spec.nodeName
            seen = self.pods.get(uid)
            if seen is None:
                seen = self.pods[uid] = Seen(pod.metadata.name)
            if node != seen.node or (node and fences.of(pod).token != seen.token):
                self._bound(seen, pod, node, now)
            if not seen.running and pod.status.phase == "Running" and kind != WatchEventType.DELETED:
                seen.running = now
                self.counts[RUNNING] += 1
            if kind == WatchEventType.DELETED:
                seen.deleted = now

    def _bound(self, seen: Seen, pod: Pod, node: str, now: float) -> None:
        if seen.bound:
            seen.rebound.append(node)
        else:
            seen.bound = now
            seen.token = fences.of(pod).token
            self.counts[BOUND] += 1
            if seen.token and seen.token < max(self.tokens, default=0):
                self.deposed.append(seen.name)
            self.tokens.setdefault(seen.token, now)
        seen.node = node

    def violations(self, acknowledged: Iterable[str]) -> dict[str, int]:
        """How often what must never be has been."""
        return {
            "lost": len(self.lost(acknowledged)),
            "bound_twice": len(self.bound_twice()),
            "bound_by_deposed": len(self.deposed),
        }

    def nodes(self, uids: Iterable[str]) -> list[str]:
        """The node of each of these pods, but for those that are gone or not bound."""
        seen = (self.pods[uid] for uid in uids if uid in self.pods)
        return [each.node for each in seen if each.node and not each.deleted]

    def bound_twice(self) -> list[str]:
        """Names of the pods whose binding changed once they had one."""
        return [seen.name for seen in self.pods.values() if seen.rebound]

    def lost(self, acknowledged: Iterable[str]) -> list[str]:
        """Those of the created pods (by uid) that were never seen bound."""
        return [uid for uid in acknowledged if (seen := self.pods.get(uid)) is None or not seen.bound]

    def first_bind_after(self, token: int) -> float | None:
        """When the first bind by a leader that was elected after `token` was seen."""
        return min((seen for elected, seen in self.tokens.items() if elected > token), default=None)


class Witness:
    """The watch that feeds a history. A watch that breaks is resumed where it was; one that cannot be makes the run void."""

    def __init__(self, client: Client, clock: Clock = SYSTEM_CLOCK) -> None:
        self.history = PodHistory()
        self._client = client
        self._clock = clock
        self._listening = asyncio.Event()
        self._news = asyncio.Event()
        self._blind: BenchError | None = None

    async def run(self) -> None:
        """Until cancelled, or until it had to miss something: then everything that is waited for here raises BenchError."""
        try:
            await self._watch((await self._client.pods.list()).resource_version)
        except ApiError as error:
            self._blind = BenchError(f"the witness has missed what happened: {error}")
            self._listening.set()
            self._news.set()

    async def _watch(self, revision: int) -> None:
        while True:
            self._listening.set()
            try:
                async for batch in self._client.pods.watch(resource_version=revision):
                    revision = batch.resource_version
                    if batch.events:
                        self.history.observe(batch.events, self._clock.monotonic())
                        self._news.set()
            except (Unavailable, Conflict):
                await self._clock.sleep(RESUME_DELAY)

    async def listening(self) -> None:
        """Returns when nothing that happens from now on can be missed. Raises BenchError."""
        await self._listening.wait()
        self._check()

    async def reached(self, stage: str, count: int, timeout: float) -> None:
        """Waits until so many pods have been seen BOUND or RUNNING. Raises BenchError."""
        if not await self._until(lambda: self.history.counts[stage] >= count, timeout):
            raise BenchError(f"only {self.history.counts[stage]:,} of {count:,} pods were {stage} after {timeout:g} s")

    async def next_leader_binds(self, token: int, timeout: float) -> float:
        """Waits for the first bind by a leader that was elected after `token`; when it was seen. Raises BenchError."""
        await self._until(lambda: self.history.first_bind_after(token) is not None, timeout)
        if (found := self.history.first_bind_after(token)) is not None:
            return found
        raise BenchError(f"no scheduler that was elected after token {token} bound a pod within {timeout:g} s")

    async def _until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """False: it did not come true in time."""
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
async def witnessing(client: Client) -> AsyncIterator[Witness]:
    """A witness that listens already."""
    witness = Witness(client)
    watching = asyncio.create_task(witness.run())
    try:
        await witness.listening()
        yield witness
    finally:
        watching.cancel()
        await asyncio.wait((watching,))
