"""The owners of fields, as they are stored and as clients see them (metadata.managedFields).

A write stores who wrote, when, and what suffices to compute the fields later. The fields of an object are computed when a
client reads managedFields, at an apply, and at a write that changes fields of several managers.

    create           the manager owns all fields of the object (`remaining`), except those that the server set (`assigned`)
    first status     the manager owns all fields of the status, except those that are as before its write (`base`)
    later writes     by the only manager of a part: it still owns all fields of the part; only its time changes
    other writes     the fields of all managers are computed. The largest owner of a part is stored as "the remaining fields",
                     and each other owner with its set of fields

The result is the same as if each write had computed its fields. The stored form is bounded: base has at most MAX_BASE bytes,
and an object has at most 10 managers with the operation Update (see pinnace.apiserver.registry.managed_fields).

Source: https://github.com/kubernetes/kubernetes/tree/master/staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from pinnace.api.codec import to_dict
from pinnace.api.conversion import conversion_of, conversion_to, renamed_fields
from pinnace.api.field_writer import fields_v1
from pinnace.api.fieldset import FieldSet, Path, field_element, field_name, from_json, key_element
from pinnace.api.go_form import complete_form
from pinnace.api.meta_v1_pb2 import ManagedFieldsEntry, Time
from pinnace.api.ownership_pb2 import FieldOwner, FieldOwners
from pinnace.api.resources import CustomResource, Object, Resource
from pinnace.api.scalars import format_rfc3339
from pinnace.api.schema import Map, empty_object, type_of_resource
from pinnace.api.structured_merge import compare
from pinnace.api.unchanged import unchanged_in_status
from pinnace.api.wellknown import FENCE_ANNOTATION, LIMITS_ANNOTATION, TRACE_ANNOTATION
from pinnace.api.wire import encode_varint, has_ownership

T = TypeVar("T", bound=Object)

APPLY, UPDATE = "Apply", "Update"
FIELDS_V1 = "FieldsV1"
STATUS = "status"
MAX_BASE = 512
"""Maximum bytes of the status before the first write of its manager. Otherwise the fields are computed at the write."""
_MAX_CACHED = 1024
"""Maximum bytes of excluded fields that are cached."""
SERVER_FIELDS = (
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion",
)  # fmt: skip
"""Metadata without owners."""
IGNORED = {
    "": FieldSet([(field_element("status"),)]),
    STATUS: FieldSet([(field_element(name),) for name in ("metadata", "spec")]),
}
"""Fields by subresource that a write does not change. Their values in a configuration are ignored."""
_LABELS = ("f:spec", "f:template", "f:metadata", "f:labels")
_DELETION = [("f:metadata", field_element(name)) for name in ("deletionTimestamp", "deletionGracePeriodSeconds")]
_SERVER_ANNOTATIONS = (FENCE_ANNOTATION, TRACE_ANNOTATION, LIMITS_ANNOTATION)
_SERVER_MAPS: Mapping[str, Sequence[Path]] = {"pods": [("f:metadata", "f:annotations")]}
"""The maps that the server creates for its fields, by plural."""
_NEVER_OWNED_OF_OTHERS = FieldSet(_DELETION)
_UNOWNED_METADATA = FieldSet(("f:metadata", field_element(name)) for name in SERVER_FIELDS)
_OMITTED = {"": frozenset({STATUS}), STATUS: frozenset({"metadata", "spec"})}
"""The top-level fields of IGNORED."""
_version_of = attrgetter("apiVersion")
_STATUS_WRITTEN = b"\x2a\x06status"
"""The subresource of the owner of a status, encoded."""


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


Ownership = Mapping[FieldManager, OwnedFields]


class _ServerAssignedFields(NamedTuple):
    """The fields of a kind that the server sets if the client omits them."""

    paths: tuple[Path, ...]
    """The order is part of the stored form: append only."""
    omitted: Callable[[Any], int]
    """Return the fields that a client's object omits, as bits."""


def _omitted_of_pod(pod: Any) -> int:
    """Called for each new pod: HasField takes five times as long as a string."""
    spec = pod.spec
    return (
        (0 if spec.HasField("priority") else 1)
        | (0 if spec.preemptionPolicy else 2)
        | (0 if spec.priorityClassName else 4)
        | (0 if spec.tolerations else 8)
        | (0 if spec.nodeName else 16)
    )


