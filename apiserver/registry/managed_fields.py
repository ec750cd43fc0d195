"""Server-side apply, and the owners of fields (metadata.managedFields).

Objects have no managedFields before their first apply, and creates, updates and binds do not add any. With the first apply, the
manager `before-first-apply` becomes the owner of all present fields. Afterwards, the manager of each update becomes the only
owner of the changed fields. An apply that changes fields of other managers fails unless it is forced.

    apply:  live object, configuration --> merge --> prune --> compare with the live object --> new object, new owners
                                                      |                '--> conflicts: changed fields of other managers
                                                      '--> removes fields of the last configuration without an owner

Defaults that the server adds have no owner. Bindings and deletions do not change owners.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/,
https://github.com/kubernetes-sigs/structured-merge-diff/blob/master/merge/update.go,
https://github.com/kubernetes/kubernetes/tree/master/staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, cast

from google.protobuf.message import Message

from pinnace.api.codec import CodecError, from_dict, revised, to_dict
from pinnace.api.conversion import renamed_fields
from pinnace.api.fieldset import FieldSet, Path, field_element, from_json, text_of
from pinnace.api.merge import LAST_APPLIED, with_last_applied
from pinnace.api.meta_v1_pb2 import ManagedFieldsEntry, ObjectMeta
from pinnace.api.patch import equal
from pinnace.api.resources import Object, Resource
from pinnace.api.schema import Type, empty, type_of_resource
from pinnace.api.status import Violation
from pinnace.api.structured_merge import ABSENT, TypeMismatch, check, compare, field_set, merge, remove, with_named_fields
from pinnace.apiserver import errors
from pinnace.apiserver.errors import Rejected

T = TypeVar("T", bound=Object)

APPLY, UPDATE = "Apply", "Update"
FIELDS_V1 = "FieldsV1"
BEFORE_FIRST_APPLY = "before-first-apply"
ANCIENT_CHANGES = "ancient-changes"
MAX_UPDATE_MANAGERS = 10
"""Maximum number of managers per object with the operation Update. The oldest are merged into `ancient-changes`."""
MAX_MANAGER = 128
"""Maximum length of a manager's name in bytes."""
_SERVER_FIELDS = (
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion",
)  # fmt: skip
"""Metadata without owners."""
_UPGRADES = {"kubectl": "kubectl.kubernetes.io/last-applied-configuration", "pinnace": LAST_APPLIED}
"""The annotations of client-side apply by manager. An apply takes over the fields in the annotation."""
_IGNORED = {
    "": FieldSet([(field_element("status"),)]),
    "status": FieldSet([(field_element(name),) for name in ("metadata", "spec")]),
}
"""Fields by subresource that a write does not change. Their values in a configuration are ignored."""


