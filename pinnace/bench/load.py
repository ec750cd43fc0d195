"""The load generator: creates pods, and records when each was sent and acknowledged. It runs in the process of the command.

Nodes have 4 CPU, 32 GiB and room for 110 pods; a pod has one container that requests 100m CPU and 500 MiB, as in the
measurements with which results are compared. So a node takes 40 pods.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.documents import parse
from pinnace.bench import BenchError
from pinnace.client.client import Client
from pinnace.client.errors import from_status
from pinnace.fit import pod_requests

NAMESPACE = "default"
NODE_CPU = 4000
"""Millicores."""
PODS_PER_NODE = 40
Shape = Callable[[str], Pod]
"""What all pods of a kind are like, but for their names."""


def pod(name: str) -> Pod:
    made = Pod()
    made.metadata.name, made.metadata.namespace = name, NAMESPACE
    container = made.spec.containers.add(name="app", image="example.com/app:1")
    container.resources.requests["cpu"].string = "100m"
    container.resources.requests["memory"].string = "500Mi"
    return made


def like(more: str, *, cpu: str = "100m") -> Shape:
    """Pods like `pod`, that ask for so much CPU, and have what this YAML says besides."""
    (document,) = parse(more)
    template = pod("")
    template.MergeFrom(from_dict(Pod, document.data))
    template.spec.containers[0].resources.requests["cpu"].string = cpu

    def shape(name: str) -> Pod:
        made = Pod()
        made.CopyFrom(template)
        made.metadata.name = name
        return made

    return shape


def cpu_of(shape: Shape) -> int:
    """Millicores that a pod of this shape asks for."""
    return dict(pod_requests(shape("any")).amounts)["cpu"]


CALLERS = 16
"""Calls in flight: the number of clients that the comparison with Kubernetes used."""


class Load:
    """Pods that have been created. `sent` and `acknowledged`: monotonic seconds by name. `uids`: of those acknowledged."""

    def __init__(self, prefix: str = "pod-", shape: Shape = pod, namespace: str = NAMESPACE) -> None:
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


async def lost(client: Client, created: Iterable[str], namespace: str = NAMESPACE) -> int:
    """How many of the pods of these names are not there. A create that was acknowledged proves nothing: servers that answer
    and do not write would be the fastest. Raises ApiError."""
    there = {pod.metadata.name for pod in (await client.pods.list(namespace)).items}
    return sum(name not in there for name in created)