def _omitted_of_service(service: Any) -> int:
    spec = service.spec
    values = (spec.clusterIP, spec.clusterIPs, spec.ipFamilies, spec.ipFamilyPolicy, spec.healthCheckNodePort)
    return sum(1 << bit for bit, value in enumerate(values) if not value)


def _field_paths(parent: str, *names: str) -> tuple[Path, ...]:
    return tuple((field_element(parent), field_element(name)) for name in names)


ASSIGNED: Mapping[str, _ServerAssignedFields] = {
    "pods": _ServerAssignedFields(
        _field_paths("spec", "priority", "preemptionPolicy", "priorityClassName", "tolerations", "nodeName"),
        _omitted_of_pod,
    ),
    "namespaces": _ServerAssignedFields(_field_paths("spec", "finalizers"), lambda namespace: 1),
    "nodes": _ServerAssignedFields(_field_paths("spec", "taints"), lambda node: int(not node.spec.taints)),
    "persistentvolumeclaims": _ServerAssignedFields(
        _field_paths("spec", "storageClassName"), lambda claim: int(not claim.spec.HasField("storageClassName"))
    ),
    "services": _ServerAssignedFields(
        _field_paths("spec", "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"),
        _omitted_of_service,
    ),
    "jobs": _ServerAssignedFields(_field_paths("spec", "selector"), lambda job: int(not job.spec.HasField("selector"))),
}
"""The assigned fields by plural."""
_JOB_PREFIXES, _JOB_LABELS = ("", "batch.kubernetes.io/"), ("controller-uid", "job-name")
_NEVER_OWNED: Mapping[str, FieldSet] = {
    "pods": FieldSet(
        (
            *(("f:metadata", "f:annotations", field_element(name)) for name in _SERVER_ANNOTATIONS),
            *_DELETION,
        )
    ),
    "jobs": FieldSet(
        (
            *((*_LABELS, field_element(f"{prefix}{name}")) for prefix in _JOB_PREFIXES for name in _JOB_LABELS),
            *_DELETION,
        )
    ),
}
"""The fields that the server alone sets, by plural."""


def has_server_fields(resource: Resource[Any]) -> bool:
    """Return whether the server sets fields of its own in the objects of a resource."""
    return resource.plural in _NEVER_OWNED


def _never_owned(resource: Resource[Any]) -> FieldSet:
    return _NEVER_OWNED.get(resource.plural, _NEVER_OWNED_OF_OTHERS)


class Creator:
    """The manager of creates at one time. A call returns the stored owners of a new object, and must precede the changes of the
    server to it."""

    def __init__(self, resource: Resource[Any], manager: str, api_version: str, now: float) -> None:
        """`api_version`: of the write; empty: the stored one."""
        version = "" if api_version == resource.api_version else api_version
        self._owner = FieldOwner(manager=manager, apiVersion=version, time=int(now), remaining=True)
        candidates = ASSIGNED.get(resource.plural)
        self._omitted = candidates.omitted if candidates is not None else None
        self._has_ports = resource.plural == "services"
        self._encoded = dict[int, bytes]()

    def __call__(self, obj: Any) -> bytes:
        if self._has_ports:
            return self._encode(self._omitted(obj) if self._omitted else 0, _unset_node_ports(obj))
        assigned = self._omitted(obj) if self._omitted is not None else 0
        encoded = self._encoded.get(assigned)
        if encoded is None:
            encoded = self._encoded[assigned] = self._encode(assigned, b"")
        return encoded

    def _encode(self, assigned: int, excluded: bytes) -> bytes:
        owner = FieldOwner(assigned=assigned, excluded=excluded)
        owner.MergeFrom(self._owner)
        return FieldOwners(owners=[owner]).SerializeToString()


@lru_cache(maxsize=1024)
def _encoded_status_owner(manager: str, api_version: str, now: int) -> bytes:
    owner = FieldOwner(manager=manager, apiVersion=api_version, time=now, subresource=STATUS, remaining=True)
    return owner.SerializeToString()


def with_status_owner(ownership: bytes, resource: Resource[Any], manager: FieldManager, now: int, base: bytes) -> bytes:
    """Return the stored owners with one of the status, which has none. `base`: the encoded status before the write."""
    version = "" if manager.api_version == resource.api_version else manager.api_version
    owner = b"%b\x52%b%b" % (_encoded_status_owner(manager.name, version, now), encode_varint(len(base)), base)
    return b"%b\x0a%b%b" % (ownership, encode_varint(len(owner)), owner)


