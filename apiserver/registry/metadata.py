"""The metadata fields that the server sets on create and update, for all resources."""

from pinnace.api.meta_v1_pb2 import ObjectMeta, OwnerReference
from pinnace.api.resources import Object
from pinnace.apiserver.registry.strategy import add_warnings


def keep_identity(new: Object, old: Object) -> None:
    """Copy the metadata fields that an update cannot change from `old`. Update may omit these fields."""
    metadata = new.metadata
    metadata.selfLink = ""
    metadata.uid = old.metadata.uid
    metadata.generation = old.metadata.generation
    metadata.generateName = old.metadata.generateName
    for name in ("creationTimestamp", "deletionTimestamp"):
        if old.metadata.HasField(name):
            getattr(metadata, name).CopyFrom(getattr(old.metadata, name))
        else:
            metadata.ClearField(name)
    if old.metadata.HasField("deletionGracePeriodSeconds"):
        metadata.deletionGracePeriodSeconds = old.metadata.deletionGracePeriodSeconds
    else:
        metadata.ClearField("deletionGracePeriodSeconds")


def copy_owners(new: ObjectMeta, old: ObjectMeta) -> None:
    """Copy the owners of fields."""
    new.ownership = old.ownership
    new.ClearField("managedFields")
    if old.managedFields:
        new.managedFields.extend(old.managedFields)


def clear_server_fields(metadata: ObjectMeta) -> None:
    """Clear the fields of a new object that the server sets, and that clients may send, for example from exported manifests."""
    metadata.selfLink = ""
    del metadata.managedFields[:]


def drop_duplicate_owners(obj: Object) -> None:
    """Drop duplicate ownerReferences with a warning, as in Kubernetes."""
    owners = obj.metadata.ownerReferences
    if len(owners) < 2:
        return
    distinct, repeated = dict[bytes, None](), list[str]()
    for owner in owners:
        owner_bytes = owner.SerializeToString(deterministic=True)
        if owner_bytes in distinct:
            repeated.append(owner.uid)
        distinct[owner_bytes] = None
    if repeated:
        add_warnings([f"metadata.ownerReferences: duplicate entries were dropped; duplicate UID(s): {', '.join(repeated)}"])
        del owners[:]
        owners.extend(map(OwnerReference.FromString, distinct))
