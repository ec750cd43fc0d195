"""Server-side apply, and the owners of fields. pinnace.api.ownership has their stored form and managedFields.

The manager of a create owns the fields of the object, and the manager of an update the fields that it changes. An apply that
changes fields of other managers fails unless it is forced.

    apply:  live object, configuration --> merge --> prune --> compare with the live object --> new object, new owners
                                                      |                '--> conflicts: changed fields of other managers
                                                      '--> removes fields of the last configuration without an owner

Bindings, deletions and allocations do not change owners, and nobody owns the fields that they add. Objects whose managedFields
a client has reset have no owners until the next apply. Then `before-first-apply` owns the present fields.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/,
https://github.com/kubernetes-sigs/structured-merge-diff/blob/master/merge/update.go,
https://github.com/kubernetes/kubernetes/tree/master/staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar, cast

from pinnace.api.codec import CodecError, decode_revision, from_dict, to_dict
from pinnace.api.conversion import renamed_fields
from pinnace.api.fieldset import FieldSet, Path, field_element, field_name, from_json, text_of
from pinnace.api.merge import LAST_APPLIED, with_last_applied
from pinnace.api.meta_v1_pb2 import ManagedFieldsEntry, ObjectMeta
from pinnace.api.ownership import (
    APPLY,
    IGNORED,
    MAX_BASE,
    SERVER_FIELDS,
    STATUS,
    UPDATE,
    FieldManager,
    OwnedFields,
    Ownership,
    all_fields,
    assigned_paths,
    decode_managed_fields,
    decode_stored,
    empty_form,
    encode_stored,
    has_server_fields,
    has_status_owner,
    ownable_fields,
    owners_of,
    unchanged_part,
    unchanged_status_fields,
    with_status_owner,
    without_owners,
    without_server_fields,
)
from pinnace.api.ownership_pb2 import FieldOwner
from pinnace.api.patch import json_equal
from pinnace.api.resources import Object, Resource
from pinnace.api.schema import Type, type_of_resource
from pinnace.api.status import Violation
from pinnace.api.structured_merge import ABSENT, TypeMismatch, check, compare, field_set, merge, remove, with_named_fields
from pinnace.apiserver import errors
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import MAX_MANAGER

T = TypeVar("T", bound=Object)

BEFORE_FIRST_APPLY = "before-first-apply"
SCALE = "scale"
"""The subresource whose managers have no times, as in Kubernetes."""
ANCIENT_CHANGES = "ancient-changes"
MAX_UPDATE_MANAGERS = 10
"""Maximum number of managers per object with the operation Update. The oldest are merged into `ancient-changes`."""
_UPGRADES = {"kubectl": "kubectl.kubernetes.io/last-applied-configuration", "pinnace": LAST_APPLIED}
"""The annotations of client-side apply by manager. An apply takes over the fields in the annotation."""


class ApplyResult(NamedTuple, Generic[T]):
    """The result of an apply: the object, and the owners of its fields, with the names in the version of the apply."""

    obj: T
    owners: Ownership


@dataclass(frozen=True, slots=True)
class AppliedConfiguration:
    """The configuration of one apply."""

    manager: FieldManager
    force: bool
    data: Mapping[str, Any]
    """The configuration in the request."""
    fields: dict[str, Any]
    """The configuration without apiVersion, kind, and metadata that has no owners."""


class _ApplyConflicts(Exception):
    def __init__(self, conflicts_found: Sequence[tuple[FieldManager, Path]]) -> None:
        super().__init__(len(conflicts_found))
        self.conflicts_found = conflicts_found


def track_update(
    resource: Resource[T], new: T, old: T, manager: FieldManager, sent: Sequence[ManagedFieldsEntry], now: float
) -> None:
    """Set the owners of the new object after an update that changes it: the manager owns the fields that it changes. `new` has
    the owners of `old`. `sent`: the managedFields in the request, which set or reset the owners, but not through a subresource.
    If they are empty or invalid, the owners of `old` remain."""
    if sent and not manager.subresource:
        if len(sent) == 1 and sent[0] == ManagedFieldsEntry():
            _set_stored_owners(new, b"")
            return
        if owners := _decode_managed_fields(resource, sent):
            changed = _updated_owners(resource, new, old, owners, manager, int(now))
            set_owners(resource, new, old, changed)
            return
    if _track_only_manager(resource, new, old, manager, int(now)):
        return
    if owners := _present_owners(resource, old):
        updated = _updated_owners(resource, new, old, owners, manager, int(now))
        _set_stored_owners(new, encode_stored(resource, updated, all_fields(resource, ownable_fields(resource, new))))


def _set_stored_owners(obj: Any, ownership: bytes) -> None:
    obj.metadata.ownership = ownership
    del obj.metadata.managedFields[:]


def _decode_managed_fields(resource: Resource[Any], entries: Sequence[ManagedFieldsEntry]) -> Ownership:
    try:
        return decode_managed_fields(entries, resource)
    except ValueError:
        return {}


def _present_owners(resource: Resource[Any], obj: Object) -> Ownership:
    try:
        return owners_of(resource, obj)
    except ValueError:
        return {}


def _updated_owners(
    resource: Resource[Any], new: Object, old: Object, owners: Ownership, manager: FieldManager, now: int
) -> Ownership:
    before, after = ownable_fields(resource, old), ownable_fields(resource, new)
    ignored = IGNORED.get(manager.subresource, FieldSet())
    return _track_updated_fields(type_of_resource(resource), before, after, owners, manager, ignored, now)


def _track_only_manager(resource: Resource[Any], new: Any, old: Any, manager: FieldManager, now: int) -> bool:
    """Set the owners of the new object if its other owners need not be computed. Return whether that is so: if the manager owns
    all remaining fields of the part that it writes, or nobody has written the status before."""
    data, subresource = old.metadata.ownership, manager.subresource
    if not data or subresource not in ("", STATUS) or not hasattr(old, subresource or "metadata"):
        return False
    if subresource == STATUS and not has_status_owner(data):
        base = old.status.SerializeToString()
        if len(base) > MAX_BASE:
            return False
        new.metadata.ownership = with_status_owner(data, resource, manager, now, base)
        return True
    if _size_of_part(new, subresource) < _size_of_part(old, subresource):
        return False  # an object that shrinks may only lose fields, which changes no time
    stored = decode_stored(data)
    owners = [owner for owner in stored.owners if (owner.subresource == STATUS) == (subresource == STATUS)]
    if len(owners) != 1:
        return False
    (owner,) = owners
    identity = (owner.manager, owner.applies, owner.apiVersion or resource.api_version, owner.subresource)
    if not owner.remaining or identity != (manager.name, False, manager.api_version, subresource):
        return False
    if subresource == STATUS:
        _take_over_status(resource, owner, new, old)
    elif (
        owner.excluded
        or has_server_fields(resource)
        or any(_value_at(new, path) != _value_at(old, path) for path in assigned_paths(resource, owner))
    ):
        return False
    owner.time = now
    new.metadata.ownership = stored.SerializeToString()
    return True


def _size_of_part(obj: Any, subresource: str) -> int:
    size: int = (obj.status if subresource == STATUS else obj).ByteSize()
    return size


def _value_at(obj: Any, path: Path) -> Any:
    for element in path:
        obj = getattr(obj, field_name(element) or "")
    return obj


def _take_over_status(resource: Resource[Any], owner: FieldOwner, new: Any, old: Any) -> None:
    """Remove the fields that a write changes from those that the owner of the status does not own."""
    excluded, names = _decode_exclusions(owner.excluded)
    if owner.base:
        base: Any = type(new.status).FromString(owner.base)
        names = names | {field.name for field, _ in base.ListFields()}
    if all(getattr(new.status, name) == getattr(old.status, name) for name in names):
        return
    if owner.base:
        excluded = excluded | unchanged_status_fields(resource, owner.base, old.status)
    excluded = unchanged_part(resource, excluded, old.status, new.status, names)
    owner.base, owner.excluded = b"", excluded.to_json().encode() if excluded else b""


def _decode_exclusions(data: bytes) -> tuple[FieldSet, frozenset[str]]:
    """Return the excluded fields, and the names of the fields of the status with one of them."""
    return _decode_short_exclusions(data) if len(data) <= MAX_BASE else _decode_short_exclusions.__wrapped__(data)


@lru_cache(maxsize=1024)
def _decode_short_exclusions(data: bytes) -> tuple[FieldSet, frozenset[str]]:
    excluded = from_json(data or b"{}")
    return excluded, frozenset(field_name(element) or "" for element in excluded.child(field_element(STATUS)).all_elements())


def set_owners(resource: Resource[Any], new: Any, old: Any, owners: Ownership) -> None:
    """Set the owners of the new object, which has those of `old`. If nothing else changes, the times of `old` remain, so that
    the write changes nothing."""
    if not owners:
        _set_stored_owners(new, b"")
    if new == old and _fields_and_versions(owners) == _fields_and_versions(_present_owners(resource, old)):
        return
    _set_stored_owners(new, encode_stored(resource, owners, all_fields(resource, ownable_fields(resource, new))))


def set_created_owners(resource: Resource[Any], obj: Any, owners: Ownership) -> None:
    """Set the owners of an object that an apply creates."""
    everything = all_fields(resource, ownable_fields(resource, obj))
    obj.metadata.ownership = encode_stored(resource, owners, everything) if owners else b""


def _fields_and_versions(owners: Ownership) -> dict[FieldManager, tuple[FieldSet, str]]:
    return {manager: (owned.fields, owned.api_version or manager.api_version) for manager, owned in owners.items()}


def owners_in_version(owners: Ownership, source: Resource[Any], target: Resource[Any]) -> Ownership:
    """Return the owners with the field names of another version of the kind."""
    names = renamed_fields(target, source.api_version, target.api_version) or {}
    return {
        manager: OwnedFields(owned.fields.with_names(names), owned.time, owned.api_version or source.api_version)
        for manager, owned in owners.items()
    }


def _track_updated_fields(
    of: Type, before: Any, after: Any, managers: Ownership, manager: FieldManager, ignored: FieldSet, now: int
) -> dict[FieldManager, OwnedFields]:
    """Return the owners after an update."""
    difference = compare(of, before, after)
    seen = difference.without(ignored)
    lost = seen.changed | seen.removed
    result = {manager: owned._replace(fields=owned.fields - lost) for manager, owned in managers.items()}
    if taken := difference.changed.without_trees(ignored):
        previous = result.get(manager)
        time = 0 if manager.subresource == SCALE else now
        result[manager] = OwnedFields(taken | previous.fields if previous else taken, time)
    return _cap_update_managers({manager: owned for manager, owned in result.items() if owned.fields})


def _cap_update_managers(managers: dict[FieldManager, OwnedFields]) -> dict[FieldManager, OwnedFields]:
    updaters = sorted(
        (manager for manager in managers if manager.operation == UPDATE), key=lambda manager: (managers[manager].time, manager)
    )
    surplus = len(updaters) - MAX_UPDATE_MANAGERS
    if surplus <= 0:
        return managers
    fields, time = FieldSet(), 0
    for manager in updaters[: surplus + 1]:
        owned = managers.pop(manager)
        fields, time = fields | owned.fields, owned.time
    managers[FieldManager(ANCIENT_CHANGES, UPDATE, updaters[0].api_version)] = OwnedFields(fields, time)
    return managers


def read_applied_configuration(
    resource: Resource[T], data: Mapping[str, Any], manager: str, subresource: str, force: bool
) -> AppliedConfiguration:
    """Read the configuration of a request. Raises Rejected."""
    if not manager:
        raise Rejected(errors.bad_request("options.fieldManager: Required value: is required for apply patch"))
    if len(manager.encode()) > MAX_MANAGER or not manager.isprintable():
        message = f"options.fieldManager: Invalid value: at most {MAX_MANAGER} bytes of printable characters"
        raise Rejected(errors.bad_request(message))
    version, kind = data.get("apiVersion") or "", data.get("kind") or ""
    if (version, kind) != (resource.api_version, resource.kind):
        group_version = version if isinstance(version, str) and "/" in version else f"/{version}"
        raise Rejected(errors.bad_request(f"invalid object type: {group_version}, Kind={kind}"))
    fields = {name: value for name, value in data.items() if name not in ("apiVersion", "kind")}
    metadata = fields.pop("metadata", None) or {}
    if not isinstance(metadata, dict):
        raise _type_mismatch_rejection(resource, data, TypeMismatch([".metadata: expected map"]))
    if metadata.get("managedFields") is not None:
        raise Rejected(errors.bad_request("metadata.managedFields must be nil"))
    if client_metadata := {name: value for name, value in metadata.items() if name not in SERVER_FIELDS}:
        fields["metadata"] = client_metadata
    try:
        check(type_of_resource(resource), fields)
    except TypeMismatch as error:
        raise _type_mismatch_rejection(resource, data, error) from None
    return AppliedConfiguration(FieldManager(manager, APPLY, subresource=subresource), force, data, fields)


def _type_mismatch_rejection(resource: Resource[Any], data: Mapping[str, Any], error: TypeMismatch) -> Rejected:
    metadata = data.get("metadata")
    namespace, name = (metadata.get(key, "") for key in ("namespace", "name")) if isinstance(metadata, dict) else ("", "")
    version = resource.api_version if "/" in resource.api_version else f"/{resource.api_version}"
    message = f"failed to create typed patch object ({namespace}/{name}; {version}, Kind={resource.kind}): {error}"
    return Rejected(errors.untyped_configuration(message))


def create_from_configuration(
    resource: Resource[T], applied: AppliedConfiguration, namespace: str, name: str, now: float
) -> ApplyResult[T]:
    """Return the object that an apply creates, and its owners. Raises Rejected."""
    metadata = applied.data.get("metadata") or {}
    if metadata.get("uid"):
        raise Rejected(errors.uid_mismatch(resource, name, str(metadata["uid"]), ""))
    form = {**applied.fields, "metadata": {**applied.fields.get("metadata", {}), "name": name, "namespace": namespace}}
    if not resource.namespaced:
        del form["metadata"]["namespace"]
    owned = field_set(type_of_resource(resource), applied.fields).without_trees(
        IGNORED.get(applied.manager.subresource, FieldSet())
    )
    managers = {applied.manager: OwnedFields(owned, int(now))} if owned else {}
    obj = _read_object(resource, name, lambda: from_dict(resource, form))
    obj.metadata.resourceVersion = str(metadata.get("resourceVersion") or "")
    return ApplyResult(obj, managers)


def apply_configuration(resource: Resource[T], applied: AppliedConfiguration, live: T, now: float) -> ApplyResult[T]:
    """Return the live object with the configuration applied. Raises Rejected."""
    name = live.metadata.name
    of, form = type_of_resource(resource), to_dict(live)
    before = without_server_fields(resource, form)
    try:
        managers: Ownership = owners_of(resource, live)
    except ValueError as error:
        raise Rejected(errors.untyped_configuration(f"failed to decode managed fields: {error}")) from None
    if not managers:
        first = FieldManager(BEFORE_FIRST_APPLY, UPDATE, resource.api_version, applied.manager.subresource)
        ignored = IGNORED.get(applied.manager.subresource, FieldSet())
        managers = _track_updated_fields(of, empty_form(resource), before, {}, first, ignored, int(now))
    try:
        after, owners = _merge_applied(of, applied, before, managers, int(now), applied.force)
    except _ApplyConflicts as conflicts:
        result = _remaining_conflicts(resource, applied.manager, live, before, conflicts.conflicts_found)
        if result:
            violations = [Violation(text_of(path), f"conflict with {manager}") for manager, path in result]
            raise Rejected(errors.apply_conflict(violations)) from None
        after, owners = _merge_applied(of, applied, before, managers, int(now), True)
    except TypeMismatch as error:
        raise Rejected(errors.untyped_configuration(f"failed to merge config: {error}")) from None
    _record_last_applied(applied, after)
    after = {key: value for key, value in after.items() if value or key in form}
    remaining_form = {key: form["metadata"][key] for key in SERVER_FIELDS if key in form["metadata"] and key != "managedFields"}
    new_form = {"apiVersion": resource.api_version, "kind": resource.kind, **after}
    new_form["metadata"] = {**(after.get("metadata") or {}), **remaining_form}
    new = _read_object(resource, name, lambda: decode_revision(resource, without_owners(live), form, new_form))
    _check_identity(applied.data, new.metadata)
    return ApplyResult(new, owners)


def _merge_applied(
    of: Type, applied: AppliedConfiguration, before: dict[str, Any], managers: Ownership, now: int, force: bool
) -> tuple[dict[str, Any], dict[FieldManager, OwnedFields]]:
    """Return the fields and the owners after an apply. Raises _ApplyConflicts."""
    ignored = IGNORED.get(applied.manager.subresource, FieldSet())
    after = merge(of, before, applied.fields)
    last = managers.get(applied.manager)
    owned = field_set(of, applied.fields).without_trees(ignored)
    others = {other: owner for other, owner in managers.items() if other != applied.manager}
    if last is not None:
        claimed = owned
        for owner in others.values():
            claimed = claimed | owner.fields
        after = _prune_unowned(of, after, last.fields, claimed)
    after = {} if after is ABSENT else after
    difference = compare(of, before, after).without(ignored)
    changed = difference.changed
    conflicts = [(other, path) for other, owner in sorted(others.items()) for path in owner.fields & changed]
    if conflicts and not force:
        raise _ApplyConflicts(conflicts)
    lost = changed | difference.removed
    result = {other: owner._replace(fields=owner.fields - lost) for other, owner in others.items()}
    is_same = json_equal(before, after)
    result[applied.manager] = OwnedFields(owned, now if not is_same else last.time if last is not None else 0)
    return after, {other: owner for other, owner in result.items() if owner.fields}


def _prune_unowned(of: Type, merged: Any, last: FieldSet, claimed: FieldSet) -> Any:
    """Remove the fields of `last` that no manager claims. Parents of claimed fields, and of fields without an owner, stay."""
    if merged is ABSENT or not last:
        return merged
    last = with_named_fields(of, last)
    everything = with_named_fields(of, field_set(of, merged))
    reachable = _remaining_fields(of, remove(of, merged, last))
    remaining_form = remove(of, merged, everything - (reachable | with_named_fields(of, claimed)))
    return remove(of, merged, (everything - _remaining_fields(of, remaining_form)) & last)


def _remaining_fields(of: Type, value: Any) -> FieldSet:
    return FieldSet() if value is ABSENT else with_named_fields(of, field_set(of, value))


def _remaining_conflicts(
    resource: Resource[Any],
    manager: FieldManager,
    live: Object,
    before: dict[str, Any],
    conflicts_found: Sequence[tuple[FieldManager, Path]],
) -> Sequence[tuple[FieldManager, Path]]:
    """Return the conflicts that remain when server-side apply replaces client-side apply: the manager may take over fields
    that still have the value of the last applied configuration."""
    text = live.metadata.annotations.get(_UPGRADES.get(manager.name, ""), "")
    if not text:
        return conflicts_found
    of = type_of_resource(resource)
    try:
        last = json.loads(text)
        if not isinstance(last, dict) or last.get("apiVersion") != resource.api_version:
            return conflicts_found
        fields = without_server_fields(resource, last)
        check(of, fields)
    except (ValueError, RecursionError):
        return conflicts_found
    difference = compare(of, fields, before)
    allowed = field_set(of, fields) - difference.changed - difference.removed
    return [(manager, path) for manager, path in conflicts_found if path not in allowed]


def _record_last_applied(applied: AppliedConfiguration, after: dict[str, Any]) -> None:
    """Update the annotation of client-side apply, in place."""
    annotation = _UPGRADES.get(applied.manager.name)
    annotations = (after.get("metadata") or {}).get("annotations") or {}
    if annotation is None or not annotations.get(annotation):
        return
    if annotation == LAST_APPLIED:
        text = with_last_applied(applied.data)["metadata"]["annotations"][LAST_APPLIED]
    else:  # the format of kubectl: always with annotations and a newline
        metadata = dict(applied.data.get("metadata") or {})
        metadata["annotations"] = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != annotation}
        text = json.dumps({**applied.data, "metadata": metadata}, separators=(",", ":"), sort_keys=True) + "\n"
    after["metadata"] = {**after["metadata"], "annotations": {**annotations, annotation: text}}


def _check_identity(data: Mapping[str, Any], metadata: ObjectMeta) -> None:
    """Copy the preconditions of the configuration, which are uid and resourceVersion, to the metadata."""
    sent_metadata = data.get("metadata") or {}
    for name in ("uid", "resourceVersion"):
        if sent_metadata.get(name):
            setattr(metadata, name, str(sent_metadata[name]))


def _read_object(resource: Resource[T], name: str, read: Any) -> T:
    try:
        return cast(T, read())
    except CodecError as error:
        wrong = [Violation(problem.field, problem.message) for problem in error.problems]
        raise Rejected(errors.invalid(resource, name, wrong)) from None
