"""Conversion between API objects and dictionaries in the form of Kubernetes' JSON and YAML.

    to_dict(pod)          {"apiVersion": "v1", "kind": "Pod", "metadata": {...}, "spec": {...}, "status": {...}}
    from_dict(PODS, data) the pod, or CodecError with *all* problems of the data, each with the path of its field
    as_written(pod, data) the form of `to_dict` with exactly the fields of the data, including zeros and nulls

The forms are those of Kubernetes: quantities, times and int-or-strings are scalars, 64-bit integers are numbers, bytes are
base64, null means absent (an item of a list or map is zero), and fields that are inlined in Kubernetes' Go types appear in
their parent. Absent and empty fields are omitted, except for fields whose presence has a meaning, such as
`securityContext: {}`. Fields are in alphabetical order after apiVersion, kind and metadata. Only MicroTime has fractions of a
second.

Fields that this version of the messages does not define are kept as bytes (protobuf's unknown fields). They are not validated
or defaulted, and JSON does not contain them. `decode_revision` changes an object by its JSON form and keeps them. To
find hidden fields, it compares the old object with the object that is decoded from the old object's JSON form. Equal parts hide
nothing. (Comparing the JSON of each part took a second for an object with 10,000 parts.)
"""

import difflib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast, overload

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from pinnace.api.customobjects import read_content, write_content
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.merge import Key, key_of
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.resources import ALL, EVENTS_V1, HORIZONTAL_POD_AUTOSCALERS_V1, CustomResource, Object, Resource
from pinnace.api.scalars import SCALARS, Scalar, kind_of, primitive_reader, write_primitive, zero_primitive

INLINED = frozenset(
    {
        "pinnace.admissionregistration.v1.NamedRuleWithOperations.ruleWithOperations",
        "pinnace.admissionregistration.v1.RuleWithOperations.rule",
        "pinnace.networking.v1.IngressRule.ingressRuleValue",
        *(
            "pinnace.core.v1." + name
            for name in (
                "Volume.volumeSource",
                "PersistentVolumeSpec.persistentVolumeSource",
                "Probe.handler",
                "EphemeralContainer.ephemeralContainerCommon",
                "ConfigMapKeySelector.localObjectReference",
                "SecretKeySelector.localObjectReference",
                "ConfigMapEnvSource.localObjectReference",
                "SecretEnvSource.localObjectReference",
                "ConfigMapVolumeSource.localObjectReference",
                "ConfigMapProjection.localObjectReference",
                "SecretProjection.localObjectReference",
            )
        ),
    }
)
"""Message fields that are inlined in JSON: their fields appear in the parent (`json:",inline"` in Go)."""
EMBEDDED = frozenset({"pinnace.apps.v1.StatefulSetSpec.volumeClaimTemplates"})
"""Fields with objects, which have apiVersion and kind in JSON."""
OWNERSHIP = "pinnace.meta.v1.ObjectMeta.ownership"
"""The field of metadata that is not part of Kubernetes' API, and has no JSON form. See pinnace.api.ownership."""
MAX_HINTS = 10
"""The maximum number of unknown fields of an object for which a similar name is suggested. A search takes about 0.1 ms."""
M = TypeVar("M", bound=Message)
T = TypeVar("T", bound=Object)
SHOWN_WHEN_ZERO = {
    "pinnace.apiextensions.v1.CustomResourceDefinitionNames": ("plural", "kind"),
    "pinnace.apiextensions.v1.CustomResourceDefinitionVersion": ("served", "storage"),
    "pinnace.apiextensions.v1.CustomResourceDefinitionSpec": ("group", "scope"),
    "pinnace.apiextensions.v1.CustomResourceSubresourceScale": ("specReplicasPath", "statusReplicasPath"),
    "pinnace.apps.v1.DaemonSetStatus": (
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberMisscheduled",
        "numberReady",
    ),
    "pinnace.core.v1.ContainerStatus": ("ready", "restartCount", "image", "imageID"),
    "pinnace.core.v1.ContainerStateTerminated": ("exitCode",),
    "pinnace.core.v1.ISCSIVolumeSource": ("lun",),
    "pinnace.core.v1.ISCSIPersistentVolumeSource": ("lun",),
    "pinnace.policy.v1.PodDisruptionBudgetStatus": (
        "currentHealthy",
        "desiredHealthy",
        "disruptionsAllowed",
        "expectedPods",
    ),
    "pinnace.apps.v1.ReplicaSetStatus": ("replicas",),
    "pinnace.apps.v1.StatefulSetStatus": ("replicas", "availableReplicas"),
    "pinnace.apps.v1.ControllerRevision": ("revision",),
    "pinnace.apiregistration.v1.APIServiceSpec": ("groupPriorityMinimum", "versionPriority"),
    "pinnace.autoscaling.v1.ScaleStatus": ("replicas",),
    **{
        f"pinnace.autoscaling.{version}.{name}": fields
        for version in ("v1", "v2")
        for name, fields in (
            ("CrossVersionObjectReference", ("kind", "name")),
            ("HorizontalPodAutoscalerSpec", ("maxReplicas",)),
        )
    },
    "pinnace.autoscaling.v1.HorizontalPodAutoscalerStatus": ("currentReplicas", "desiredReplicas"),
    "pinnace.autoscaling.v2.HorizontalPodAutoscalerStatus": ("desiredReplicas",),
    "pinnace.autoscaling.v2.MetricSpec": ("type",),
    "pinnace.autoscaling.v2.MetricStatus": ("type",),
    "pinnace.scheduling.v1.PriorityClass": ("value",),
    "pinnace.meta.v1.Condition": ("reason", "message"),
    "pinnace.core.v1.AttachedVolume": ("devicePath",),
    "pinnace.core.v1.DaemonEndpoint": ("Port",),
    "pinnace.core.v1.HTTPHeader": ("value",),
    "pinnace.core.v1.LinuxContainerUser": ("uid", "gid"),
    "pinnace.core.v1.NodeSystemInfo": (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ),
    "pinnace.core.v1.SleepAction": ("seconds",),
    "pinnace.core.v1.Sysctl": ("value",),
}
"""Fields that Kubernetes serializes even if they are zero."""
_KINDS = {resource.message.DESCRIPTOR.full_name: resource for resource in (*ALL, EVENTS_V1, HORIZONTAL_POD_AUTOSCALERS_V1)}
_SECRET = "pinnace.core.v1.Secret"
_FIRST = {"apiVersion": 0, "kind": 1, "metadata": 2}
_REQUIRED = "Required."


