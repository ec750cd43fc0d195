"""The load generator. It creates pods and records when each was sent and acknowledged. It runs in the process of the command.

Nodes have 4 CPUs, 32 GiB of memory and a limit of 110 pods. A pod has one container that requests 100m CPU and 500 MiB, so 40
pods fit on a node. The reference measurements use the same sizes.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.documents import parse
from pinnace.client.client import Client
from pinnace.client.errors import from_status
from pinnace.fit import pod_requests
from pinnace.verification.bench import BenchError

NAMESPACE = "default"
NODE_CPU = 4000
"""The capacity of a node in millicores."""
PODS_PER_NODE = 40
Shape = Callable[[str], Pod]
"""A function that returns a pod with the given name."""
CALLERS = 16
"""The number of concurrent calls, which equals the number of clients in the comparison with Kubernetes."""


def build_pod(name: str) -> Pod:
    made = Pod()
    made.metadata.name, made.metadata.namespace = name, NAMESPACE
    container = made.spec.containers.add(name="app", image="example.com/app:1")
    container.resources.requests["cpu"].string = "100m"
    container.resources.requests["memory"].string = "500Mi"
    return made


def shape_with_cpu(more: str, *, cpu: str = "100m") -> Shape:
    """Return a shape of pods like `build_pod` with this CPU request, merged with the YAML in `more`."""
    (document,) = parse(more)
    template = build_pod("")
    template.MergeFrom(from_dict(Pod, document.data))
    template.spec.containers[0].resources.requests["cpu"].string = cpu

    def shape(name: str) -> Pod:
        made = Pod()
        made.CopyFrom(template)
        made.metadata.name = name
        return made

    return shape


def cpu_of(shape: Shape) -> int:
    """Return the CPU request of a pod of this shape in millicores."""
    return dict(pod_requests(shape("any")).amounts)["cpu"]


class CreatedPods:
    """Created pods. `sent` and `acknowledged`: monotonic seconds by name. `uids`: the uids of acknowledged pods."""

    def __init__(self, prefix: str = "pod-", shape: Shape = build_pod, namespace: str = NAMESPACE) -> None:
        self.sent: dict[str, float] = {}
        self.acknowledged: dict[str, float] = {}
        self.uids: list[str] = []
        self.namespace = namespace
        self._prefix = prefix
        self._shape = shape

    async def create_pods(self, clients: Sequence[Client], count: int, *, batch: int, callers: int = CALLERS) -> None:
        """Create `count` more pods as fast as possible. `batch`: pods per call; 1 uses single creates. Raises BenchError,
        ApiError."""
        first = len(self.sent)
        rounds = iter(range(first, first + count, batch))

        async def call(client: Client) -> None:
            for start in rounds:  # shared between the callers
                await self.create_some(client, start, min(batch, first + count - start))

        async with asyncio.TaskGroup() as group:
            for caller in range(min(callers, -(-count // batch))):
                group.create_task(call(clients[caller % len(clients)]))

    async def create_some(self, client: Client, start: int, count: int) -> None:
        """Create the pods with the numbers from `start` in one call."""
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
        """Return the name of the pod with this number, starting at 0."""
        return f"{self._prefix}{number:06d}"

    @property
    def began_at(self) -> float:
        return min(self.sent.values())

    @property
    def latencies(self) -> list[float]:
        """Seconds from sending to acknowledgement for each pod."""
        return [done - self.sent[name] for name, done in self.acknowledged.items()]


async def count_lost_pods(client: Client, created: Iterable[str], namespace: str = NAMESPACE) -> int:
    """Return the number of pods with these names that do not exist. An acknowledgement alone proves nothing: a server that
    acknowledges without writing would be the fastest. Raises ApiError."""
    there = {pod.metadata.name for pod in (await client.pods.list(namespace)).items}
    return sum(name not in there for name in created)