def _unset_node_ports(service: Any) -> bytes:
    paths = FieldSet(
        ("f:spec", "f:ports", key_element({"port": port.port, "protocol": port.protocol or "TCP"}), "f:nodePort")
        for port in service.spec.ports
        if not port.nodePort
    )
    return paths.to_json().encode() if paths else b""


def decode_stored(data: bytes) -> FieldOwners:
    """Return the stored owners; none if the bytes are malformed."""
    try:
        return FieldOwners.FromString(data)
    except DecodeError:
        return FieldOwners()


def owners_of(resource: Resource[Any], obj: Any) -> dict[FieldManager, OwnedFields]:
    """Return the owners of the fields of an object, with the field names of the version `resource`. Raises ValueError if
    managedFields of an earlier server are invalid."""
    stored = obj.metadata.ownership
    if not stored:
        return decode_managed_fields(obj.metadata.managedFields, resource)
    result = dict[FieldManager, OwnedFields]()
    everything = dict[str, tuple[Resource[Any], Any, FieldSet]]()
    """The object and its fields, by the API version of owners."""
    for owner in decode_stored(stored).owners:
        api_version = owner.apiVersion or _stored_version(resource)
        names = renamed_fields(resource, api_version, resource.api_version)
        if names is None:
            continue
        if owner.remaining:
            if api_version not in everything:
                version, form = _in_version(resource, obj, api_version)
                everything[api_version] = version, form, all_fields(version, ownable_fields(version, form))
            version, form, whole = everything[api_version]
            fields = _remaining_fields(
                version, fields_of_subresource(whole, owner.subresource), _excluded_fields(version, form, owner, names)
            )
        else:
            fields = from_json(owner.fields or b"{}").with_names(names)
        if fields:
            manager = FieldManager(
                owner.manager, APPLY if owner.applies else UPDATE, "" if owner.applies else api_version, owner.subresource
            )
            result[manager] = OwnedFields(fields, owner.time, api_version)
    return result


def _in_version(resource: Resource[Any], obj: Any, api_version: str) -> tuple[Resource[Any], Any]:
    """Return the object in the API version of an owner, if that differs in more than names; else as it is."""
    here, there = conversion_of(resource), conversion_to(resource, api_version)
    if there is None or not (here.is_structural or there.is_structural):
        return resource, obj
    return there.served, there.to_ownable(here.to_stored(obj))


def _remaining_fields(resource: Resource[Any], part: FieldSet, excluded: FieldSet) -> FieldSet:
    """Return the remaining fields of a part. A map that only the server has filled has no owner."""
    fields = part - excluded
    for path in _SERVER_MAPS.get(resource.plural, ()):
        if path in fields and not fields.child(path[0]).child(path[1]):
            fields = fields - FieldSet([path])
    return fields


def _stored_version(resource: Resource[Any]) -> str:
    return conversion_of(resource).stored.api_version


def _excluded_fields(resource: Resource[Any], obj: Any, owner: FieldOwner, names: Mapping[str, str]) -> FieldSet:
    """Return the fields that do not belong to an owner of the remaining fields."""
    result = FieldSet(assigned_paths(resource, owner))
    if owner.subresource != STATUS:
        result = result | _never_owned(resource)
    if owner.excluded:
        result = result | from_json(owner.excluded).with_names(names)
    if owner.base:
        result = result | unchanged_status_fields(resource, owner.base, obj.status)
    return result


def assigned_paths(resource: Resource[Any], owner: FieldOwner) -> list[Path]:
    """Return the fields that the server set when the owner created the object."""
    if not owner.assigned or (candidates := ASSIGNED.get(resource.plural)) is None:
        return []
    return [path for bit, path in enumerate(candidates.paths) if owner.assigned >> bit & 1]


def unchanged_status_fields(resource: Resource[Any], base: bytes, status: Message) -> FieldSet:
    """Return the fields of an earlier status that the status still has."""
    before: Any = type(status).FromString(base)
    if not isinstance(resource, CustomResource) and (fields := unchanged_in_status(before, status)) is not None:
        return fields
    of, names = type_of_resource(resource), {field.name for field, _ in before.ListFields()}
    forms = (_status_form(before), _status_form(status, names))
    before, after = ({"status": {name: form[name] for name in names if name in form}} for form in forms)
    present = compare(of, {"status": {}}, before).changed
    difference = compare(of, before, after)
    return present - difference.modified - difference.removed


