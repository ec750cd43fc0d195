"""Revisions of pod templates: the ControllerRevisions of a stateful set or daemon set.

    the template now    found in no revision              --> a new revision, with the next number
                        found in the newest revision      --> nothing
                        found in an older one (rollback)  --> that revision gets the next number

The data of a revision is a strategic merge patch that sets the template, as in Kubernetes. A revision's name contains a hash of
the data, so that a controller that is stopped after the creation finds its revision by the same name. Another object that has
the name increases the collision count, which the hash includes.

Source: pkg/controller/history/controller_history.go and pkg/controller/statefulset/stateful_set_utils.go of Kubernetes 1.36.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pinnace.api.apps_v1_pb2 import ControllerRevision
from pinnace.api.codec import CodecError, from_dict, to_dict
from pinnace.api.core_v1_pb2 import PodTemplateSpec
from pinnace.api.quantities import semantically_equal
from pinnace.api.resources import CONTROLLER_REVISIONS, Object, Resource
from pinnace.api.scalars import to_seconds
from pinnace.client.errors import AlreadyExists, NotFound, OutcomeUnknown
from pinnace.controllers.ownership import new_controller_ref
from pinnace.controllers.runtime import ControllerContext, get_controller_of
from pinnace.controllers.writes import Expectations

REVISION_LABEL = "controller-revision-hash"
"""A label of pods: the name (StatefulSet) or hash (DaemonSet) of their revision."""
HASH_LABEL = "controller.kubernetes.io/hash"
"""A label of the revisions of stateful sets: the hash of their data."""
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for generated names, which forms no words."""
_MAX_PREFIX = 223
"""Maximum number of characters of the owner's name in a revision's name."""


def encode_template(template: PodTemplateSpec) -> bytes:
    """Return the data of a revision: the bytes that Kubernetes writes for this template."""
    patch = {"spec": {"template": {**_template_dict(template), "$patch": "replace"}}}
    text = json.dumps(patch, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    for character in "<>&\u2028\u2029":  # as Go's encoding/json
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


def _template_dict(template: PodTemplateSpec) -> dict[str, Any]:
    """Return the template as JSON. Go writes metadata and spec even if they are empty, and the resources of containers."""
    data = to_dict(template)
    data.setdefault("metadata", {})
    for containers in ("containers", "initContainers"):
        for container in data.setdefault("spec", {}).get(containers, ()):
            container.setdefault("resources", {})
    return data


def decode_template(revision: ControllerRevision) -> PodTemplateSpec | None:
    """Return the template in a revision, or None if it contains none."""
    try:
        template = {**json.loads(revision.data.raw)["spec"]["template"]}
        template.pop("$patch", None)
        return from_dict(PodTemplateSpec, template)
    except (ValueError, KeyError, TypeError, RecursionError, CodecError):
        return None


def hash_revision(data: bytes, collisions: int) -> str:
    """Return Kubernetes' hash of a revision: FNV-1 (32 bits) of the data and the collision count, in safe characters."""
    value = 0x811C9DC5
    for byte in data + str(collisions).encode():
        value = (value * 0x01000193 & 0xFFFFFFFF) ^ byte
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))


def revision_name(owner: str, hash_: str) -> str:
    return f"{owner[:_MAX_PREFIX]}-{hash_}"


def sort_revisions(revisions: Iterable[ControllerRevision]) -> list[ControllerRevision]:
    """Return the revisions with the highest number last. Ties are broken by age, then by name."""
    return sorted(
        revisions,
        key=lambda revision: (
            revision.revision,
            to_seconds(revision.metadata.creationTimestamp),
            revision.metadata.name,
        ),
    )


def find_revision(revisions: Sequence[ControllerRevision], data: bytes, template: PodTemplateSpec) -> ControllerRevision | None:
    """Return the newest of the sorted revisions with this template, or None.

    Templates are compared by their meaning, so that other bytes for the same template start no rollout.
    """
    for revision in reversed(revisions):
        if revision.data.raw == data:
            return revision
        stored = decode_template(revision)
        if stored is not None and semantically_equal(stored, template):
            return revision
    return None


