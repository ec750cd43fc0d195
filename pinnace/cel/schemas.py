"""The types that a structural schema declares for `self`, and the conversion of objects into values of these types.

Source: staging/src/k8s.io/apiserver/pkg/cel/common/schemas.go and values.go of Kubernetes 1.36
"""

import re
from collections.abc import Mapping
from typing import Any

from pinnace.cel.conversions import SECOND, check_int, decode_base64, parse_duration, parse_timestamp
from pinnace.cel.meter import Meter
from pinnace.cel.types import Duration, EvaluationFailure, Field, MapList, SetList, Type, list_of, map_of

Schema = Mapping[str, Any]

MAX_REQUEST = 3 << 20
"""Maximum size of a request in bytes. It bounds every text and list without a limit."""
MAX_TIME, MIN_TIME, MIN_DURATION, DATE = 32, 21, 3, 12
"""Sizes in JSON in bytes."""
_TEXT_MAX = {"duration": MAX_TIME, "date": DATE, "date-time": MAX_TIME}
_RESERVED = frozenset(
    {
        "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
        "let", "loop", "package", "namespace", "return", "var", "void", "while",
    }
)  # fmt: skip
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_TO_ESCAPE = re.compile(r"__|[-./]")
_IDENTIFIER = re.compile(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*", re.ASCII)
_META: Schema = {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}}
_CONVERTED = frozenset({"duration", "date", "date-time", "byte"})
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-zµ]+)", re.ASCII)
_DURATION_UNITS = {
    **dict.fromkeys(("ns", "nano", "nanosecond", "nanoseconds"), 1),
    **dict.fromkeys(("us", "µs", "micro", "microsecond", "microseconds"), 10**3),
    **dict.fromkeys(("ms", "milli", "millisecond", "milliseconds"), 10**6),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECOND),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60 * SECOND),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600 * SECOND),
    **dict.fromkeys(("d", "day", "days"), 86400 * SECOND),
    **dict.fromkeys(("w", "wk", "week", "weeks"), 7 * 86400 * SECOND),
}
"""Units of the format duration in nanoseconds: more than those of the function `duration`."""


