"""The keywords of a schema that restrict values, compiled for `pinnace.apiextensions.validation`.

An enum is a set of hashed canonical forms, because schemas can have enums of 100,000 values.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from pinnace.apiextensions.formats import Check, format_check, is_recognized
from pinnace.apiextensions.patterns import Pattern, PatternError, compile_pattern
from pinnace.apiextensions.schema import StructuralSchema, mapping, objects, text, texts
from pinnace.apiextensions.violations import format_supported, to_json

_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}
INT_OR_STRING = ("integer", "string")


class ValueValidation:
    """The restrictions of one node. Keywords with values of wrong types are ignored."""

    maximum: int | float | None = None
    minimum: int | float | None = None
    multiple_of: int | float | None = None
    exclusive_maximum = exclusive_minimum = False
    max_length: int | None = None
    min_length: int | None = None
    max_items: int | None = None
    min_items: int | None = None
    max_properties: int | None = None
    min_properties: int | None = None
    pattern = ""
    required: tuple[str, ...] = ()
    has_enum = has_junctors = forbids_unknown = False

    def __init__(self, schema: StructuralSchema) -> None:
        props = schema.props
        get = props.get
        self.schema = schema
        self.types: tuple[str, ...] = INT_OR_STRING if schema.int_or_string else ((schema.type,) if schema.type else ())
        sole_type = self.types[0] if len(self.types) == 1 else ""
        self.python_types = frozenset(python for kind in self.types for python in _PYTHON_TYPES.get(kind, ()))
        """The types of valid values, except for floats without a fraction, which are integers."""
        name = text(get("format"))
        self.format = name if name and is_recognized(name, sole_type) else ""
        """The name of a format that is checked; "" for none."""
        self.string_format: Check | None = format_check(self.format) if self.format else None
        self.number_type = sole_type if sole_type in ("integer", "number") else ""
        self.has_number = any(kind in ("integer", "number") for kind in self.types)
        for keyword, (attribute, read) in _KEYWORDS.items() if not _KEYWORDS.keys().isdisjoint(props) else ():
            if keyword in props:
                setattr(self, attribute, read(props[keyword]))
        self.restricts_numbers = self.maximum is not None or self.minimum is not None or self.multiple_of is not None

    @cached_property
    def compiled_pattern(self) -> Pattern | str:
        """The expression, or why it is none."""
        try:
            return compile_pattern(self.pattern)
        except PatternError as error:
            return str(error)

    @cached_property
    def enum(self) -> frozenset[Any]:
        return frozenset(canonical_form(value) for value in self.schema.props["enum"] if value is not None)

    @cached_property
    def enum_text(self) -> str:
        """The values of the enum in Kubernetes' message."""
        return format_supported(value if isinstance(value, str) else to_json(value) for value in self.schema.props["enum"])

    @cached_property
    def required_names(self) -> frozenset[str]:
        return frozenset(self.required)

    @cached_property
    def all_of(self) -> Sequence[StructuralSchema]:
        return self._nested_schemas("allOf")

    @cached_property
    def any_of(self) -> Sequence[StructuralSchema]:
        return self._nested_schemas("anyOf")

    @cached_property
    def one_of(self) -> Sequence[StructuralSchema]:
        return self._nested_schemas("oneOf")

    @cached_property
    def negated(self) -> StructuralSchema | None:
        """The schema of `not`."""
        props = self.schema.props.get("not")
        return StructuralSchema(props) if isinstance(props, dict) else None

    def _nested_schemas(self, keyword: str) -> Sequence[StructuralSchema]:
        return [StructuralSchema(mapping(props)) for props in objects(self.schema.props.get(keyword))]


def canonical_form(value: Any) -> Any:
    """Return a hashable value that is equal for equal JSON values. Numbers are equal by value, and are never equal to
    booleans."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, int | float):
        return ("number", value)
    return ("json", json.dumps(value, sort_keys=True))


def _is_true(value: Any) -> bool:
    return value is True


def _as_number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_KEYWORDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "maximum": ("maximum", _as_number),
    "minimum": ("minimum", _as_number),
    "multipleOf": ("multiple_of", _as_number),
    "exclusiveMaximum": ("exclusive_maximum", _is_true),
    "exclusiveMinimum": ("exclusive_minimum", _is_true),
    "maxLength": ("max_length", _as_integer),
    "minLength": ("min_length", _as_integer),
    "maxItems": ("max_items", _as_integer),
    "minItems": ("min_items", _as_integer),
    "maxProperties": ("max_properties", _as_integer),
    "minProperties": ("min_properties", _as_integer),
    "pattern": ("pattern", text),
    "required": ("required", texts),
    "enum": ("has_enum", lambda values: isinstance(values, list) and bool(values)),
    "additionalProperties": ("forbids_unknown", lambda value: value is False),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "not"), ("has_junctors", bool)),
}
"""The keywords and the attributes that they set."""