def build_revision(
    resource: Resource[Any], owner: Object, template: PodTemplateSpec, number: int, collisions: int, hash_label: str
) -> ControllerRevision:
    """Return the revision to create for the template, with the labels of the template and the annotations of the owner."""
    revision = ControllerRevision(revision=number)
    revision.data.raw = encode_template(template)
    hash_, metadata = hash_revision(revision.data.raw, collisions), revision.metadata
    metadata.name, metadata.namespace = revision_name(owner.metadata.name, hash_), owner.metadata.namespace
    metadata.labels.update({**template.metadata.labels, hash_label: hash_})
    metadata.annotations.update(owner.metadata.annotations)
    metadata.ownerReferences.append(new_controller_ref(resource, owner))
    return revision


def revisions_beyond_history(
    revisions: Sequence[ControllerRevision], live: Iterable[str], limit: int
) -> list[ControllerRevision]:
    """Return the oldest of the sorted revisions that are not in `live` (names) and beyond the limit. A negative limit keeps
    all."""
    used = frozenset(live)
    history = [revision for revision in revisions if revision.metadata.name not in used]
    return history[: max(0, len(history) - limit)] if limit >= 0 else []


class RevisionControl:
    """Writes the revisions of the objects of one kind."""

    def __init__(
        self,
        shared: ControllerContext,
        resource: Resource[Any],
        expectations: Expectations,
        hash_label: str,
    ) -> None:
        """`hash_label` is the label of a revision with its hash."""
        self._client = shared.client.of(CONTROLLER_REVISIONS)
        self._resource = resource
        self._expectations = expectations
        self._hash_label = hash_label

    async def ensure(
        self, key: str, owner: Object, template: PodTemplateSpec, revisions: Sequence[ControllerRevision], collisions: int
    ) -> tuple[ControllerRevision, int]:
        """Return the revision of the template, with the highest number of the sorted `revisions`, and the collision count.

        Raise ApiError.
        """
        data = encode_template(template)
        newest = revisions[-1] if revisions else None
        found = find_revision(revisions, data, template)
        number = newest.revision + 1 if newest is not None else 1
        if found is None:
            return await self._create(key, owner, template, number, collisions)
        if found is newest:
            return found, collisions
        changed = ControllerRevision()
        changed.CopyFrom(found)
        changed.revision = number
        stored = await self._client.update(changed)
        self._expectations.expect_version(key, CONTROLLER_REVISIONS, stored.metadata.resourceVersion)
        return stored, collisions

    async def _create(
        self, key: str, owner: Object, template: PodTemplateSpec, number: int, collisions: int
    ) -> tuple[ControllerRevision, int]:
        while True:
            revision = build_revision(self._resource, owner, template, number, collisions, self._hash_label)
            try:
                stored = await self._client.create(revision)
            except AlreadyExists:
                other = await self._client.get(revision.metadata.name, revision.metadata.namespace)
                if not self._is_collision(owner, other, revision):
                    self._expectations.expect_version(key, CONTROLLER_REVISIONS, other.metadata.resourceVersion)
                    raise
                collisions += 1
                continue
            except OutcomeUnknown:
                await self._expectations.expect_lost_write(key, self._client)
                raise
            self._expectations.expect_version(key, CONTROLLER_REVISIONS, stored.metadata.resourceVersion)
            return stored, collisions

    def _is_collision(self, owner: Object, other: ControllerRevision, revision: ControllerRevision) -> bool:
        """Return whether the name stays in use. It does not if it is our own revision that the cache lacks, one that we adopt
        next, or one of a deleted owner with our name, which the garbage collector deletes."""
        reference = get_controller_of(other)
        if reference is not None and (reference.kind, reference.name) != (self._resource.kind, owner.metadata.name):
            return True
        stale = reference is not None and reference.uid != owner.metadata.uid
        return not stale and other.data.raw != revision.data.raw

    async def delete(self, key: str, revisions: Iterable[ControllerRevision]) -> None:
        """Delete revisions. Raise ApiError."""
        for revision in revisions:
            metadata = revision.metadata
            try:
                await self._client.delete(metadata.name, metadata.namespace, uid=metadata.uid)
            except NotFound:
                continue
