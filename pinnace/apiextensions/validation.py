"""Validation of custom objects against their schema, with Kubernetes' messages.

Errors that an update does not introduce are tolerated (ratcheting): a value that equals the old value may be invalid. Items
of lists of type map are compared with the old item of the same keys; items of other lists are not compared.

The work for an object is bounded: see MAX_NESTED_STEPS and MAX_PATTERN_WORK. Errors beyond MAX_VIOLATIONS are not reported.

Source: k8s.io/apiextensions-apiserver/pkg/apiserver/validation, k8s.io/kube-openapi/pkg/validation/validate and
k8s.io/apiextensions-apiserver/pkg/registry/customresource of Kubernetes 1.36.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from pinnace.api.patch import json_equal
from pinnace.api.scalars import MAX_INT32
from pinnace.api.status import TYPE_INVALID, Violation
from pinnace.apiextensions.metadata import validate_embedded
from pinnace.apiextensions.schema import ABSENT, StructuralSchema
from pinnace.apiextensions.subresources import LABEL_SELECTOR, SPEC_REPLICAS, STATUS_REPLICAS, validate_scale
from pinnace.apiextensions.value_validation import ValueValidation, canonical_form
from pinnace.apiextensions.violations import (
    NO_FIELD,
    duplicate,
    format_scalar,
    format_value,
    invalid,
    quote,
    required,
    too_long,
    too_many,
    type_invalid,
)

RuleEvaluation = Callable[[StructuralSchema, Any, Any, str], Sequence[Violation]]
"""Evaluates the rules (x-kubernetes-validations) of a schema: schema, new value, old value or None, path of the value. The path
is "" for a whole object, and not empty for a default of a field."""

MAX_VIOLATIONS = 1_000
MAX_NESTED_STEPS = 20_000
"""Maximum number of values that allOf, anyOf, oneOf and not compare with their schemas, for one object. Their number can be the
product of the sizes of schema and object. Kubernetes has no maximum."""
MAX_PATTERN_WORK = 50_000_000
"""Maximum sum of length times cost of the expression, for all texts that one object compares with regular expressions: at most
about 200 ms."""
_TOO_EXPENSIVE = "the validation of the object takes too many steps"
_TOO_DEEP = "nested too deeply"
_UNCHECKED_RULES = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
)
_BLOCKING = ("Unsupported value", "Required value", "Too long", "Too many")
_MAX_SAFE_INTEGER = (1 << 53) - 1
_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1
_MAX_FLOAT32 = 3.4028235677973366e38
"""The first value that Go rounds to infinity."""


class _TooExpensive(Exception):
    """The validation of the object takes more steps than an object may."""


class ValidationBudget:
    """The work that remains for one object, or for all defaults of a schema."""

    def __init__(self) -> None:
        self._steps = MAX_NESTED_STEPS
        self._work = MAX_PATTERN_WORK

    def take_steps(self, number: int) -> None:
        self._steps -= number
        if self._steps < 0:
            raise _TooExpensive

    def take_pattern_work(self, work: int) -> None:
        self._work -= work
        if self._work < 0:
            raise _TooExpensive


class _Result:
    """`errors` has the violations in order; equal ones once. `matched` counts the restrictions that were checked: Kubernetes
    reports the errors of the alternative (anyOf, oneOf) with most of them. `differs`: the old value is known to be another."""

    __slots__ = ("differs", "errors", "matched")

    def __init__(self) -> None:
        self.errors: dict[Violation, None] = {}
        self.matched = 0
        self.differs = False

    def merge(self, other: "_Result") -> None:
        if other.errors:
            self.errors.update(other.errors)
        self.matched += other.matched

    def add(self, violation: Violation) -> None:
        self.errors[violation] = None


def validate_value(
    value: Any, schema: StructuralSchema, old: Any = ABSENT, *, path: str = "", budget: ValidationBudget | None = None
) -> list[Violation]:
    """Return the violations of a value by its schema alone. `old`: the value before an update, for ratcheting. `budget`:
    shared with other values."""
    try:
        return list(_Validator(path, budget or ValidationBudget()).validate(value, schema, "", old, schema).errors)[
            :MAX_VIOLATIONS
        ]
    except _TooExpensive:
        return [invalid(path, "", _TOO_EXPENSIVE)]
    except RecursionError:
        return [invalid(path, "", _TOO_DEEP)]


class _Validator:
    """Validates one object. `prefix`: the path of the value in violations, but not in their texts."""

    def __init__(self, prefix: str, budget: ValidationBudget) -> None:
        self._prefix = prefix
        self._budget = budget
        self._nesting = 0
        self._items: dict[int, Mapping[Any, Any]] = {}
        """The items of old lists of type map, by their keys; by the id of the list."""
        self._forms: dict[int, tuple[Any, str]] = {}
        """The canonical forms of objects and lists, and their texts in messages, by id."""

    def validate(
        self, value: Any, schema: StructuralSchema, path: str, old: Any, structural: StructuralSchema | None
    ) -> _Result:
        """`structural`: the schema that says how the parts of value and old correspond; None: they do not."""
        result = self._check(value, schema, path, old, structural)
        if result.errors and old is not ABSENT and structural is not None and not result.differs:
            if self._is_unchanged(value, old, structural):
                result.errors.clear()
            else:
                result.differs = True
        return result

    def _is_unchanged(self, value: Any, old: Any, schema: StructuralSchema) -> bool:
        """Return whether a value equals its old value. Items of lists of type map may have another order. Objects with fields
        that the schema does not declare are changed, as in Kubernetes."""
        if isinstance(value, dict) and isinstance(old, dict):
            return len(value) == len(old) and all(
                name in old and (inner := schema.child(name)) is not None and self._is_unchanged(child, old[name], inner)
                for name, child in value.items()
            )
        if isinstance(value, list) and isinstance(old, list) and schema.list_type == "map" and schema.items is not None:
            items = schema.items
            return len(value) == len(old) and all(
                (before := self._find_old_item(item, old, schema)) is not ABSENT and self._is_unchanged(item, before, items)
                for item in value
            )
        return json_equal(value, old)

    def _check(self, value: Any, schema: StructuralSchema, path: str, old: Any, structural: StructuralSchema | None) -> _Result:
        rules = schema.validation
        if rules is None:
            rules = schema.validation = ValueValidation(schema)
        result = _Result()
        if self._nesting:
            self._budget.take_steps(1)
        if value is None:
            self._check_null(rules, path, result)
            return result
        result.matched = 4
        kind = type(value)
        if kind in rules.python_types:
            result.matched += 2
        elif rules.types or rules.format:
            result.matched += 1
            self._check_type(value, rules, path, result)
        if rules.has_junctors:
            self._check_junctors(value, rules, path, old, structural, result)
        if kind is str:
            result.matched += 1 + (rules.string_format is not None)
            self._check_string(value, rules, path, result)
        elif kind is int or kind is float:
            result.matched += 2
            if rules.restricts_numbers or rules.number_type:
                self._check_number(value, rules, path, result)
        elif kind is list:
            result.matched += 2
            self._check_list(value, rules, path, old, structural, result)
        if rules.has_enum and self._canonical_form(value) not in rules.enum:
            self._add_unsupported(value, rules, path, result)
        if kind is dict:
            result.matched += 1
            self._check_object(value, rules, path, old, structural, result)
        return result

    def _canonical_form(self, value: Any) -> Any:
        """Many alternatives can compare the same large value with their enums."""
        if not isinstance(value, dict | list):
            return canonical_form(value)
        if id(value) not in self._forms:
            self._forms[id(value)] = canonical_form(value), format_value(value)
        return self._forms[id(value)][0]

    def _format_value(self, value: Any) -> str:
        return self._forms[id(value)][1] if isinstance(value, dict | list) else format_value(value)

    def _full_path(self, path: str) -> str:
        name = path.removeprefix(".")
        return f"{self._prefix}.{name}" if self._prefix and name else self._prefix or name

    def _add_invalid(self, result: _Result, path: str, value: Any, detail: str) -> None:
        result.add(invalid(self._full_path(path), value, f"{path} in body {detail}"))

    def _add_other(self, result: _Result, detail: str) -> None:
        """Add an error for which Kubernetes gives no field: that of the whole object."""
        result.add(invalid(self._prefix, "", detail))

    def _add_type(self, result: _Result, path: str, expected: str, actual: str) -> None:
        detail = f"{path} in body must be of type {expected}: {quote(actual)}"
        result.add(type_invalid(self._full_path(path), actual, detail))

    def _add_unsupported(self, value: Any, rules: ValueValidation, path: str, result: _Result) -> None:
        message = f"Unsupported value: {self._format_value(value)}: {rules.enum_text}"
        if self._nesting:
            self._budget.take_steps(len(message) // 200)
        result.add(Violation(self._full_path(path) or NO_FIELD, message))

    def _check_null(self, rules: ValueValidation, path: str, result: _Result) -> None:
        if rules.types and not rules.schema.nullable:
            self._add_type(result, path, ",".join(rules.types), "null")
        else:
            result.matched = 1
        if rules.has_enum:
            self._add_unsupported(None, rules, path, result)

    def _check_type(self, value: Any, rules: ValueValidation, path: str, result: _Result) -> None:
        actual, actual_format = _type_of(value)
        expected = rules.types
        fits = (
            actual in expected
            or (actual == "number" and "integer" in expected and _is_integral(value))
            or (actual == "integer" and "number" in expected)
        )
        is_text = actual in ("string", "array")
        if rules.format and not is_text and not fits and actual_format != rules.format:
            self._add_type(result, path, rules.format, actual_format)
        elif fits or (rules.format and is_text and not rules.has_number):
            result.matched += 1
        else:
            self._add_type(result, path, ",".join(expected), actual)

    def _check_string(self, value: str, rules: ValueValidation, path: str, result: _Result) -> None:
        """Only the first problem of length and pattern is reported, as in Kubernetes."""
        if rules.max_length is not None and len(value) > rules.max_length:
            result.add(too_long(self._full_path(path), rules.max_length))
        elif rules.min_length is not None and len(value) < rules.min_length:
            self._add_invalid(result, path, value, f"should be at least {rules.min_length} chars long")
        elif rules.pattern:
            self._check_pattern(value, rules, path, result)
        if rules.string_format is not None:
            if self._nesting:
                self._budget.take_steps(len(value) // 100)
            if not rules.string_format(value):
                self._add_type(result, path, rules.format, value)

    def _check_pattern(self, value: str, rules: ValueValidation, path: str, result: _Result) -> None:
        pattern = rules.compiled_pattern
        if isinstance(pattern, str):
            self._add_invalid(result, path, value, f"should match '{rules.pattern}, but pattern is invalid: {pattern}'")
            return
        self._budget.take_pattern_work(len(value) * pattern.cost)
        if not pattern.matches(value):
            self._add_invalid(result, path, value, f"should match '{rules.pattern}'")

    def _check_number(self, value: int | float, rules: ValueValidation, path: str, result: _Result) -> None:
        self._check_range(value, rules, "Checked", path, result)
        if (factor := rules.multiple_of) is not None:
            in_range = self._check_range(factor, rules, "MultipleOf", path, result)
            factor = int(factor) if in_range and isinstance(value, int) else float(factor)
            if factor <= 0:
                detail = f"factor MultipleOf declared for {path} must be positive: {format_scalar(factor)}"
                result.add(invalid(self._full_path(path), factor, detail))
            elif not _is_multiple(value, factor):
                self._add_invalid(result, path, value, f"should be a multiple of {format_scalar(factor)}")
        for limit, name, words in (
            (rules.maximum, "Maximum boundary", "less than" if rules.exclusive_maximum else "less than or equal to"),
            (rules.minimum, "Minimum boundary", "greater than" if rules.exclusive_minimum else "greater than or equal to"),
        ):
            if limit is None:
                continue
            in_range = self._check_range(limit, rules, name, path, result)
            limit = _clamp_to_int64(limit) if in_range and isinstance(value, int) else float(limit)
            if name.startswith("Max"):
                fits = value < limit or (value == limit and not rules.exclusive_maximum)
            else:
                fits = value > limit or (value == limit and not rules.exclusive_minimum)
            if not fits:
                self._add_invalid(result, path, value, f"should be {words} {format_scalar(limit)}")

    def _check_range(self, value: int | float, rules: ValueValidation, what: str, path: str, result: _Result) -> bool:
        """Check that a number of the object or of the schema fits into the type and format of the schema."""
        if rules.number_type == "integer":
            limit = MAX_INT32 if rules.format == "int32" else _MAX_INT64
            if -limit - 1 <= value <= limit and (isinstance(value, int) or value.is_integer()):
                return True
        elif rules.format != "float" or abs(value) < _MAX_FLOAT32:
            return True
        shown = f"with format {rules.format}" if rules.format else "(default format)"
        self._add_other(result, f"{what} value must be of type {rules.number_type} {shown} in {path}")
        return False

    def _check_list(
        self,
        value: list[Any],
        rules: ValueValidation,
        path: str,
        old: Any,
        structural: StructuralSchema | None,
        result: _Result,
    ) -> None:
        if (items := rules.schema.items) is not None:
            inner = structural.items if structural is not None else None
            for index, item in enumerate(value):
                before = self._find_old_item(item, old, structural)
                child = self.validate(item, items, f"{path}[{index}]", before, inner)
                result.merge(child)
                result.differs = result.differs or child.differs
                if len(result.errors) > MAX_VIOLATIONS:
                    return
        if rules.min_items is not None and len(value) < rules.min_items:
            self._add_invalid(result, path, len(value), f"should have at least {rules.min_items} items")
        if rules.max_items is not None and len(value) > rules.max_items:
            result.add(too_many(self._full_path(path), len(value), rules.max_items))

    def _find_old_item(self, item: Any, old: Any, structural: StructuralSchema | None) -> Any:
        if structural is None or structural.list_type != "map" or not isinstance(old, list) or not isinstance(item, dict):
            return ABSENT
        items = self._items.get(id(old))
        if items is None:
            items = {list_map_key(entry, structural): entry for entry in old if isinstance(entry, dict)}
            self._items[id(old)] = items
        return items.get(list_map_key(item, structural), ABSENT)

    def _check_object(
        self,
        value: dict[str, Any],
        rules: ValueValidation,
        path: str,
        old: Any,
        structural: StructuralSchema | None,
        result: _Result,
    ) -> None:
        schema = rules.schema
        if rules.min_properties is not None and len(value) < rules.min_properties:
            self._add_invalid(result, path, len(value), f"should have at least {rules.min_properties} properties")
        if rules.max_properties is not None and len(value) > rules.max_properties:
            result.add(too_many(self._full_path(path), len(value), rules.max_properties))
        correlated = old if isinstance(old, dict) else None
        names: Iterable[str] = value
        if schema.values is None and not rules.forbids_unknown and len(schema.property_names) < len(value):
            names = [name for name in schema.property_names if name in value]
        for name in names:
            child_value = value[name]
            child = schema.property_schema(name)
            if child is not None:
                child_path = f"{path}.{name}" if path else name
            elif schema.values is not None:
                child, child_path = schema.values, f"{path}.{name}"
            else:
                if rules.forbids_unknown:
                    result.add(invalid(self._full_path(path), name, f"{path}.{name} in body is a forbidden property"))
                continue
            inner = structural.child(name) if structural is not None else None
            before = correlated.get(name, ABSENT) if correlated is not None and inner is not None else ABSENT
            child_result = self.validate(child_value, child, child_path, before, inner)
            result.merge(child_result)
            result.differs = result.differs or child_result.differs
            if len(result.errors) > MAX_VIOLATIONS:
                return
        if rules.required:
            if self._nesting:
                self._budget.take_steps(len(rules.required) // 10)
            if not rules.required_names <= value.keys():
                missing = (name for name in rules.required if name not in value)
                for name in islice(missing, MAX_VIOLATIONS):
                    result.add(required(self._full_path(f"{path}.{name}")))

    def _check_junctors(
        self, value: Any, rules: ValueValidation, path: str, old: Any, structural: StructuralSchema | None, result: _Result
    ) -> None:
        self._nesting += 1
        if rules.any_of:
            self._check_any_of(value, rules, path, old, structural, result)
        if rules.one_of:
            self._check_one_of(value, rules, path, old, structural, result)
        if rules.all_of:
            valid = 0
            for schema in rules.all_of:
                alternative = self._check(value, schema, path, old, structural)
                valid += not alternative.errors
                result.merge(alternative)
            if valid < len(rules.all_of):
                none = "" if valid else ". None validated"
                self._add_other(result, f"{quote(path)} must validate all the schemas (allOf){none}")
        if rules.negated is not None and not self._check(value, rules.negated, path, old, structural).errors:
            self._add_other(result, f"{quote(path)} must not validate the schema (not)")
        self._nesting -= 1

    def _check_any_of(
        self, value: Any, rules: ValueValidation, path: str, old: Any, structural: StructuralSchema | None, result: _Result
    ) -> None:
        best: _Result | None = None
        for schema in rules.any_of:
            alternative = self._check(value, schema, path, old, structural)
            if not alternative.errors:
                result.merge(alternative)
                return
            if best is None or alternative.matched > best.matched:
                best = alternative
        self._add_other(result, f"{quote(path)} must validate at least one schema (anyOf)")
        if best is not None:
            result.merge(best)

    def _check_one_of(
        self, value: Any, rules: ValueValidation, path: str, old: Any, structural: StructuralSchema | None, result: _Result
    ) -> None:
        best: _Result | None = None
        valid = list[_Result]()
        for schema in rules.one_of:
            alternative = self._check(value, schema, path, old, structural)
            if not alternative.errors:
                valid.append(alternative)
            elif best is None or alternative.matched > best.matched:
                best = alternative
        if len(valid) == 1:
            result.merge(valid[0])
            return
        found = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
        self._add_other(result, f"{quote(path)} must validate one and only one schema (oneOf). {found}")
        if best is not None and not valid:
            result.merge(best)


def _type_of(value: Any) -> tuple[str, str]:
    """Return the type of a value, and the format that Kubernetes gives it."""
    match value:
        case bool():
            return "boolean", ""
        case str():
            return "string", ""
        case int():
            return "integer", "int64"
        case float():
            return "number", "float64"
    return ("array", "") if isinstance(value, list) else ("object", "")


def _is_integral(value: float) -> bool:
    return abs(value) <= _MAX_SAFE_INTEGER and value.is_integer()


def _is_multiple(value: int | float, factor: int | float) -> bool:
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    quotient = 1 / factor * value if factor < 1 else value / factor
    nearest = round(quotient) if abs(quotient) <= _MAX_SAFE_INTEGER else None
    return nearest is not None and abs(quotient - nearest) <= 1e-9 * (abs(quotient) + abs(nearest))


def _clamp_to_int64(value: int | float) -> int:
    return max(_MIN_INT64, min(_MAX_INT64, int(value)))


def list_map_key(item: Mapping[str, Any], schema: StructuralSchema) -> tuple[Any, ...]:
    """Return a hashable value that identifies an item of a list of type map. Absent keys have a value of their own."""
    return tuple(canonical_form(item[key]) if key in item else ABSENT for key in schema.list_map_keys)


def validate_list_types(value: Any, schema: StructuralSchema, *, path: str = "") -> list[Violation]:
    """Return the duplicates in lists of type set and map, at any depth."""
    out = list[Violation]()
    try:
        _validate_list_types(value, schema, path, out)
    except RecursionError:
        return [invalid(path, "", _TOO_DEEP)]
    return out


def _validate_list_types(value: Any, schema: StructuralSchema | None, path: str, out: list[Violation]) -> None:
    if schema is None or len(out) >= MAX_VIOLATIONS:
        return
    if isinstance(value, dict):
        for name, child in value.items():
            if isinstance(child, dict | list):
                if (inner := schema.property_schema(name)) is not None:
                    _validate_list_types(child, inner, f"{path}.{name}" if path else name, out)
                elif schema.values is not None:
                    _validate_list_types(child, schema.values, f"{path}[{name}]", out)
    elif isinstance(value, list):
        if schema.list_type == "set":
            kinds = set(map(type, value))
            keys = value if len(kinds) == 1 and kinds <= {str, int} else map(canonical_form, value)
            _add_duplicates(keys, value, path, out)
        elif schema.list_type == "map":
            _validate_list_map(value, schema, path, out)
        if schema.items is not None:
            for index, item in enumerate(value):
                if isinstance(item, dict | list):
                    _validate_list_types(item, schema.items, f"{path}[{index}]", out)


def _validate_list_map(value: list[Any], schema: StructuralSchema, path: str, out: list[Violation]) -> None:
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            out.append(invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map"))
            return
    shown = [{key: item[key] for key in schema.list_map_keys if key in item} if item else {} for item in value]
    _add_duplicates((list_map_key(item or {}, schema) for item in value), shown, path, out)


def _add_duplicates(keys: Iterable[Any], shown: Sequence[Any], path: str, out: list[Violation]) -> None:
    """Report the second item of each key."""
    keys = list(keys)
    if len(frozenset(keys)) == len(keys):
        return
    counts = dict[Any, int]()
    for index, key in enumerate(keys):
        counts[key] = counts.get(key, 0) + 1
        if counts[key] == 2 and len(out) < MAX_VIOLATIONS:
            out.append(duplicate(f"{path}[{index}]", shown[index]))


def validate_object(
    obj: dict[str, Any],
    schema: StructuralSchema,
    old: dict[str, Any] | None = None,
    *,
    scale: Mapping[str, Any] | None = None,
    evaluate_rules: RuleEvaluation | None = None,
    status: bool = False,
) -> list[Violation]:
    """Return the violations of a whole custom object, except in its own metadata, apiVersion and kind.

    In this order: the schema, the paths of the scale subresource, embedded metadata, list types, and the rules. Rules are not
    evaluated if an error makes them meaningless (a wrong type, a missing field, a limit of size, an unknown value of an enum);
    a violation says so. `status`: the write is one of the status subresource; only the status is compared with the schema.
    `scale`: subresources.scale of the version. `evaluate_rules` is called if the schema has rules: pass None otherwise.
    """
    out = list[Violation]()
    if not status:
        out += validate_value(obj, schema, ABSENT if old is None else old)
        out += validate_scale(obj, scale, (SPEC_REPLICAS, STATUS_REPLICAS, LABEL_SELECTOR))
    else:
        status_schema = schema.property_schema("status")
        if "status" in obj and status_schema is not None:
            before = ABSENT if old is None else old.get("status")
            out += validate_value(obj["status"], status_schema, before, path="status")
        out += validate_scale(obj, scale, (STATUS_REPLICAS, LABEL_SELECTOR))
    if not status:
        out += validate_embedded(obj, schema)
    duplicates = validate_list_types(obj, schema)
    if duplicates and (old is None or not validate_list_types(old, schema)):
        out += duplicates
    if evaluate_rules is not None:
        if any(map(blocks_rules, out)):
            out.append(Violation(NO_FIELD, f"Invalid value: null: {_UNCHECKED_RULES}"))
        else:
            out += evaluate_rules(schema, obj, old, "")
    return out[:MAX_VIOLATIONS]


def blocks_rules(violation: Violation) -> bool:
    """Return whether a violation makes the evaluation of rules meaningless."""
    return violation.reason == TYPE_INVALID or violation.message.startswith(_BLOCKING)