@dataclass(frozen=True, slots=True)
class Field:
    """A field by its JSON name. `parents`: the names of the inlined messages that contain it. `value`: the value type of a
    map."""

    descriptor: FieldDescriptor
    parents: tuple[str, ...]
    value: FieldDescriptor | None
    name: str
    """The name in protobuf."""
    is_list: bool
    values: "_ValueType"
    """How the value, or each item of a list or map, is read."""


class _ValueType(NamedTuple):
    """The type of a value: a message, a message that is one JSON value (`scalar`), or a primitive. The properties of
    descriptors are slow."""

    of: FieldDescriptor
    is_message: bool
    scalar: Scalar | None
    primitive: Callable[[object], str | int | bytes] | None

    @classmethod
    def read_as(cls, of: FieldDescriptor) -> "_ValueType":
        if of.message_type is None:
            return cls(of, False, None, primitive_reader(of))
        return cls(of, True, SCALARS.get(of.message_type.full_name), None)


@cache  # one entry per message type
def fields_of(message_type: Descriptor) -> Mapping[str, Field]:
    """Return the fields of a message by JSON name, including the fields of inlined messages."""
    fields: dict[str, Field] = {}
    for descriptor in message_type.fields:
        if descriptor.full_name == OWNERSHIP:
            continue
        if descriptor.full_name in INLINED and descriptor.message_type is not None:
            for name, inner in fields_of(descriptor.message_type).items():
                fields[name] = replace(inner, parents=(descriptor.name, *inner.parents))
        else:
            value = map_value(descriptor)
            values = _ValueType.read_as(value or descriptor)
            fields[descriptor.json_name] = Field(descriptor, (), value, descriptor.name, descriptor.is_repeated, values)
    return fields