def unchanged_part(resource: Resource[Any], fields: FieldSet, old: Message, new: Message, names: Collection[str]) -> FieldSet:
    """Return those of a set of fields of the status that a write does not change. Fields that do not exist may be omitted.
    `names`: the fields of the status with one in the set."""
    part = _part_of_status(old, names)
    if not isinstance(resource, CustomResource) and (unchanged := unchanged_in_status(part, new)) is not None:
        return fields & unchanged
    forms = ({"status": {name: form[name] for name in names if name in form}} for form in map(_status_form, (old, new)))
    difference = compare(type_of_resource(resource), *forms)
    return fields - difference.changed - difference.removed


def _part_of_status(status: Any, names: Collection[str]) -> Any:
    part = type(status)()
    part.CopyFrom(status)
    for field, _ in status.ListFields():
        if field.name not in names:
            part.ClearField(field.name)
    return part


def _status_form(status: Any, names: Collection[str] | None = None) -> dict[str, Any]:
    """Return the JSON form of a status. `names`: the fields that matter; None: all."""
    if names is not None:
        status = _part_of_status(status, names)
    return complete_form(status, to_dict(status))


def fields_of_subresource(fields: FieldSet, subresource: str) -> FieldSet:
    """Return the fields that writes of a subresource can change."""
    return fields.without_trees(IGNORED.get(subresource, IGNORED[""]))


def all_fields(resource: Resource[Any], form: Mapping[str, Any]) -> FieldSet:
    """Return all fields of an object that can have owners. `form`: see `ownable_fields`."""
    return compare(type_of_resource(resource), empty_form(resource), form).changed


def empty_form(resource: Resource[Any]) -> dict[str, Any]:
    """Return an object without fields, in the format of `ownable_fields`."""
    result = empty_object(resource.message.DESCRIPTOR)
    del result["metadata"]
    return {**result, "metadata": {}}


def ownable_fields(resource: Resource[Any], obj: Object) -> dict[str, Any]:
    """Return the JSON form of the fields of an object that can have owners."""
    message = cast(Message, obj)
    return without_server_fields(resource, complete_form(message, to_dict(message)))


