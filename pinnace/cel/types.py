"""Types of expressions and of their values.

JSON values are themselves: bool, int, float, str, None, list, dict. An unsigned integer, a duration, a timestamp,
an optional, a type,
and the types of Kubernetes' libraries (`pinnace.cel.libraries`) are classes.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

SCALARS = frozenset({"bool", "int", "uint", "double", "duration", "timestamp"})


class Field(NamedTuple):
    """A field of an object type. `key`: its name in JSON."""

    type: "Type"
    key: str


class Type:
    """A type of CEL. `kind` is its name without parameters, "struct" for objects and "opaque" for abstract types.

    `fields`: the fields of an object, by escaped name; None for objects with any field. `max_elements`: maximum length that a
    schema allows. `min_size`: minimum size in JSON. `schema`: the schema of JSON that is converted before it is a value of
    this type, or None. `size`: the number of types in its text. The last four do not take part in comparisons.
    """

    __slots__ = ("fields", "kind", "max_elements", "min_size", "name", "params", "schema", "size")

    def __init__(
        self,
        kind: str,
        name: str = "",
        params: tuple["Type", ...] = (),
        fields: Mapping[str, Field] | None = None,
        max_elements: int | None = None,
        min_size: int = 0,
    ) -> None:
        self.kind, self.name, self.params, self.fields = kind, name or kind, params, fields
        self.max_elements, self.min_size = max_elements, min_size
        self.schema: Mapping[str, Any] | None = None
        self.size: int = 1 + sum([param.size for param in params]) if params else 1

    def same(self, other: "Type") -> bool:
        if self is other:
            return True
        return (
            self.kind == other.kind
            and self.name == other.name
            and len(self.params) == len(other.params)
            and all(a.same(b) for a, b in zip(self.params, other.params, strict=True))
        )

    def __str__(self) -> str:
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"


def _simple_type(kind: str, name: str = "") -> Type:
    return Type(kind, name)


BOOL, INT, UINT, DOUBLE, STRING, BYTES = map(_simple_type, ("bool", "int", "uint", "double", "string", "bytes"))
NULL, DYN, ERROR, DURATION, TIMESTAMP = (
    _simple_type("null"),
    _simple_type("dyn"),
    _simple_type("!error!"),
    _simple_type("duration"),
    _simple_type("timestamp"),
)
TYPE = _simple_type("type")


def list_of(item: Type, max_elements: int | None = None) -> Type:
    return Type("list", params=(item,), max_elements=max_elements)


def map_of(key: Type, value: Type, max_elements: int | None = None) -> Type:
    return Type("map", params=(key, value), max_elements=max_elements)


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    return Type("type", params=(value,))


def is_optional(value: Type) -> bool:
    return value.name == "optional_type"


# Values


class Uint(int):
    """An unsigned integer."""


class Duration(int):
    """Nanoseconds."""


class Timestamp(int):
    """Nanoseconds since 1970 in UTC."""


class TypeValue(str):
    """A type as a value: its name, e.g. "int", "google.protobuf.Timestamp"."""


class Optional:
    """A value that may be absent. `absent` is the only one without a value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


ABSENT = Optional(None)


class StructValue(dict[str, Any]):
    """An object that an expression made: `Object.spec{...}`. `name`: its type."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class SetList(list[Any]):
    """A list of type set: the order of its items does not matter."""


class MapList(list[Any]):
    """A list of type map: the order of its items does not matter. `keys`: the names of the key fields."""

    keys: tuple[str, ...] = ()


class EvaluationFailure(Exception):
    """An expression has no value, e.g. "no such key: data", "index out of bounds: 3", "division by zero"."""


NAMES: dict[type, str] = {
    bool: "bool", int: "int", Uint: "uint", float: "double", str: "string", bytes: "bytes", type(None): "null_type",
    list: "list",
    SetList: "list", MapList: "list", dict: "map", Duration: "google.protobuf.Duration", Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type", Optional: "optional_type",
}  # fmt: skip
"""CEL's name of the type of a value. Libraries add their types."""


def name_of(value: Any) -> str:
    """Return CEL's name of the type of a value."""
    return NAMES.get(type(value)) or "map"