def map_value(field: FieldDescriptor) -> FieldDescriptor | None:
    """Return the value type of a map field, or None if the field is not a map."""
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["value"]


class MapKey(str):
    """A map key in a path: labels[app]."""

    __slots__ = ()


FieldPath = tuple[str | int | MapKey, ...]


STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
"""Values of fieldValidation: unknown fields are refused, dropped with a warning, or dropped."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in the data, with its path."""

    path: FieldPath
    message: str
    unknown: bool = False
    """Whether the field is unknown. Unknown fields can be ignored."""

    @property
    def in_status(self) -> bool:
        """Whether the field belongs to the status of the object."""
        return self.path[:1] == ("status",)

    @property
    def field(self) -> str:
        """The path in Kubernetes' notation: spec.containers[0].resources.requests[cpu]."""
        text = ""
        for step in self.path:
            if isinstance(step, int | MapKey):
                text += f"[{step}]"
            else:
                text += f".{step}" if text else step
        return text

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.path else self.message


class CodecError(ValueError):
    """The data is not a valid object of the requested type."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


def to_dict(obj: Message | Object) -> dict[str, Any]:
    """Return the object as a dictionary. API objects include apiVersion and kind."""
    message = cast(Message, obj)
    if isinstance(message, CustomObject):
        head = {"apiVersion": message.apiVersion, "kind": message.kind, "metadata": _write(message.metadata)}
        return head | read_content(message)
    resource = _KINDS.get(message.DESCRIPTOR.full_name)
    if resource is None:
        return _write(message)
    data = {"apiVersion": resource.api_version, "kind": resource.kind, **_write(message)}
    return dict(sorted(data.items(), key=lambda item: (_FIRST.get(item[0], 3), item[0])))


@overload
def from_dict(target: Resource[T], data: object, path: FieldPath = ()) -> T: ...
@overload
def from_dict(target: type[M], data: object, path: FieldPath = ()) -> M: ...
def from_dict(target: Any, data: object, path: FieldPath = ()) -> Any:
    """Decode an object. `path` is the position of the data, for error messages.

    apiVersion and kind are optional but must match if present. Raises CodecError with all problems.
    """
    message, problems = _read(target, data, path)
    if problems:
        raise CodecError(problems)
    return message


def explicit_fields(obj: Message | Object, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that the data contains explicitly, in the form of `to_dict`. `obj` is the object decoded from the data.

    Zero, empty and null fields of the data are included. Absent and unknown fields are not."""
    said = {name: data[name] for name in ("apiVersion", "kind") if name in data}
    return said | _write_names(cast(Message, obj), data)


@overload
def decode_valid_part(target: Resource[T], data: object, path: FieldPath = ()) -> tuple[T, Sequence[Problem]]: ...
@overload
def decode_valid_part(target: type[M], data: object, path: FieldPath = ()) -> tuple[M, Sequence[Problem]]: ...
def decode_valid_part(target: Any, data: object, path: FieldPath = ()) -> Any:
    """Decode the valid part of an object. Return the object and the problems. Invalid values are skipped; invalid messages are
    empty."""
    return _read(target, data, path)


def _read(target: Any, data: object, path: FieldPath) -> tuple[Any, Sequence[Problem]]:
    reader = _Reader()
    if isinstance(target, CustomResource):
        return reader.read_custom(target, data, path), reader.problems
    message = target.message() if isinstance(target, Resource) else target()
    resource = _KINDS.get(message.DESCRIPTOR.full_name)
    if resource is not None:
        data = reader.without_type(resource, data, path)
    reader.fill(message, data, path)
    return message, reader.problems


def _write(message: Message) -> dict[str, Any]:
    out: dict[str, Any] = {name: getattr(message, name) for name in SHOWN_WHEN_ZERO.get(message.DESCRIPTOR.full_name, ())}
    for field, value in message.ListFields():
        if field.full_name in INLINED:
            out |= _write(value)
        elif (of := map_value(field)) is not None:
            out[field.json_name] = {key: write_value(of, value[key]) for key in sorted(value)}
        elif field.is_repeated:
            out[field.json_name] = [write_value(field, item) for item in value]
        else:
            out[field.json_name] = write_value(field, value)
    if isinstance(message, ObjectMeta):
        out.pop("ownership", None)
    return dict(sorted(out.items()))


