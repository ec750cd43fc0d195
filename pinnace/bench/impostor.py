"""Acting for a leader that is no more, to see the fence at work."""

from pinnace.api.core_v1_pb2 import Binding, Container, ObjectReference, Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.pods_pb2 import Fence
from pinnace.client.client import Client
from pinnace.client.errors import Fenced, error_of

NAME = "impostor"
NOBODY = "nobody"
"""A scheduler that does not exist: the pod waits for the impostor alone."""


async def is_fenced(client: Client, deposed: Election, node: str) -> bool:
    """Sends a bind with the token of a leader that was deposed; was it refused for that reason? Leaves nothing behind."""
    pod = Pod(metadata=ObjectMeta(name=NAME, namespace="default"))
    pod.spec.schedulerName = NOBODY
    pod.spec.containers.append(Container(name="c", image="none"))
    created = await client.pods.create(pod)
    binding = Binding(
        metadata=ObjectMeta(namespace="default", name=NAME, uid=created.metadata.uid),
        target=ObjectReference(kind="Node", name=node),
    )
    try:
        (item,) = await client.pods.bind_batch([binding], Fence(election=deposed.name, token=deposed.token))
    finally:
        await client.pods.delete(NAME, "default", grace=0, uid=created.metadata.uid)
    return isinstance(error_of(item), Fenced)
