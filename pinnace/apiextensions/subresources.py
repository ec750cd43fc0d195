"""What a definition selects from custom objects by path: the scale subresource, and fields for field selectors.

Source: k8s.io/apiextensions-apiserver/pkg/registry/customresource (etcd.go, strategy.go, validator.go) of Kubernetes 1.36.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pinnace.api.scalars import MAX_INT32
from pinnace.api.status import Violation
from pinnace.api.strategic_merge import go_type_name
from pinnace.apiextensions.jsonpath import JSONPathError, compile_jsonpath
from pinnace.apiextensions.schema import mapping, objects, text
from pinnace.apiextensions.violations import format_scalar, invalid

SPEC_REPLICAS, STATUS_REPLICAS, LABEL_SELECTOR = "specReplicasPath", "statusReplicasPath", "labelSelectorPath"


class ScaleError(ValueError):
    """An object has no scale. The message is Kubernetes', for a 500 with reason InternalError."""


def scale_of(obj: Mapping[str, Any], scale: Mapping[str, Any], *, required: bool = True) -> dict[str, Any]:
    """Return {"spec": ..., "status": ...} of the Scale of an object. `scale`: subresources.scale of the version. `required`:
    the object must have spec replicas; an update of the Scale sets them.

    Raises ScaleError.
    """
    spec_path = text(scale.get(SPEC_REPLICAS))
    replicas = _read_field(obj, spec_path, int)
    if replicas is None and required:
        raise ScaleError(f'the spec replicas field "{spec_path}" does not exist')
    status = {"replicas": _read_field(obj, text(scale.get(STATUS_REPLICAS)), int) or 0}
    if selector_path := text(scale.get(LABEL_SELECTOR)):
        status |= {"selector": selector} if (selector := _read_field(obj, selector_path, str)) else {}
    return {"spec": {"replicas": replicas} if replicas else {}, "status": status}


def _read_field(obj: Mapping[str, Any], path: str, kind: type[int] | type[str]) -> Any:
    value, problem = find_nested(obj, path, kind)
    if problem:
        raise ScaleError(problem)
    return value


def set_replicas(obj: dict[str, Any], scale: Mapping[str, Any], replicas: int) -> None:
    """Set the object's spec replicas in place. Raises ScaleError if the path leads through a value that is no object."""
    *names, last = text(scale.get(SPEC_REPLICAS)).removeprefix(".").split(".")
    target = obj
    for index, name in enumerate(names):
        inner = target.setdefault(name, {})
        if not isinstance(inner, dict):
            where = "." + ".".join(names[: index + 1])
            raise ScaleError(f"value cannot be set because {where} is not a map[string]interface{{}}")
        target = inner
    target[last] = replicas


def selectable_values(obj: Mapping[str, Any], version: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a version's selectableFields by label: {"spec.color": "red"}. Absent fields are empty."""
    return {
        path.removeprefix("."): _selectable_text(obj, path)
        for field in objects(version.get("selectableFields"))
        if (path := text(field.get("jsonPath")))
    }


def _selectable_text(obj: Mapping[str, Any], path: str) -> str:
    try:
        values = compile_jsonpath(path).find(obj)
    except JSONPathError:
        return ""
    if not values or values[0] is None:
        return ""
    value = values[0]
    return format_scalar(value) if isinstance(value, int | float) else str(value)


def validate_scale(obj: Mapping[str, Any], scale: Mapping[str, Any] | None, keys: Iterable[str]) -> list[Violation]:
    """Return the violations of the fields that the scale subresource reads. `keys`: the paths to check."""
    out = list[Violation]()
    for key in keys:
        path = text(mapping(scale).get(key))
        if not path:
            continue
        value, problem = find_nested(obj, path, str if key == LABEL_SELECTOR else int)
        if problem:
            out.append(invalid(path, "" if key == LABEL_SELECTOR else 0, problem))
        elif isinstance(value, int):
            if value < 0:
                out.append(invalid(path, value, "should be a non-negative integer"))
            elif value > MAX_INT32:
                out.append(invalid(path, value, f"should be less than or equal to {MAX_INT32}"))
    return out


def find_nested(obj: Mapping[str, Any], path: str, kind: type[int] | type[str]) -> tuple[Any, str]:
    """Return the value at a path (".spec.replicas") or None, and why it cannot be read, in the words of Go's unstructured."""
    names = path.removeprefix(".").split(".")
    value: Any = obj
    for index, name in enumerate(names):
        if value is None:
            return None, ""
        if not isinstance(value, dict):
            return None, _accessor_error(names[: index + 1], value, "map[string]interface{}")
        if name not in value:
            return None, ""
        value = value[name]
    if isinstance(value, kind) and not isinstance(value, bool):
        return value, ""
    return None, _accessor_error(names, value, "string" if kind is str else "int64")


def _accessor_error(names: Sequence[str], value: Any, expected: str) -> str:
    found = "<nil>" if value is None else go_type_name(value)
    return f".{'.'.join(names)} accessor error: {_show_go(value)} is of the type {found}, expected {expected}"


def _show_go(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "<nil>"
    return format_scalar(value) if isinstance(value, int | float) else json.dumps(value)