def write_value(field: FieldDescriptor, value: Any) -> Any:
    """Return the JSON form of a field's value; for a list or map, of one item."""
    if field.message_type is None:
        return write_primitive(value)
    if field.full_name in EMBEDDED:
        return to_dict(value)
    scalar = SCALARS.get(field.message_type.full_name)
    return scalar.write(value) if scalar else _write(value)


def _write_names(message: Message, data: Mapping[str, Any]) -> dict[str, Any]:
    fields = fields_of(message.DESCRIPTOR)
    return {name: _field_written(message, fields[name], value) for name, value in data.items() if name in fields}


def _field_written(message: Message, field: Field, data: Any) -> Any:
    if data is None:
        return None
    for parent in field.parents:
        message = getattr(message, parent)
    descriptor = field.descriptor
    value = getattr(message, descriptor.name)
    if field.value is not None:
        return {key: _value_written(field.value, value[key], item) for key, item in data.items()}
    if descriptor.is_repeated:
        return [_value_written(descriptor, item, each) for item, each in zip(value, data, strict=True)]
    return _value_written(descriptor, value, data)


def _value_written(of: FieldDescriptor, value: Any, data: Any) -> Any:
    if data is None or of.message_type is None or of.message_type.full_name in SCALARS:
        return write_value(of, value)
    return explicit_fields(value, data) if of.full_name in EMBEDDED else _write_names(value, data)


