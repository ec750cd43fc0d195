"""Which pods an extender hears of."""

from collections.abc import Collection, Iterator

from pinnace.api.core_v1_pb2 import Pod


def interested(managed: Collection[str], pod: Pod) -> bool:
    """Does the pod ask for one of the extender's managed resources? It hears of all pods when it has none."""
    return not managed or any(name in managed for name in _resources(pod))


def _resources(pod: Pod) -> Iterator[str]:
    """All that its containers ask for, whatever the amount."""
    for container in (*pod.spec.containers, *pod.spec.initContainers):
        yield from container.resources.requests
        yield from container.resources.limits
