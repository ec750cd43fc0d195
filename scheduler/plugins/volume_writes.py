"""What is written so that a claim is bound: both sides name each other, the volume first. It may be repeated.

In Kubernetes the scheduler writes the volume's side only, and its volume controller the rest. There is no such controller here.
"""

from pinnace.api.core_v1_pb2 import ObjectReference, PersistentVolume, PersistentVolumeClaim
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from pinnace.api.wellknown import BIND_COMPLETED_ANNOTATION
from pinnace.client.client import Client

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


async def bind(client: Client, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
    """Raises ApiError: a Conflict when somebody else has changed one of them."""
    volumes, claims = client.of(PERSISTENT_VOLUMES), client.of(PERSISTENT_VOLUME_CLAIMS)
    own, theirs = PersistentVolume(), PersistentVolumeClaim()
    own.CopyFrom(volume)
    theirs.CopyFrom(claim)
    own.spec.claimRef.CopyFrom(_reference(claim))
    own.metadata.annotations[BOUND_BY_CONTROLLER] = "yes"
    own = await volumes.update(own)
    theirs.spec.volumeName = volume.metadata.name
    theirs.metadata.annotations.update({BIND_COMPLETED_ANNOTATION: "yes", BOUND_BY_CONTROLLER: "yes"})
    theirs = await claims.update(theirs)
    own.status.phase = theirs.status.phase = "Bound"
    theirs.status.accessModes[:] = volume.spec.accessModes
    for name, amount in volume.spec.capacity.items():
        theirs.status.capacity[name].CopyFrom(amount)
    await volumes.update_status(own)
    await claims.update_status(theirs)


async def choose_node(client: Client, claim: PersistentVolumeClaim, node: str) -> None:
    """Asks the class's provisioner for a volume that can be reached from the node. Raises ApiError."""
    theirs = PersistentVolumeClaim()
    theirs.CopyFrom(claim)
    if theirs.metadata.annotations.get(SELECTED_NODE) != node:
        theirs.metadata.annotations[SELECTED_NODE] = node
        await client.of(PERSISTENT_VOLUME_CLAIMS).update(theirs)


def _reference(claim: PersistentVolumeClaim) -> ObjectReference:
    meta = claim.metadata
    return ObjectReference(
        kind="PersistentVolumeClaim", apiVersion="v1", namespace=meta.namespace, name=meta.name, uid=meta.uid
    )
