"""The load generator: creates pods, and notes when each was sent and acknowledged. Runs in the process of the command."""

import asyncio
import time
from collections.abc import Iterable, Sequence

from pinnace.bench import workload
from pinnace.bench.errors import BenchError
from pinnace.bench.workload import Shape
from pinnace.client.client import Client
from pinnace.client.errors import from_status

CALLERS = 16
"""Calls in flight: the number of clients that the comparison with Kubernetes used."""


class Load:
    """Pods that have been created. `sent` and `acknowledged`: monotonic seconds by name. `uids`: of those acknowledged."""

    def __init__(self, prefix: str = "pod-", shape: Shape = workload.pod, namespace: str = workload.NAMESPACE) -> None:
        self.sent: dict[str, float] = {}
        self.acknowledged: dict[str, float] = {}
        self.uids: list[str] = []
        self.namespace = namespace
        self._prefix = prefix
        self._shape = shape

    async def create(self, clients: Sequence[Client], count: int, *, batch: int, callers: int = CALLERS) -> None:
        """Creates so many more pods, as fast as it can be done. `batch` 1 is one create a call. Raises BenchError, ApiError."""
        first = len(self.sent)
        rounds = iter(range(first, first + count, batch))

        async def call(client: Client) -> None:
            for start in rounds:  # shared: whoever is free takes the next
                await self.create_some(client, start, min(batch, first + count - start))

        async with asyncio.TaskGroup() as group:
            for caller in range(min(callers, -(-count // batch))):
                group.create_task(call(clients[caller % len(clients)]))

    async def create_some(self, client: Client, start: int, count: int) -> None:
        """One call, that creates the pods of these numbers."""
        pods = [self._shape(self.name(start + i)) for i in range(count)]
        for pod in pods:
            pod.metadata.namespace = self.namespace
        now = time.monotonic()
        self.sent.update((pod.metadata.name, now) for pod in pods)
        if count == 1:
            uids = [(await client.pods.create(pods[0])).metadata.uid]
        else:
            items = await client.pods.create_batch(pods)
            for item in items:
                if item.HasField("error"):
                    raise BenchError(f"pod {item.name} was not created: {from_status(item.error)}")
            uids = [item.uid for item in items]
        now = time.monotonic()
        self.acknowledged.update((pod.metadata.name, now) for pod in pods)
        self.uids.extend(uids)

    def name(self, number: int) -> str:
        """Of the pod that is created as this one, from 0."""
        return f"{self._prefix}{number:06d}"

    @property
    def began(self) -> float:
        return min(self.sent.values())

    @property
    def latencies(self) -> list[float]:
        """Seconds from sending to acknowledgement, of each pod."""
        return [done - self.sent[name] for name, done in self.acknowledged.items()]


async def lost(client: Client, created: Iterable[str], namespace: str = workload.NAMESPACE) -> int:
    """How many of the pods of these names are not there. A create that was acknowledged proves nothing: servers that answer
    and do not write would be the fastest. Raises ApiError."""
    there = {pod.metadata.name for pod in (await client.pods.list(namespace)).items}
    return sum(name not in there for name in created)
