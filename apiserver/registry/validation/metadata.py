"""ObjectMeta: names, labels, annotations, owners, finalizers, and what an update may not touch."""

from collections.abc import Callable, Sequence

from apiserver.registry.validation.labels import validate_annotations, validate_key, validate_labels
from apiserver.registry.validation.violations import IMMUTABLE, forbidden, invalid, required
from pinnace.api import names
from pinnace.api.meta_v1_pb2 import ObjectMeta, OwnerReference, Time
from pinnace.api.status import Violation
from pinnace.api.wellknown import FOREGROUND_FINALIZER, ORPHAN_FINALIZER

STANDARD_FINALIZERS = ("kubernetes", ORPHAN_FINALIZER, FOREGROUND_FINALIZER)
"""All others say whose they are: "example.com/mine"."""
MAX_OWNERS = 100
"""The garbage collector asks the API about each owner that it does not know. Kubernetes has no such bound."""
NameCheck = Callable[[str], tuple[str, ...]]


def validate_metadata(
    metadata: ObjectMeta, out: list[Violation], *, namespaced: bool, name_check: NameCheck = names.dns_subdomain
) -> None:
    name, prefix, namespace = metadata.name, metadata.generateName, metadata.namespace
    if prefix:
        out.extend(invalid("metadata.generateName", prefix, problem) for problem in name_check(names.generated(prefix)))
    if not name:
        out.append(required("metadata.name", "name or generateName is required"))
    elif problems := name_check(name):
        out.extend(invalid("metadata.name", name, problem) for problem in problems)
    if namespaced:
        if not namespace:
            out.append(required("metadata.namespace"))
        elif problems := names.dns_label(namespace):
            out.extend(invalid("metadata.namespace", namespace, problem) for problem in problems)
    elif namespace:
        out.append(forbidden("metadata.namespace", "not allowed on this type"))
    if labels := metadata.labels:
        validate_labels(labels, "metadata.labels", out)
    if annotations := metadata.annotations:
        validate_annotations(annotations, "metadata.annotations", out)
    if owners := metadata.ownerReferences:
        _validate_owners(owners, out)
    for finalizer in metadata.finalizers:
        validate_key(finalizer, "metadata.finalizers", out)
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            out.append(invalid("metadata.finalizers", finalizer, detail))
    if ORPHAN_FINALIZER in metadata.finalizers and FOREGROUND_FINALIZER in metadata.finalizers:
        detail = f"finalizer {ORPHAN_FINALIZER} and {FOREGROUND_FINALIZER} cannot be both set"
        out.append(invalid("metadata.finalizers", metadata.finalizers, detail))


def validate_metadata_update(new: ObjectMeta, old: ObjectMeta, out: list[Violation]) -> None:
    """The change alone."""
    for field in ("name", "namespace", "uid"):
        value = getattr(new, field)
        if value != getattr(old, field):
            out.append(invalid(f"metadata.{field}", value, IMMUTABLE))
    for field in ("creationTimestamp", "deletionTimestamp"):
        instant: Time = getattr(new, field)
        if instant != getattr(old, field):
            out.append(invalid(f"metadata.{field}", instant.seconds, IMMUTABLE))
    if old.HasField("deletionTimestamp"):
        added = sorted(set(new.finalizers) - set(old.finalizers))
        if added:
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {', '.join(added)}"
            out.append(forbidden("metadata.finalizers", detail))


def _validate_owners(owners: Sequence[OwnerReference], out: list[Violation]) -> None:
    if len(owners) > MAX_OWNERS:  # without the number, so that an object which has more can still be changed
        out.append(Violation("metadata.ownerReferences", f"Too many: must have at most {MAX_OWNERS} items"))
    controller = ""
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        empty = [field for field in ("apiVersion", "kind", "name", "uid") if not getattr(owner, field)]
        out.extend(required(f"{path}.{field}", "must not be empty") for field in empty)
        if owner.apiVersion.count("/") > 1 or owner.apiVersion.endswith("/"):
            out.append(invalid(f"{path}.apiVersion", owner.apiVersion, "must be <group>/<version> or <version>"))
        if (owner.apiVersion, owner.kind) == ("v1", "Event"):
            out.append(invalid(path, owner.name, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.controller:
            this = f"{owner.kind}/{owner.name}"
            if controller:
                detail = "Only one reference can have Controller set to true. "
                detail += f'Found "true" in references for {controller} and {this}'
                out.append(invalid("metadata.ownerReferences", this, detail))
            controller = controller or this
