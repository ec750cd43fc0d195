"""What `apply` decides, as values: what to do with each object, given what is there; and which objects go together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pinnace.api import merge
from pinnace.api.codec import from_dict, revised, to_dict
from pinnace.api.manifest import Manifest
from pinnace.api.resources import (
    CLUSTER_ROLES,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    ROLES,
    STORAGE_CLASSES,
    UNSAID,
    Object,
    Resource,
)
from pinnace.api.wire import portions

CHUNK = 200
"""Objects that are sent together, at most."""
CREATED, CONFIGURED, UNCHANGED = "created", "configured", "unchanged"

_FIRST = (
    NAMESPACES, CLUSTER_ROLES, ROLES, RESOURCE_QUOTAS, LIMIT_RANGES, PRIORITY_CLASSES, STORAGE_CLASSES, PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS, NODES,
)  # fmt: skip
"""What others need, or are bounded by, is applied before them, whatever the order of the files."""
_SHARED = frozenset({"annotations", "finalizers", "labels", "ownerReferences"})
"""The metadata that are not the server's own."""


@dataclass(frozen=True, slots=True)
class Desired:
    """What a manifest wants to be there."""

    manifest: Manifest
    form: Mapping[str, Any]
    """What to merge into an object that is there: what was written, and the memory of that."""
    obj: Object
    """What to create where there is none."""

    @property
    def resource(self) -> Resource[Any]:
        return self.manifest.resource


def in_order(manifests: Sequence[Manifest]) -> list[Manifest]:
    return sorted(manifests, key=lambda each: _FIRST.index(each.resource) if each.resource in _FIRST else len(_FIRST))


def chunks(manifests: Iterable[Manifest]) -> Iterator[list[Desired]]:
    """Neighbours of one resource, few and small enough for one request, and no object twice."""
    for group in _groups(manifests):
        yield from portions(map(desired, group), CHUNK, size=lambda each: each.obj.ByteSize())


def _groups(manifests: Iterable[Manifest]) -> Iterator[list[Manifest]]:
    """Neighbours of one resource, and no object twice."""
    group, keys = list[Manifest](), set[str]()
    for manifest in manifests:
        key = manifest.resource.key_of(manifest.obj)
        if group and (key in keys or group[0].resource is not manifest.resource):
            yield group
            group, keys = [], set()
        group.append(manifest)
        keys.add(key)
    if group:
        yield group


def desired(manifest: Manifest) -> Desired:
    form = merge.with_last_applied(_wanted(manifest))
    return Desired(manifest, form, from_dict(manifest.resource, {**to_dict(manifest.obj), **form}))


def merged(desired: Desired, live: Object) -> Any | None:
    """What to update the live object to; None when it is already as desired.

    It carries the live resourceVersion, unless the manifest names one: then that is what must be there.
    """
    now = to_dict(live)
    result = revised(desired.resource, live, now, merge.apply(merge.last_applied(now), now, desired.form))
    result.metadata.resourceVersion = desired.obj.metadata.resourceVersion or live.metadata.resourceVersion
    return None if to_dict(result) == now else result


def _wanted(manifest: Manifest) -> dict[str, Any]:
    """What is applied, and remembered: what was written, zeros and nulls included, but for status, which a create may set, and
    an update does not touch. `creationTimestamp: null`, as in manifests that programs write, is no wish, nor is a version that
    names none."""
    data = dict(manifest.written)
    data.pop("status", None)
    metadata = {name: value for name, value in data["metadata"].items() if value or name in _SHARED}
    for cleared in ("managedFields", "selfLink"):  # by the server, which would make each apply a change
        metadata.pop(cleared, None)
    if str(metadata.get("resourceVersion")) in UNSAID:
        del metadata["resourceVersion"]
    if manifest.obj.metadata.namespace:  # which may be the session's
        metadata["namespace"] = manifest.obj.metadata.namespace
    return {**data, "metadata": metadata}