class _Reader:
    """Fills messages from data and collects the problems."""

    def __init__(self) -> None:
        self._hints = MAX_HINTS
        self.problems: list[Problem] = []

    def fill(self, message: Message, data: object, path: FieldPath) -> None:
        if type(data) is not dict and not isinstance(data, Mapping):
            self._add_problem(path, f"expected an object, got {kind_of(data)}")
            return
        fields = fields_of(message.DESCRIPTOR)
        for name, value in data.items():
            field = fields.get(name)
            if field is None:
                self.problems.append(Problem((*path, str(name)), self._unknown_field_message(str(name), fields), unknown=True))
            elif value is not None:
                self._read_field(message, field, value, (*path, name))

    def without_type(self, resource: Resource[Any], data: object, path: FieldPath) -> object:
        """Return the data of an object without apiVersion and kind. They must match if they are present."""
        if not isinstance(data, Mapping):
            return data
        for name, expected in (("apiVersion", resource.api_version), ("kind", resource.kind)):
            if data.get(name, expected) != expected:
                self.problems.append(Problem((*path, name), f'expected "{expected}", got {kind_of(data[name])}'))
        return {name: value for name, value in data.items() if name not in ("apiVersion", "kind")}

    def read_custom(self, resource: CustomResource, data: object, path: FieldPath) -> CustomObject:
        """Return a custom object. Unknown fields are problems, but stay in the object: the API server removes them."""
        obj = CustomObject()
        if not isinstance(data, Mapping):
            self._add_problem(path, f"expected an object, got {kind_of(data)}")
            return obj
        form = dict(data)
        for name, default in (("apiVersion", resource.api_version), ("kind", resource.kind)):
            value = form.get(name) or default
            if isinstance(value, str):
                setattr(obj, name, value)
            else:
                self._add_problem((*path, name), f"expected a string, got {kind_of(value)}")
        obj.metadata.SetInParent()
        if (metadata := form.pop("metadata", None)) is not None:
            self.fill(obj.metadata, metadata, (*path, "metadata"))
        try:
            obj.content = write_content(form)
        except ValueError:
            self._add_problem(path, "not valid Unicode")
        if resource.schema is not None:
            unknown = resource.schema.find_unknown_fields(form)
            self.problems += [Problem((*path, field), "unknown field", unknown=True) for field in unknown]
        return obj

    def _read_field(self, message: Message, field: Field, value: object, path: FieldPath) -> None:
        for parent in field.parents:
            message = getattr(message, parent)
        name, values = field.name, field.values
        if field.value is not None:
            self._read_map(getattr(message, name), values, value, path)
        elif field.is_list:
            self._list(getattr(message, name), values, value, path)
        elif values.is_message:
            child = getattr(message, name)
            child.SetInParent()
            self._read_message(child, values, value, path)
        elif (result := self._read_primitive(values, value, path)) is not None:
            setattr(message, name, result)

    def _read_map(self, target: Any, values: _ValueType, value: object, path: FieldPath) -> None:
        if type(value) is not dict and not isinstance(value, Mapping):
            self._add_problem(path, _without_value(values.of, f"expected an object, got {kind_of(value)}"))
            return
        for key, item in value.items():
            where = (*path, MapKey(key))
            if not isinstance(key, str):
                self._add_problem(where, f"expected a string as the key, got {kind_of(key)}; put it in quotes")
            elif values.is_message:
                self._read_message(target[key], values, item, where)
            elif (result := self._read_primitive(values, item, where)) is not None:
                target[key] = result

    def _list(self, target: Any, values: _ValueType, value: object, path: FieldPath) -> None:
        if type(value) is not list and (isinstance(value, str) or not isinstance(value, Sequence)):
            self._add_problem(path, f"expected a list, got {kind_of(value)}")
            return
        for index, item in enumerate(value):
            if values.is_message:
                self._read_message(target.add(), values, item, (*path, index))
            elif (result := self._read_primitive(values, item, (*path, index))) is not None:
                target.append(result)

    def _read_message(self, message: Message, values: _ValueType, value: object, path: FieldPath) -> None:
        if value is None:  # an item of a list or map
            if isinstance(message, Quantity):
                message.string = "0"
            return
        if values.scalar is None:
            if values.of.full_name in EMBEDDED:
                value = self.without_type(_KINDS[message.DESCRIPTOR.full_name], value, path)
            self.fill(message, value, path)
            return
        try:
            values.scalar.read(message, value)
        except ValueError as error:
            self._add_problem(path, str(error))

    def _read_primitive(self, values: _ValueType, value: object, path: FieldPath) -> str | int | bytes | None:
        """Return the value, or None if it is invalid. The value of null, as an item of a list or map, is zero."""
        if value is None:
            return zero_primitive(values.of)
        assert values.primitive is not None
        try:
            return values.primitive(value)
        except ValueError as error:
            self._add_problem(path, _without_value(values.of, str(error)))
            return None

    def _unknown_field_message(self, name: str, fields: Mapping[str, Field]) -> str:
        """Return the error for an unknown field. It suggests a similar name if there is one."""
        if not self._hints or len(name) > 3 * max(map(len, fields), default=0):  # too long to be similar to a known name
            return "unknown field"
        self._hints -= 1
        by_lower = {known.lower(): known for known in fields}
        close = difflib.get_close_matches(name.lower(), by_lower, n=1)
        return f'unknown field; did you mean "{by_lower[close[0]]}"?' if close else "unknown field"

    def _add_problem(self, path: FieldPath, message: str) -> None:
        self.problems.append(Problem(path, message))


def _without_value(of: FieldDescriptor, message: str) -> str:
    """The message without the value that was found, for a map of a Secret: messages go to logs. `of`: the values of the map."""
    entry = of.containing_type
    holder = entry.containing_type if entry is not None else None
    return message.partition(", got ")[0] if holder is not None and holder.full_name == _SECRET else message


def has_unknown_fields(message: Message) -> bool:
    """Return whether the message has unknown fields. If it has, a union that appears empty may contain a member that this
    version does not define."""
    return len(UnknownFieldSet(message)) > 0


def decode_revision(
    resource: Resource[T],
    old: T,
    form: Mapping[str, Any],
    data: object,
    ignored: Callable[[Problem], bool] = lambda problem: False,
) -> T:
    """Decode an object from data that is based on `old`, and keep the unknown fields of `old`. `form`: the JSON form of `old`.

    Unchanged parts are copied from `old`. Changed messages keep their unknown fields, and so do changed list items with an
    identity (`merge.key_of`). Invalid values of `old` that the data does not correct are kept and not reported. Raises
    CodecError for all other problems, except those that `ignored` accepts.
    """
    new, result = decode_valid_part(resource, data)
    problems = [problem for problem in result if not ignored(problem)]
    if isinstance(resource, CustomResource):
        _refuse_new_problems(problems, frozenset())
        return new
    shown, before = decode_valid_part(resource, form)
    known = frozenset(before)
    _refuse_new_problems(problems, known)
    _restore(cast(Message, new), cast(Message, old), cast(Message, shown))
    if problems:  # moved values are not matched with their old position
        _refuse_new_problems(decode_valid_part(resource, to_dict(new))[1], known)
    return new


