"""The keywords of a schema that restrict values, compiled for `pinnace.apiextensions.validation`.

An enum is a set of hashed canonical forms, because schemas can have enums of 100,000 values.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pinnace.apiextensions.formats import Check, format_check, is_recognized
from pinnace.apiextensions.patterns import Pattern, PatternError, compile_pattern
from pinnace.apiextensions.schema import StructuralSchema, mapping, objects, text, texts
from pinnace.apiextensions.violations import format_supported, to_json

INT_OR_STRING = ("integer", "string")


class ValueValidation:
    """The restrictions of one node. Keywords with values of wrong types are ignored."""

    def __init__(self, schema: StructuralSchema) -> None:
        props = schema.props
        get = props.get
        self.schema = schema
        self.types: tuple[str, ...] = INT_OR_STRING if schema.int_or_string else ((schema.type,) if schema.type else ())
        sole_type = self.types[0] if len(self.types) == 1 else ""
        name = text(get("format"))
        self.format = name if name and is_recognized(name, sole_type) else ""
        """The name of a format that is checked; "" for none."""
        self.string_format: Check | None = format_check(self.format) if self.format else None
        self.number_type = sole_type if sole_type in ("integer", "number") else ""
        self.has_number = any(kind in ("integer", "number") for kind in self.types)
        self.maximum, self.minimum, self.multiple_of = map(_number, map(get, ("maximum", "minimum", "multipleOf")))
        self.exclusive_maximum = get("exclusiveMaximum") is True
        self.exclusive_minimum = get("exclusiveMinimum") is True
        self.restricts_numbers = self.maximum is not None or self.minimum is not None or self.multiple_of is not None
        self.max_length, self.min_length = _integer(get("maxLength")), _integer(get("minLength"))
        self.max_items, self.min_items = _integer(get("maxItems")), _integer(get("minItems"))
        self.max_properties, self.min_properties = _integer(get("maxProperties")), _integer(get("minProperties"))
        self.pattern = text(get("pattern"))
        self.has_enum = isinstance(get("enum"), list) and bool(get("enum"))
        self.required = texts(get("required"))
        self.has_junctors = any(get(name) for name in ("allOf", "anyOf", "oneOf", "not"))
        self.forbids_unknown = get("additionalProperties") is False

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
        return self._nested("allOf")

    @cached_property
    def any_of(self) -> Sequence[StructuralSchema]:
        return self._nested("anyOf")

    @cached_property
    def one_of(self) -> Sequence[StructuralSchema]:
        return self._nested("oneOf")

    @cached_property
    def negated(self) -> StructuralSchema | None:
        """The schema of `not`."""
        props = self.schema.props.get("not")
        return StructuralSchema(props) if isinstance(props, Mapping) else None

    def _nested(self, keyword: str) -> Sequence[StructuralSchema]:
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


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
