"""ObjectMeta and TypeMeta of embedded resources: coercion and validation.

Source: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta of Kubernetes 1.36.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pinnace.api import names
from pinnace.api.status import Violation
from pinnace.api.wellknown import FOREGROUND_FINALIZER, NAMESPACE_FINALIZER, ORPHAN_FINALIZER
from pinnace.apiextensions.schema import StructuralSchema
from pinnace.apiextensions.structs import (
    ANY,
    BOOLEAN,
    INTEGER,
    STRING,
    TIME,
    ListOf,
    MapOf,
    Pointer,
    Struct,
    StructError,
    read_struct,
)
from pinnace.apiextensions.violations import invalid, quote, required, too_long

STANDARD_FINALIZERS = (NAMESPACE_FINALIZER, ORPHAN_FINALIZER, FOREGROUND_FINALIZER)
MAX_ANNOTATIONS = 256 << 10
"""Maximum total size of the keys and values in bytes."""
_ANY_NAME = "name"

_OWNER_REFERENCE = Struct(
    "OwnerReference",
    {
        **dict.fromkeys(("apiVersion", "kind", "name", "uid"), STRING),
        "controller": Pointer(BOOLEAN),
        "blockOwnerDeletion": Pointer(BOOLEAN),
    },
    frozenset({"apiVersion", "kind", "name", "uid"}),
)
_MANAGED_FIELDS = Struct(
    "ManagedFieldsEntry",
    {
        **dict.fromkeys(("manager", "operation", "apiVersion", "fieldsType", "subresource"), STRING),
        "time": TIME,
        "fieldsV1": ANY,
    },
)
OBJECT_META = Struct(
    "ObjectMeta",
    {
        **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), STRING),
        "generation": INTEGER,
        "creationTimestamp": TIME,
        "deletionTimestamp": TIME,
        "deletionGracePeriodSeconds": Pointer(INTEGER),
        "labels": MapOf(STRING),
        "annotations": MapOf(STRING),
        "ownerReferences": ListOf(_OWNER_REFERENCE),
        "finalizers": ListOf(STRING),
        "managedFields": ListOf(_MANAGED_FIELDS),
    },
)


def coerce_metadata(
    obj: Any, schema: StructuralSchema | None, *, root: bool = False, drop_invalid: bool = False
) -> tuple[Violation | None, list[str]]:
    """Remove unknown fields and empty values of the metadata of embedded resources (and, with `root`, of the object itself), in
    place.

    Return the first field of a wrong type, or None, and the paths of the unknown fields, sorted. `drop_invalid`: remove fields
    of wrong types, too. Kubernetes does this for objects that it reads from the storage.
    """
    unknown = list[str]()
    violation = _coerce_metadata(obj, schema, "", unknown, drop_invalid, embedded=root or _is_embedded(schema))
    return violation, sorted(unknown)


def _is_embedded(schema: StructuralSchema | None) -> bool:
    return schema is not None and schema.embedded_resource


def _coerce_metadata(
    obj: Any, schema: StructuralSchema | None, path: str, unknown: list[str], drop: bool, *, embedded: bool
) -> Violation | None:
    if isinstance(obj, list):
        items = schema.items if schema is not None else None
        for index, item in enumerate(obj) if items is not None else ():
            violation = _coerce_metadata(item, items, f"{path}[{index}]", unknown, drop, embedded=_is_embedded(items))
            if violation is not None:
                return violation
        return None
    if not isinstance(obj, dict):
        return None
    if embedded and (violation := _coerce_meta(obj, path, unknown, drop)) is not None:
        return violation
    for name, value in obj.items():
        child = schema.child(name) if schema is not None else None
        if child is None or not isinstance(value, dict | list):
            continue
        at = f"{path}.{name}" if path else name
        if (violation := _coerce_metadata(value, child, at, unknown, drop, embedded=_is_embedded(child))) is not None:
            return violation
    return None


def _coerce_meta(obj: dict[str, Any], path: str, unknown: list[str], drop: bool) -> Violation | None:
    prefix = f"{path}." if path else ""
    for name in ("apiVersion", "kind"):
        if name in obj and not isinstance(obj[name], str):
            if not drop:
                return invalid(f"{prefix}{name}", obj[name], "must be a string")
            del obj[name]
    if "metadata" not in obj:
        return None
    metadata = obj["metadata"]
    try:
        obj["metadata"] = read_struct(metadata, OBJECT_META, unknown, f"{prefix}metadata") if metadata is not None else {}
    except StructError as error:
        if not drop:
            return invalid(f"{prefix}metadata", metadata, str(error))
        if isinstance(metadata, dict):
            obj["metadata"] = _read_valid_fields(metadata, unknown, f"{prefix}metadata")
    return None


def _read_valid_fields(metadata: Mapping[str, Any], unknown: list[str], path: str) -> dict[str, Any]:
    result = dict[str, Any]()
    for name, value in metadata.items():
        try:
            result |= read_struct({name: value}, OBJECT_META, unknown, path)
        except StructError:
            continue
    return result


def finalizer_warnings(new: Sequence[str], old: Sequence[str] = ()) -> list[str]:
    """Return warnings for finalizers of a custom object that an update adds. Kubernetes accepts unqualified ones for custom
    objects only."""
    out = list[str]()
    for finalizer in sorted(set(new) - set(old)):
        where = f"metadata.finalizers: {quote(finalizer)}"
        out += [f"{where}: {problem}" for problem in names.label_key(finalizer)]
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            path = " including a path (/)" if "." in finalizer else ""
            detail = (
                f"prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
            )
            out.append(f"{where}: {detail}")
    return out


def validate_embedded(obj: Any, schema: StructuralSchema | None, *, root: bool = False, path: str = "") -> list[Violation]:
    """Return the violations of apiVersion, kind and metadata of embedded resources (and, with `root`, of the object
    itself)."""
    out = list[Violation]()
    _validate(obj, schema, path, out, embedded=root or _is_embedded(schema))
    return out


def _validate(obj: Any, schema: StructuralSchema | None, path: str, out: list[Violation], *, embedded: bool) -> None:
    if isinstance(obj, list):
        items = schema.items if schema is not None else None
        for index, item in enumerate(obj) if items is not None else ():
            if isinstance(item, dict | list):
                _validate(item, items, f"{path}[{index}]", out, embedded=_is_embedded(items))
    elif isinstance(obj, dict):
        if embedded:
            _validate_meta(obj, path, out)
        if schema is None:
            return
        for name, value in obj.items():
            if not isinstance(value, dict | list):
                continue
            if (child := schema.property_schema(name)) is not None:
                _validate(value, child, f"{path}.{name}" if path else name, out, embedded=child.embedded_resource)
            elif (child := schema.values) is not None:
                _validate(value, child, f"{path}[{name}]", out, embedded=child.embedded_resource)


def _validate_meta(obj: Mapping[str, Any], path: str, out: list[Violation]) -> None:
    prefix = f"{path}." if path else ""
    out.extend(required(f"{prefix}{name}") for name in ("apiVersion", "kind") if name not in obj)
    for name, value in obj.items():
        field = f"{prefix}{name}"
        if name in ("apiVersion", "kind"):
            if not isinstance(value, str):
                out.append(invalid(field, value, "must be a string"))
            elif not value:
                out.append(invalid(field, value, "must not be empty"))
            elif name == "apiVersion" and value.count("/") > 1:
                out.append(invalid(field, value, f"unexpected GroupVersion string: {value}"))
            elif name == "kind" and (problems := names.dns_1035_label(value.lower())):
                detail = f"may have mixed case, but should otherwise match: {','.join(problems)}"
                out.append(invalid(field, value, detail))
        elif name == "metadata":
            _validate_object_meta(value, field, out)


def _validate_object_meta(value: Any, path: str, out: list[Violation]) -> None:
    try:
        metadata = read_struct(value, OBJECT_META, []) if value is not None else {}
    except StructError as error:
        out.append(invalid(path, value, str(error)))
        return
    for name in ("generateName", "name"):
        problems = names.path_segment(metadata.get(name) or _ANY_NAME)
        out.extend(invalid(f"{path}.{name}", metadata[name], problem) for problem in problems)
    if namespace := metadata.get("namespace"):
        out.extend(invalid(f"{path}.namespace", namespace, problem) for problem in names.dns_label(namespace))
    for key, label in metadata.get("labels", {}).items():
        out.extend(invalid(f"{path}.labels", key, problem) for problem in names.label_key(key))
        out.extend(invalid(f"{path}.labels", label, problem) for problem in names.label_value(label))
    annotations: Mapping[str, str] = metadata.get("annotations", {})
    for key in annotations:
        out.extend(invalid(f"{path}.annotations", key, problem) for problem in names.label_key(key.lower()))
    if sum(len(text.encode(errors="replace")) for pair in annotations.items() for text in pair) > MAX_ANNOTATIONS:
        out.append(too_long(f"{path}.annotations", MAX_ANNOTATIONS))
    for owner in metadata.get("ownerReferences", ()):
        where = f"{path}.ownerReferences"
        if not owner["apiVersion"]:
            out.append(invalid(f"{where}.apiVersion", "", "version must not be empty"))
        out.extend(invalid(f"{where}.{name}", "", "must not be empty") for name in ("kind", "name", "uid") if not owner[name])
    for finalizer in metadata.get("finalizers", ()):
        out.extend(invalid(f"{path}.finalizers", finalizer, problem) for problem in names.label_key(finalizer))
