"""JSON as Kubernetes' Go types read it: values of other types are errors, unknown fields and empty values vanish.

    STRING, BOOLEAN, INTEGER, NUMBER, TIME   a value of this type; an empty one vanishes
    Pointer(STRING)                          the same, and an empty one stays
    ListOf(of), MapOf(of), Struct(...)       lists, maps of strings to values, and objects with known fields
    ANY                                      any value but null
    Choice(...)                              a type with code of its own: one of several types, by the type of the value

Null vanishes everywhere but in lists of ANY. The messages are those of Go's encoding/json.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pinnace.api import go_time
from pinnace.api.meta_v1_pb2 import Time
from pinnace.api.scalars import format_rfc3339
from pinnace.apiextensions.violations import format_scalar

_DROPPED = object()


@dataclass(frozen=True, slots=True)
class Scalar:
    """`go_type`: the name of the type in messages."""

    go_type: str


STRING, BOOLEAN, INTEGER, NUMBER = map(Scalar, ("string", "bool", "int64", "float64"))
TIME, ANY = Scalar("time"), Scalar("any")


@dataclass(frozen=True, slots=True)
class Pointer:
    to: Scalar


@dataclass(frozen=True, slots=True)
class ListOf:
    of: "GoType"


@dataclass(frozen=True, slots=True)
class MapOf:
    of: "GoType"


@dataclass(frozen=True, slots=True)
class Choice:
    """`select` returns the type for a value; None to ignore the value. It raises StructError. Unknown fields in the value are
    not reported, and paths in messages begin at it."""

    select: "Callable[[Any], GoType | None]"


@dataclass(eq=False, slots=True)
class Struct:
    """`always`: fields that do not vanish."""

    name: str
    fields: "Mapping[str, GoType]" = field(default_factory=dict)
    always: frozenset[str] = frozenset()


GoType = Scalar | Pointer | ListOf | MapOf | Choice | Struct
_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1


class StructError(ValueError):
    """A value has another type. The message is Go's."""


def read_struct(value: Any, struct: Struct, unknown: list[str], path: str = "", go_path: str = "") -> dict[str, Any]:
    """Return the object as Kubernetes writes it. Append the paths of unknown fields to `unknown`. `path`: of the value.
    `go_path`: of the value in errors, which have no indexes and keys of maps.

    Raises StructError.
    """
    result = _Reader(unknown).read(value, struct, path, go_path, struct.name)
    return result if isinstance(result, dict) else {}


class _Reader:
    def __init__(self, unknown: list[str] | None) -> None:
        self._unknown = unknown

    def read(self, value: Any, of: GoType, path: str, name: str, struct: str) -> Any:
        """`path`: in the whole object; `name`: from the struct at which Go began to read."""
        if value is None:
            return _DROPPED
        match of:
            case Scalar():
                return _read_scalar(value, of, name, struct) or _DROPPED if of is not ANY else value
            case Pointer():
                return _read_scalar(value, of.to, name, struct)
            case Choice():
                chosen = of.select(value)
                root = chosen.name if isinstance(chosen, Struct) else struct
                return _DROPPED if chosen is None else _Reader(None).read(value, chosen, path, "", root)
            case ListOf():
                if not isinstance(value, list):
                    raise _mismatch_error(value, f"[]{_go_type(of.of)}", name, struct)
                items = [self.read(item, of.of, f"{path}[{index}]", name, struct) for index, item in enumerate(value)]
                return [_zero_value(of.of) if item is _DROPPED else item for item in items] or _DROPPED
            case MapOf():
                if not isinstance(value, dict):
                    raise _mismatch_error(value, f"map[string]{_go_type(of.of)}", name, struct)
                entries = {key: self.read(entry, of.of, f"{path}.{key}", name, struct) for key, entry in value.items()}
                return {key: _zero_value(of.of) if entry is _DROPPED else entry for key, entry in entries.items()} or _DROPPED
        return self._read_struct(value, of, path, name, struct)

    def _read_struct(self, value: Any, of: Struct, path: str, name: str, struct: str) -> Any:
        if not isinstance(value, dict):
            raise _mismatch_error(value, f"v1.{of.name}", name, struct)
        result = dict[str, Any]()
        for key, entry in value.items():
            field_type = of.fields.get(key)
            at = f"{path}.{key}" if path else key
            if field_type is None:
                if self._unknown is not None:
                    self._unknown.append(at)
                continue
            entry = self.read(entry, field_type, at, f"{name}.{key}" if name else key, of.name)
            if entry is not _DROPPED:
                result[key] = entry
        for key in of.always:
            result.setdefault(key, _zero_value(of.fields[key]))
        return result


def _read_scalar(value: Any, of: Scalar, name: str, struct: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if of is BOOLEAN and isinstance(value, bool):
        return value
    if of is NUMBER and is_number:
        return value
    if of is INTEGER and is_number:
        if isinstance(value, int) and _MIN_INT64 <= value <= _MAX_INT64:
            return value
        raise _mismatch_error(value, of.go_type, name, struct, f"number {format_scalar(value)}")
    if of is STRING and isinstance(value, str):
        return value
    if of is TIME:
        return _read_time(value)
    raise _mismatch_error(value, of.go_type, name, struct)


def _read_time(value: Any) -> str:
    if not isinstance(value, str):
        raise StructError(f"json: cannot unmarshal {_json_type(value)} into Go value of type string")
    try:
        instant = go_time.parse(value)
    except go_time.TimeError as error:
        raise StructError(str(error)) from None
    return format_rfc3339(Time(seconds=instant.seconds))


def _zero_value(of: GoType) -> Any:
    """The value that Go writes for an absent one."""
    match of:
        case Scalar():
            return {"string": "", "bool": False, "int64": 0, "float64": 0}.get(of.go_type)
        case Struct():
            return {key: _zero_value(of.fields[key]) for key in of.always}
    return None


def _mismatch_error(value: Any, go_type: str, name: str, struct: str, shown: str = "") -> StructError:
    where = f"Go struct field {struct}.{name}" if name else "Go value"
    return StructError(f"json: cannot unmarshal {shown or _json_type(value)} into {where} of type {go_type}")


def _json_type(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
    return "array" if isinstance(value, list) else "object"


def _go_type(of: GoType) -> str:
    match of:
        case Scalar():
            return of.go_type
        case Pointer():
            return of.to.go_type
        case ListOf():
            return f"[]{_go_type(of.of)}"
        case MapOf():
            return f"map[string]{_go_type(of.of)}"
        case Struct():
            return f"v1.{of.name}"
    return "v1.JSON"