def without_server_fields(resource: Resource[Any], form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON form of an object without its type, and without the metadata that has no owners."""
    result = {name: value for name, value in form.items() if name not in ("apiVersion", "kind")}
    metadata = result.get("metadata") or {}
    result["metadata"] = {name: value for name, value in metadata.items() if name not in SERVER_FIELDS}
    if isinstance(resource, CustomResource):
        return result
    of = type_of_resource(resource)
    for name in ("spec", STATUS):
        if isinstance(of, Map) and of.field(name) is not None:
            result.setdefault(name, {})
    return result


def encode_stored(resource: Resource[Any], owners: Ownership, everything: FieldSet) -> bytes:
    """Return the stored form of owners. `everything`: all fields of the object that can have owners."""
    stored = FieldOwners()
    largest = _largest_owners(owners)
    for manager, owned in owners.items():
        api_version = manager.api_version or owned.api_version or resource.api_version
        names = renamed_fields(resource, resource.api_version, api_version) or {}
        owner = stored.owners.add(
            manager=manager.name,
            applies=manager.operation == APPLY,
            apiVersion="" if api_version == _stored_version(resource) else api_version,
            time=owned.time,
            subresource=manager.subresource,
        )
        part, excluded = fields_of_subresource(everything, manager.subresource), FieldSet()
        if manager in largest:
            owner.assigned = 0 if manager.subresource else _unowned_assigned(resource, owned.fields)
            known = FieldSet(assigned_paths(resource, owner)) | (
                _never_owned(resource) if not manager.subresource else FieldSet()
            )
            excluded = part - owned.fields - known
            owner.remaining = _remaining_fields(resource, part, known | excluded) == owned.fields
        if owner.remaining:
            owner.excluded = excluded.with_names(names).to_json().encode() if excluded else b""
        else:
            owner.assigned = 0
            owner.fields = owned.fields.with_names(names).to_json().encode()
    return stored.SerializeToString()


def _unowned_assigned(resource: Resource[Any], owned: FieldSet) -> int:
    """Return the fields that the server may still set and that an owner does not own, as bits."""
    candidates = ASSIGNED.get(resource.plural)
    return sum(1 << bit for bit, path in enumerate(candidates.paths) if path not in owned) if candidates else 0


def _largest_owners(owners: Ownership) -> set[FieldManager]:
    """Return the largest owner of each part: of the object itself, and of the status."""
    largest = dict[str, tuple[int, FieldManager]]()
    for manager, owned in owners.items():
        if manager.subresource in ("", STATUS):
            size = sum(1 for _ in owned.fields)
            if size > largest.get(manager.subresource, (0, manager))[0]:
                largest[manager.subresource] = (size, manager)
    return {manager for _, manager in largest.values()}


def exclude_added(resource: Resource[Any], ownership: bytes, before: Object, after: Object) -> bytes:
    """Return the stored owners after a write that has no manager. Nobody owns the fields that it adds."""
    stored = decode_stored(ownership)
    added: FieldSet | None = None
    for owner in stored.owners:
        if not owner.remaining:
            continue
        if added is None:
            forms = (ownable_fields(resource, obj) for obj in (before, after))
            added = compare(type_of_resource(resource), *forms).added
        if paths := fields_of_subresource(added, owner.subresource):
            owner.excluded = (from_json(owner.excluded or b"{}") | paths).to_json().encode()
    return stored.SerializeToString()


def decode_managed_fields(entries: Iterable[ManagedFieldsEntry], resource: Resource[Any]) -> dict[FieldManager, OwnedFields]:
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


def encode_managed_fields(owners: Ownership, resource: Resource[Any]) -> list[ManagedFieldsEntry]:
    """Return the entries in Kubernetes' order: Apply before Update, then by time and name. `resource`: the version of the
    field names."""
    entries = list[ManagedFieldsEntry]()
    for manager, owned in sorted(owners.items(), key=lambda item: (item[0].operation, item[1].time, item[0])):
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


def show_owners(resource: Resource[Any], obj: Any) -> None:
    """Replace the stored owners of an object by its managedFields, in place."""
    metadata = obj.metadata
    stored = metadata.ownership
    if not stored:
        return
    owners = decode_stored(stored).owners
    if _is_written(resource, owners):
        metadata.ClearField("ownership")
        entries = [_build_entry(resource, owner, fields) for owner, fields in _written_fields(resource, obj, owners)]
    else:
        entries = encode_managed_fields(owners_of(resource, obj), resource)
        metadata.ClearField("ownership")
    del metadata.managedFields[:]
    metadata.managedFields.extend(entries)


def take_owners(resource: Resource[Any], obj: Any) -> str:
    """Remove the owners of an object, in place, and return its managedFields as JSON. If they need sets of fields in between,
    only show the owners, and return ""."""
    metadata = obj.metadata
    stored = metadata.ownership
    if not stored:
        return ""
    owners = decode_stored(stored).owners
    if not _is_written(resource, owners):
        show_owners(resource, obj)
        return ""
    metadata.ClearField("ownership")
    del metadata.managedFields[:]
    texts = list[str]()
    for owner, fields in _written_fields(resource, obj, owners):
        head, tail = _entry_text(owner.manager, owner.applies, resource.api_version, owner.time, owner.subresource)
        texts.append(f"{head}{fields}{tail}")
    return f"[{','.join(texts)}]" if texts else ""


def _is_written(resource: Resource[Any], owners: Iterable[FieldOwner]) -> bool:
    """Return whether the fields of the owners can be written without sets of fields in between: if they have the field names of
    the stored version."""
    if isinstance(resource, CustomResource) or not conversion_of(resource).is_identity:
        return False
    return not any(map(_version_of, owners))


def _written_fields(resource: Resource[Any], obj: Any, owners: Sequence[FieldOwner]) -> Iterator[tuple[FieldOwner, str]]:
    """Yield the owners in Kubernetes' order, and their fields as FieldsV1. Gateways do this for each object that they list."""
    if len(owners) > 1:
        owners = sorted(owners, key=_kubernetes_order)
    for owner in owners:
        if owner.remaining:
            fields = fields_v1(obj, _written_exclusions(resource, obj, owner), _OMITTED.get(owner.subresource, _OMITTED[""]))
        else:
            fields = owner.fields.decode()
        if fields not in ("", "{}"):
            yield owner, fields


def _kubernetes_order(owner: FieldOwner) -> tuple[bool, int, str, str]:
    return not owner.applies, owner.time, owner.manager, owner.subresource


def _written_exclusions(resource: Resource[Any], obj: Any, owner: FieldOwner) -> FieldSet:
    """Return the fields of an object that the manager of the remaining fields does not own. Equal results are identical, as far
    as they are cached."""
    plural, subresource = resource.plural, owner.subresource
    # long exclusions are rare, and would make the cache large
    statically_excluded = _statically_excluded if len(owner.excluded) <= _MAX_CACHED else _statically_excluded.__wrapped__
    excluded = statically_excluded(plural, subresource, owner.assigned, owner.excluded)
    if owner.base:
        excluded = excluded | unchanged_status_fields(resource, owner.base, obj.status)
    if subresource != STATUS and (paths := _filled_by_server(resource, obj, excluded)):
        excluded = statically_excluded(plural, subresource, owner.assigned, owner.excluded, tuple(paths))
    return excluded


def _build_entry(resource: Resource[Any], owner: FieldOwner, fields: str) -> ManagedFieldsEntry:
    entry = ManagedFieldsEntry(
        manager=owner.manager,
        operation=APPLY if owner.applies else UPDATE,
        apiVersion=resource.api_version,
        fieldsType=FIELDS_V1,
        subresource=owner.subresource,
    )
    if owner.time:
        entry.time.seconds = owner.time
    entry.fieldsV1.Raw = fields.encode()
    return entry


@lru_cache(maxsize=1024)
def _entry_text(manager: str, applies: bool, api_version: str, time: int, subresource: str) -> tuple[str, str]:
    """Return the JSON of an entry before and after its fields."""
    entry: dict[str, Any] = {"manager": manager, "operation": APPLY if applies else UPDATE, "apiVersion": api_version}
    if time:
        entry["time"] = format_rfc3339(Time(seconds=time))
    entry["fieldsType"] = FIELDS_V1
    head = json.dumps(entry, separators=(",", ":"), ensure_ascii=False)[:-1] + ',"fieldsV1":'
    return head, f',"subresource":{json.dumps(subresource, ensure_ascii=False)}}}' if subresource else "}"


@lru_cache(maxsize=1024)
def _statically_excluded(
    plural: str, subresource: str, assigned: int, excluded: bytes, others: tuple[Path, ...] = ()
) -> FieldSet:
    """Return the fields of an object that a manager of the remaining fields does not own, whatever the object contains, and
    others."""
    result = FieldSet()
    if subresource != STATUS:
        result = _UNOWNED_METADATA | _NEVER_OWNED.get(plural, _NEVER_OWNED_OF_OTHERS)
        if assigned and (candidates := ASSIGNED.get(plural)):
            result = result | FieldSet(path for bit, path in enumerate(candidates.paths) if assigned >> bit & 1)
    if others:
        result = result | FieldSet(others)
    return result | from_json(excluded) if excluded else result


def _filled_by_server(resource: Resource[Any], obj: Any, excluded: FieldSet) -> list[Path]:
    """Return the maps of an object in which the server has set all fields that are not excluded."""
    result = list[Path]()
    for path in _SERVER_MAPS.get(resource.plural, ()):
        keys: Any = obj
        for element in path:
            keys = getattr(keys, field_name(element) or "")
        hidden = excluded.child(path[0]).child(path[1]).members
        if all(field_element(key) in hidden for key in keys):
            result.append(path)
    return result


def without_owners(obj: T) -> T:
    """Return a copy of an object without its stored owners."""
    copy: Any = type(obj)()
    copy.CopyFrom(obj)
    copy.metadata.ClearField("ownership")
    result: T = copy
    return result


def with_shown_owners(resource: Resource[Any], obj: T) -> T:
    """Return a copy of an object with managedFields instead of its stored owners."""
    copy: Any = type(obj)()
    copy.CopyFrom(obj)
    show_owners(resource, copy)
    result: T = copy
    return result


def has_status_owner(ownership: bytes) -> bool:
    """Return whether the stored owners include one of the status. A name of a manager may look like one."""
    return _STATUS_WRITTEN in ownership


def decode_shown(resource: Resource[T], data: bytes) -> T:
    """Decode an object and show its owners. Raises DecodeError."""
    obj: Any = resource.message
    obj = obj.FromString(data)
    show_owners(resource, obj)
    result: T = obj
    return result


def encode_shown(resource: Resource[Any], data: bytes) -> bytes:
    """Return an encoded object with its owners shown. Raises DecodeError."""
    if not has_ownership(data):
        return data
    obj: Any = decode_shown(resource, data)
    encoded: bytes = obj.SerializeToString()
    return encoded