class FieldManager(NamedTuple):
    """Identifies an entry. Managers that apply have no API version: an apply replaces the entry of an earlier version."""

    name: str
    operation: str
    api_version: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        """Return the description for messages about conflicts."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


class OwnedFields(NamedTuple):
    """The fields of a manager, with the names in the version of the write. `time`: Unix seconds of the last change; 0:
    unknown."""

    fields: FieldSet
    time: int
    api_version: str = ""
    """The version of the entry. Empty: that of the write."""


FieldOwners = Mapping[FieldManager, OwnedFields]


class ApplyResult(NamedTuple, Generic[T]):
    """The result of an apply: the object, and its managedFields."""

    obj: T
    entries: Sequence[ManagedFieldsEntry]


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


def decode(entries: Iterable[ManagedFieldsEntry], resource: Resource[Any]) -> dict[FieldManager, OwnedFields]:
    """Return the owners. Entries in API versions that the kind does not have are omitted. Raises ValueError."""
    result = dict[FieldManager, OwnedFields]()
    for entry in entries:
        if entry.operation not in (APPLY, UPDATE):
            raise ValueError("operation must be `Apply` or `Update`")
        if entry.fieldsType != FIELDS_V1:
            raise ValueError(f'invalid fieldsType "{entry.fieldsType[:32]}"')
        if not entry.apiVersion:
            raise ValueError("apiVersion must not be empty")
        names = renamed_fields(resource, entry.apiVersion, resource.api_version)
        if names is not None:
            version = entry.apiVersion if entry.operation == UPDATE else ""
            manager = FieldManager(entry.manager, entry.operation, version, entry.subresource)
            fields = from_json(entry.fieldsV1.Raw or b"{}").with_names(names)
            result[manager] = OwnedFields(fields, entry.time.seconds, entry.apiVersion)
    return result


def encode(managers: FieldOwners, resource: Resource[Any]) -> list[ManagedFieldsEntry]:
    """Return the entries in Kubernetes' order: Apply before Update, then by time and name. `resource`: the version of the
    write."""
    entries = list[ManagedFieldsEntry]()
    for manager, owned in sorted(managers.items(), key=lambda item: (item[0].operation, item[1].time, item[0])):
        api_version = manager.api_version or owned.api_version or resource.api_version
        names = renamed_fields(resource, resource.api_version, api_version) or {}
        entry = ManagedFieldsEntry(
            manager=manager.name,
            operation=manager.operation,
            apiVersion=api_version,
            fieldsType=FIELDS_V1,
            subresource=manager.subresource,
        )
        if owned.time:
            entry.time.seconds = owned.time
        entry.fieldsV1.Raw = owned.fields.with_names(names).to_json().encode()
        entries.append(entry)
    return entries


def track(resource: Resource[T], new: T, old: T, manager: FieldManager, now: float) -> None:
    """Set metadata.managedFields of the new object: the manager owns the fields that the update changes."""
    managers = _managers_of_update(resource, new, old, manager.subresource)
    if not managers:
        del new.metadata.managedFields[:]
        return
    before, after = _ownable_fields(resource, old), _ownable_fields(resource, new)
    ignored = _IGNORED.get(manager.subresource, FieldSet())
    updated = _track_update(_schema_type(resource), before, after, managers, manager, ignored, int(now))
    set_entries(new, old, encode(updated, resource))


def set_entries(new: Object, old: Object, entries: Sequence[ManagedFieldsEntry]) -> None:
    """Set metadata.managedFields. If nothing else changes, the old times are kept, so that the write changes nothing."""
    fields = new.metadata.managedFields
    del fields[:]
    if _encode_without_times(entries) == _encode_without_times(old.metadata.managedFields):
        fields.extend(old.metadata.managedFields)
        version, new.metadata.resourceVersion = new.metadata.resourceVersion, old.metadata.resourceVersion
        same = new == old
        new.metadata.resourceVersion = version
        if same:
            return
        del fields[:]
    fields.extend(entries)


def _encode_without_times(entries: Iterable[ManagedFieldsEntry]) -> list[bytes]:
    result = list[bytes]()
    for entry in entries:
        copy = ManagedFieldsEntry()
        copy.CopyFrom(entry)
        copy.ClearField("time")
        result.append(copy.SerializeToString(deterministic=True))
    return sorted(result)


def _managers_of_update(resource: Resource[T], new: T, old: T, subresource: str) -> dict[FieldManager, OwnedFields]:
    """Return the owners before an update. A client may set or reset them, but not through a subresource. If it omits them,
    or sends invalid ones, the owners of the stored object are kept."""
    if not subresource:
        sent = new.metadata.managedFields
        if len(sent) == 1 and sent[0] == ManagedFieldsEntry():
            return {}
        if entry := _decode_entry(sent, resource):
            return entry
    return _decode_entry(old.metadata.managedFields, resource)


def _decode_entry(entries: Iterable[ManagedFieldsEntry], resource: Resource[Any]) -> dict[FieldManager, OwnedFields]:
    try:
        return decode(entries, resource)
    except ValueError:
        return {}


def _track_update(
    of: Type, before: Any, after: Any, managers: FieldOwners, manager: FieldManager, ignored: FieldSet, now: int
) -> dict[FieldManager, OwnedFields]:
    """Return the owners after an update."""
    difference = compare(of, before, after)
    seen = difference.without(ignored)
    lost = seen.changed | seen.removed
    result = {manager: owned._replace(fields=owned.fields - lost) for manager, owned in managers.items()}
    if taken := difference.changed.without_trees(ignored):
        previous = result.get(manager)
        result[manager] = OwnedFields(taken | previous.fields if previous else taken, now)
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


def configuration(
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
    if client_metadata := {name: value for name, value in metadata.items() if name not in _SERVER_FIELDS}:
        fields["metadata"] = client_metadata
    try:
        check(_schema_type(resource), fields)
    except TypeMismatch as error:
        raise _type_mismatch_rejection(resource, data, error) from None
    return AppliedConfiguration(FieldManager(manager, APPLY, subresource=subresource), force, data, fields)


def _type_mismatch_rejection(resource: Resource[Any], data: Mapping[str, Any], error: TypeMismatch) -> Rejected:
    metadata = data.get("metadata")
    namespace, name = (metadata.get(key, "") for key in ("namespace", "name")) if isinstance(metadata, dict) else ("", "")
    version = resource.api_version if "/" in resource.api_version else f"/{resource.api_version}"
    message = f"failed to create typed patch object ({namespace}/{name}; {version}, Kind={resource.kind}): {error}"
    return Rejected(errors.untyped(message))


def create(resource: Resource[T], applied: AppliedConfiguration, namespace: str, name: str, now: float) -> ApplyResult[T]:
    """Return the object that an apply creates. Raises Rejected."""
    metadata = applied.data.get("metadata") or {}
    if metadata.get("uid"):
        raise Rejected(errors.uid_mismatch(resource, name, str(metadata["uid"]), ""))
    form = {**applied.fields, "metadata": {**applied.fields.get("metadata", {}), "name": name, "namespace": namespace}}
    if not resource.namespaced:
        del form["metadata"]["namespace"]
    owned = field_set(_schema_type(resource), applied.fields).without_trees(
        _IGNORED.get(applied.manager.subresource, FieldSet())
    )
    managers = {applied.manager: OwnedFields(owned, int(now))} if owned else {}
    obj = _read_object(resource, name, lambda: from_dict(resource, form))
    obj.metadata.resourceVersion = str(metadata.get("resourceVersion") or "")
    return ApplyResult(obj, encode(managers, resource))


def apply(resource: Resource[T], applied: AppliedConfiguration, live: T, now: float) -> ApplyResult[T]:
    """Return the live object with the configuration applied. Raises Rejected."""
    name = live.metadata.name
    of, form = _schema_type(resource), to_dict(live)
    before = _drop_server_fields(resource, form)
    try:
        managers = decode(live.metadata.managedFields, resource)
    except ValueError as error:
        raise Rejected(errors.untyped(f"failed to decode managed fields: {error}")) from None
    if not managers:
        first = FieldManager(BEFORE_FIRST_APPLY, UPDATE, resource.api_version, applied.manager.subresource)
        ignored = _IGNORED.get(applied.manager.subresource, FieldSet())
        managers = _track_update(of, _empty_form(resource), before, {}, first, ignored, int(now))
    try:
        after, owners = _merge_applied(of, applied, before, managers, int(now), applied.force)
    except _ApplyConflicts as conflicts:
        result = _remaining_conflicts(resource, applied.manager, live, before, conflicts.conflicts_found)
        if result:
            violations = [Violation(text_of(path), f"conflict with {manager}") for manager, path in result]
            raise Rejected(errors.apply_conflict(violations)) from None
        after, owners = _merge_applied(of, applied, before, managers, int(now), True)
    except TypeMismatch as error:
        raise Rejected(errors.untyped(f"failed to merge config: {error}")) from None
    _record_last_applied(applied, after)
    after = {key: value for key, value in after.items() if value or key in form}
    remaining_form = {
        key: form["metadata"][key] for key in _SERVER_FIELDS if key in form["metadata"] and key != "managedFields"
    }
    new_form = {"apiVersion": resource.api_version, "kind": resource.kind, **after}
    new_form["metadata"] = {**(after.get("metadata") or {}), **remaining_form}
    new = _read_object(resource, name, lambda: revised(resource, live, form, new_form))
    _check_identity(applied.data, new.metadata)
    return ApplyResult(new, encode(owners, resource))


def _merge_applied(
    of: Type, applied: AppliedConfiguration, before: dict[str, Any], managers: FieldOwners, now: int, force: bool
) -> tuple[dict[str, Any], dict[FieldManager, OwnedFields]]:
    """Return the fields and the owners after an apply. Raises _ApplyConflicts."""
    ignored = _IGNORED.get(applied.manager.subresource, FieldSet())
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
    is_same = equal(before, after)
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
    of = _schema_type(resource)
    try:
        last = json.loads(text)
        if not isinstance(last, dict) or last.get("apiVersion") != resource.api_version:
            return conflicts_found
        fields = _drop_server_fields(resource, last)
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


def _schema_type(resource: Resource[Any]) -> Type:
    return type_of_resource(resource)


def _empty_form(resource: Resource[Any]) -> dict[str, Any]:
    """Return an object without fields, in the format of `_ownable_fields`."""
    result = empty(resource.message.DESCRIPTOR)
    del result["metadata"]
    return {**result, "metadata": {}}


def _ownable_fields(resource: Resource[Any], obj: Object) -> dict[str, Any]:
    """Return the fields of an object that can have owners."""
    return _drop_server_fields(resource, to_dict(cast(Message, obj)))


def _drop_server_fields(resource: Resource[Any], form: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in form.items() if name not in ("apiVersion", "kind")}
    metadata = result.get("metadata") or {}
    result["metadata"] = {name: value for name, value in metadata.items() if name not in _SERVER_FIELDS}
    for name in ("spec", "status"):
        if name in resource.message.DESCRIPTOR.fields_by_name:
            result.setdefault(name, {})
    return result