def _refuse_new_problems(problems: Iterable[Problem], known: Collection[Problem]) -> None:
    if added := [problem for problem in problems if problem not in known]:
        raise CodecError(added)


def _restore(new: Message, old: Message, shown: Message) -> None:
    if old == shown:
        return
    if new == shown or _same_scalar(new, shown):
        new.CopyFrom(old)
        return
    if has_unknown_fields(old):
        new.MergeFrom(unknown_fields(old))
    for field, before in old.ListFields():
        if field.message_type is not None:
            for into, was, as_shown in _match_messages(field, new, before, getattr(shown, field.name)):
                _restore(into, was, as_shown)


def _same_scalar(new: Message, shown: Message) -> bool:
    """Return whether both have the same JSON form. A scalar such as a quantity has several encodings of the same value."""
    scalar = SCALARS.get(new.DESCRIPTOR.full_name)
    return scalar is not None and scalar.write(new) == scalar.write(shown)


def unknown_fields(message: Message) -> Message:
    """Return a message with only the unknown fields of a message."""
    rest = type(message)()
    rest.CopyFrom(message)
    for field, _ in message.ListFields():
        rest.ClearField(field.name)
    return rest


def _match_messages(
    field: FieldDescriptor, new: Message, before: Any, shown: Any
) -> Iterator[tuple[Message, Message, Message]]:
    """Yield matching messages of a field: in the new object, in the old object, and in the old object decoded from JSON."""
    after = getattr(new, field.name)
    value = map_value(field)
    if value is not None:
        if value.message_type is not None:
            yield from ((after[key], was, shown[key]) for key, was in before.items() if key in after)
    elif field.is_repeated:
        yield from _match_items(field, after, list(zip(before, shown, strict=True)))
    elif new.HasField(field.name):
        yield after, before, shown


def _match_items(
    field: FieldDescriptor, after: Sequence[Message], known: Sequence[tuple[Message, Message]]
) -> Iterator[tuple[Message, Message, Message]]:
    """Yield matching items of a list. Items match if they are equal or have the same identity."""
    alike = {_encode_message(shown): at for at, (_, shown) in enumerate(known)}
    same: dict[Key, int] | None = None
    for into in after:
        at = alike.get(_encode_message(into))
        if at is None:
            if same is None:
                same = {key: at for at, (_, shown) in enumerate(known) if (key := _item_identity(field, shown)) is not None}
            key = _item_identity(field, into)
            at = same.get(key) if key is not None else None
        if at is not None:
            yield into, *known[at]


def _encode_message(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _item_identity(field: FieldDescriptor, item: Message) -> Key | None:
    return key_of(field.json_name, _primitive_fields(item))


def _primitive_fields(message: Message) -> dict[str, Any]:
    """Return the primitive fields of a message in JSON form. Identities consist of primitive fields."""
    plain: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.full_name in INLINED:
            plain |= _primitive_fields(value)
        elif field.message_type is None and not field.is_repeated:
            plain[field.json_name] = value
    return plain


FILE = Path(__file__).with_name("descriptions.json")


class FieldDescription(NamedTuple):
    """The documentation of a field. `text`: sentences on one line, or "" if the field is not documented."""

    text: str
    required: bool = False


def message_description(message: Descriptor) -> str:
    return _load_descriptions().get(message.full_name, {}).get("", "")


def field_description(field: FieldDescriptor) -> FieldDescription:
    text = _load_descriptions().get(field.full_name.rpartition(".")[0], {}).get(field.json_name, "")
    return FieldDescription(text.removeprefix(_REQUIRED).strip(), text.startswith(_REQUIRED))


@cache
def _load_descriptions() -> Mapping[str, Mapping[str, str]]:
    """Return all descriptions by the full name of the message and the JSON name of the field."""
    result: Mapping[str, Mapping[str, str]] = json.loads(FILE.read_text())
    return result