def escape(name: str) -> str | None:
    """Return the identifier of a field, or None if no expression can name it: "a.b" is a__dot__b."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _IDENTIFIER.fullmatch(name):
        return None
    return _TO_ESCAPE.sub(lambda match: _ESCAPES[match[0]], name)


def with_object_meta(schema: Schema) -> Schema:
    """Return the schema of the root of a resource: rules may read apiVersion, kind, metadata.name and metadata.generateName."""
    properties = dict(schema.get("properties") or {})
    properties.update(kind={"type": "string"}, apiVersion={"type": "string"}, metadata=_META)
    return {**schema, "type": "object", "properties": properties}


class SchemaTypes:
    """The types of the nodes of one schema. Each node is converted once. `type_of` returns None for what no rule may read."""

    def __init__(self, converter: "Converter") -> None:
        self._known: dict[tuple[int, bool], tuple[Schema, Type | None]] = {}
        self._converter = converter
        self._names = 0

    def type_of(self, schema: Schema, *, root: bool = False) -> Type | None:
        key = (id(schema), root)
        if key not in self._known:
            found = self._convert(schema, root)
            if found is not None and self._converter.is_needed(schema):
                found.schema = schema
            self._known[key] = (schema, found)
        return self._known[key][1]

    def _child_type(self, schema: Schema) -> Type | None:
        return self.type_of(schema, root=bool(schema.get("x-kubernetes-embedded-resource")))

    def _convert(self, schema: Schema, root: bool) -> Type | None:
        max_length = schema.get("maxLength")
        if schema.get("x-kubernetes-int-or-string"):
            size = MAX_REQUEST - 2 if max_length is None else max(0, max_length) * 4
            return Type("dyn", max_elements=size, min_size=1)
        if root:
            schema = with_object_meta(schema)
        kind = schema.get("type")
        if kind == "array":
            return self._array_type(schema)
        if kind == "object":
            return self._object_type(schema)
        if kind == "string":
            return _text_type(schema)
        if kind == "boolean":
            return Type("bool", max_elements=0, min_size=4)
        if kind == "number":
            return Type("double", max_elements=0, min_size=1)
        if kind == "integer":
            return Type("int", max_elements=0, min_size=1)
        return None

    def _array_type(self, schema: Schema) -> Type | None:
        items = schema.get("items")
        item = self._child_type(items) if isinstance(items, Mapping) else None
        if item is None:
            return None
        limit = schema.get("maxItems")
        size = max(0, limit) if limit is not None else (MAX_REQUEST - 2) // (item.min_size + 1)
        result = list_of(item, size)
        result.min_size = 2
        return result

    def _object_type(self, schema: Schema) -> Type | None:
        additional = schema.get("additionalProperties")
        if isinstance(additional, Mapping):
            value = self._child_type(additional)
            if value is None:
                return None
            limit = schema.get("maxProperties")
            size = max(0, limit) if limit is not None else (MAX_REQUEST - 2) // (value.min_size + 6)
            key = Type("string", max_elements=0, min_size=2)
            result = map_of(key, value, size)
            result.min_size = 2
            return result
        fields = dict[str, Field]()
        required = set(schema.get("required") or ())
        min_size = 2
        for name, child in (schema.get("properties") or {}).items():
            found = self._child_type(child)
            if found is None:
                continue
            if (identifier := escape(name)) is not None:
                fields[identifier] = Field(found, name)
            if name in required and child.get("default") is None:
                min_size += len(name) + found.min_size + 4
        self._names += 1
        return Type("struct", f"selfType{self._names}", fields=fields, max_elements=0, min_size=min_size)


def _text_type(schema: Schema) -> Type:
    form, max_length = schema.get("format"), schema.get("maxLength")
    longest = _TEXT_MAX.get(form or "", MAX_REQUEST - 2)
    if form == "byte":
        return Type("bytes", max_elements=longest if max_length is None else max(0, max_length), min_size=2)
    if form == "duration":
        return Type("duration", max_elements=longest, min_size=MIN_DURATION)
    if form in ("date", "date-time"):
        return Type("timestamp", max_elements=longest, min_size=DATE if form == "date" else MIN_TIME)
    if max_length is not None:
        longest = max(0, max_length) * 4
    elif enum := schema.get("enum"):
        longest = max((len(value.encode()) for value in enum if isinstance(value, str)), default=0)
    return Type("string", max_elements=longest, min_size=2)


class Converter:
    """Converts parts of objects when an expression reads them: numbers into doubles, texts of some formats, lists of type set
    and map.

    A part of an object that needs no conversion is not copied.
    """

    def __init__(self) -> None:
        self._needed: dict[int, tuple[Schema, bool]] = {}

    def is_needed(self, schema: Schema) -> bool:
        known = self._needed.get(id(schema))
        if known is None:
            self._needed[id(schema)] = (schema, False)
            known = self._needed[id(schema)] = (schema, self._is_needed(schema))
        return known[1]

    def _is_needed(self, schema: Schema) -> bool:
        kind = schema.get("type")
        if kind == "number":
            return True
        if kind == "string":
            return schema.get("format") in _CONVERTED
        if kind == "array":
            items = schema.get("items")
            return schema.get("x-kubernetes-list-type") in ("set", "map") or (
                isinstance(items, Mapping) and self.is_needed(items)
            )
        if kind == "object":
            additional = schema.get("additionalProperties")
            if isinstance(additional, Mapping):
                return self.is_needed(additional)
            return any(self.is_needed(child) for child in (schema.get("properties") or {}).values())
        return False

    def convert(self, meter: Meter, value: Any, schema: Schema) -> Any:
        """Return the value of a part of a valid object. A text that its format does not permit stays as it is.

        A container is converted once for each meter. Raises CostExceeded.
        """
        kind = type(value)
        if value is None or kind is bool or not self.is_needed(schema) or schema.get("x-kubernetes-int-or-string"):
            return value
        if kind is int:
            return float(value) if schema.get("type") == "number" else value
        if kind is str:
            meter.work += 20
            return _convert_text(value, schema.get("format"))
        if kind is not dict and kind is not list:
            return value
        known = meter.converted.get((id(value), id(schema)))
        if known is not None:
            return known[1]
        meter.charge(0, 10 + 5 * len(value))
        converted = self._convert_object(meter, value, schema) if kind is dict else self._convert_list(meter, value, schema)
        meter.converted[id(value), id(schema)] = meter.converted[id(converted), id(schema)] = (value, converted)
        return converted

    def _convert_object(self, meter: Meter, value: dict[str, Any], schema: Schema) -> dict[str, Any]:
        additional = schema.get("additionalProperties")
        if isinstance(additional, Mapping):
            return {key: self.convert(meter, item, additional) for key, item in value.items()}
        properties = schema.get("properties") or {}
        return {key: self.convert(meter, item, properties[key]) if key in properties else item for key, item in value.items()}

    def _convert_list(self, meter: Meter, value: list[Any], schema: Schema) -> list[Any]:
        items = schema.get("items")
        converted = value
        if isinstance(items, Mapping) and self.is_needed(items):
            converted = [self.convert(meter, item, items) for item in value]
        kind = schema.get("x-kubernetes-list-type")
        if kind == "set":
            return SetList(converted)
        if kind == "map":
            result = MapList(converted)
            result.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
            return result
        return converted


def _convert_duration(text: str) -> Duration:
    try:
        return parse_duration(text)
    except EvaluationFailure:
        parts = _DURATION_PART.findall(text[:100])
        if not parts or _DURATION_PART.sub("", text[:100]).strip() or any(unit not in _DURATION_UNITS for _, unit in parts):
            raise
    return Duration(check_int(sum(int(float(number) * _DURATION_UNITS[unit]) for number, unit in parts)))


def _convert_text(text: str, form: str | None) -> Any:
    try:
        if form == "byte":
            return decode_base64(text)
        if form == "duration":
            return _convert_duration(text)
        if form == "date":
            return parse_timestamp(f"{text}T00:00:00Z")
        if form == "date-time":
            return parse_timestamp(text)
    except EvaluationFailure:
        pass
    return text
