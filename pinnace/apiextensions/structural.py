"""The rules for structural schemas: a type for each field, and value validations (allOf, anyOf, oneOf, not) that only restrict
values of fields that are declared outside of them.

Source: k8s.io/apiextensions-apiserver/pkg/apiserver/schema (convert.go, validation.go, complete.go) of Kubernetes 1.36.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from pinnace.api.status import Violation
from pinnace.apiextensions.patterns import PatternBudget
from pinnace.apiextensions.schema import mapping, objects, text
from pinnace.apiextensions.validation import MAX_VIOLATIONS
from pinnace.apiextensions.violations import forbidden, invalid, required

Props = Mapping[str, Any]

_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_UNSUPPORTED = frozenset({"id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"})
_SCHEMAS = frozenset({"items", "not", "additionalProperties", "additionalItems", "allOf", "anyOf", "oneOf"})
"""Keywords with schemas, or lists of schemas."""
_VALUE_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "not", "pattern"})
_MAPS_OF_SCHEMAS = frozenset({"properties", "patternProperties", "definitions", "dependencies"})
_UNSUPPORTED_NAMES = {"$schema": "schema"}
_METADATA_FIELDS = frozenset({"type", "default", "properties"})
_METADATA_PROPERTIES = frozenset({"name", "generateName"})
_EMPTY, _UNDEFINED, _FALSE = (f"must be {value} to be structural" for value in ("empty", "undefined", "false"))
_OUTSIDE_ONLY = {
    "type": _EMPTY,
    "additionalProperties": _UNDEFINED,
    "default": _UNDEFINED,
    "title": _EMPTY,
    "description": _EMPTY,
    "nullable": _FALSE,
    "x-kubernetes-preserve-unknown-fields": _FALSE,
    "x-kubernetes-embedded-resource": _FALSE,
    "x-kubernetes-int-or-string": _FALSE,
    "x-kubernetes-list-map-keys": _EMPTY,
    "x-kubernetes-list-type": _UNDEFINED,
    "x-kubernetes-map-type": _UNDEFINED,
    "x-kubernetes-validations": _EMPTY,
}
"""What value validations must not have."""


class _Level(Enum):
    """`value`: where the node is, in the words of the message about a missing type."""

    ROOT = "at the root"
    ITEM = "for specified array items"
    FIELD = "for specified object fields"


class NotConvertible(ValueError):
    """The schema has keywords that structural schemas do not have. The message is Kubernetes'."""


def check_convertible(props: Props) -> set[str]:
    """Return the keywords that occur in a schema. Raise NotConvertible."""
    keywords = set[str]()
    waiting: list[Any] = [props]
    while waiting:
        node = waiting.pop()
        keywords.update(node)
        if not _UNSUPPORTED.isdisjoint(node):
            name = next(name for name in node if name in _UNSUPPORTED)
            raise NotConvertible(f"OpenAPIV3Schema '{_UNSUPPORTED_NAMES.get(name, name)}' is not supported")
        if node.get("x-kubernetes-preserve-unknown-fields") is False:
            message = "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
            raise NotConvertible(message)
        if isinstance(node.get("items"), list) and node["items"]:
            raise NotConvertible("OpenAPIV3Schema 'items' must be a schema, but is an array")
        waiting.extend(inner_schemas(node))
    return keywords


def inner_schemas(node: Props) -> list[Props]:
    """Return the schemas directly below a node, in all keywords."""
    result = list[Props]()
    for name, value in node.items():
        if name in _SCHEMAS:
            result += [value] if isinstance(value, dict) else objects(value)
        elif name in _MAPS_OF_SCHEMAS:
            result += [props for props in mapping(value).values() if isinstance(props, dict)]
    return result


def validate_structural(props: Props, path: str, budget: PatternBudget | None = None) -> list[Violation]:
    """Return where a convertible schema is not structural, sorted by text. `budget`: the work for regular expressions,
    which are not checked if it is None."""
    checker = _Checker(budget)
    checker.check_node(props, _Level.ROOT, path)
    checker.check_completeness(props, props, path, path)
    return sorted(checker.out, key=str)


class _Checker:
    def __init__(self, budget: PatternBudget | None) -> None:
        self.out = list[Violation]()
        self._budget = budget

    def check_node(self, node: Props, level: _Level, path: str) -> None:
        if len(self.out) >= MAX_VIOLATIONS:
            return
        kind = text(node.get("type"))
        items, properties = node.get("items"), mapping(node.get("properties"))
        if kind == "array" and items is None:
            self.out.append(required(f"{path}.items", "must be specified"))
        if isinstance(items, dict):
            self.check_node(items, _Level.ITEM, f"{path}.items")
        for name, child in properties.items():
            self.check_node(mapping(child), _Level.FIELD, f"{path}.properties[{name}]")
        if "additionalProperties" in node:
            self._check_additional(node, level, f"{path}.additionalProperties")
        self._check_extensions(node, path)
        if not _VALUE_KEYWORDS.isdisjoint(node):
            self._check_values(node, level, path, outside=True)
        self._check_node_type(node, kind, level, path)
        self._check_meta_properties(node, properties, level, path)

    def _check_additional(self, node: Props, level: _Level, path: str) -> None:
        if level is _Level.ROOT:
            self.out.append(forbidden(path, "must not be used at the root"))
        if isinstance(additional := node["additionalProperties"], dict):
            self.check_node(additional, _Level.FIELD, path)
        if node.get("x-kubernetes-embedded-resource"):
            self.out.append(forbidden(path, "must not be used if x-kubernetes-embedded-resource is set"))

    def _check_extensions(self, node: Props, path: str) -> None:
        if node.get("x-kubernetes-int-or-string"):
            for name in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
                if node.get(name):
                    self.out.append(invalid(f"{path}.{name}", True, "must be false if x-kubernetes-int-or-string is true"))

    def _check_node_type(self, node: Props, kind: str, level: _Level, path: str) -> None:
        embedded = node.get("x-kubernetes-embedded-resource")
        if embedded and kind != "object":
            detail = "must be object if x-kubernetes-embedded-resource is true"
            self.out.append(invalid(f"{path}.type", kind, detail) if kind else required(f"{path}.type", detail))
        elif not (kind or node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")):
            self.out.append(required(f"{path}.type", f"must not be empty {level.value}"))
        if level is _Level.ROOT and kind not in ("", "object"):
            self.out.append(invalid(f"{path}.type", kind, "must be object at the root"))

    def _check_meta_properties(self, node: Props, properties: Props, level: _Level, path: str) -> None:
        embedded = bool(node.get("x-kubernetes-embedded-resource"))
        if level is _Level.ROOT or embedded:
            for name in ("kind", "apiVersion"):
                kind = text(mapping(properties.get(name)).get("type"))
                if name in properties and kind != "string":
                    self.out.append(invalid(f"{path}.properties[{name}].type", kind, "must be string"))
        if "metadata" in properties:
            metadata = mapping(properties["metadata"])
            kind = text(metadata.get("type"))
            if (level is _Level.ROOT or embedded) and kind != "object":
                self.out.append(invalid(f"{path}.properties[metadata].type", kind, "must be object"))
            known = metadata.keys() <= _METADATA_FIELDS and mapping(metadata.get("properties")).keys() <= _METADATA_PROPERTIES
            if level is _Level.ROOT and not known:
                detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
                self.out.append(forbidden(f"{path}.properties[metadata]", detail))
        if embedded and not node.get("x-kubernetes-preserve-unknown-fields") and not properties:
            detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
            self.out.append(required(f"{path}.properties", detail))

    def _check_values(self, node: Props, level: _Level, path: str, *, outside: bool, skip_any_of: bool = False) -> None:
        """Check allOf, anyOf, oneOf, not and pattern. `outside`: the node is not itself in one of them. `skip_any_of`:
        anyOf is the form of int-or-string, which may have types."""
        any_of, all_of = objects(node.get("anyOf")), objects(node.get("allOf"))
        if not skip_any_of and not (outside and any_of == _INT_OR_STRING):
            for index, child in enumerate(any_of):
                self._check_nested(child, level, f"{path}.anyOf[{index}]")
        for index, child in enumerate(all_of):
            skip = outside and index == 0 and child.get("anyOf") == _INT_OR_STRING
            self._check_nested(child, level, f"{path}.allOf[{index}]", skip_any_of=skip)
        for index, child in enumerate(objects(node.get("oneOf"))):
            self._check_nested(child, level, f"{path}.oneOf[{index}]")
        if isinstance(negated := node.get("not"), dict):
            self._check_nested(negated, level, f"{path}.not")
        pattern = text(node.get("pattern"))
        if pattern and self._budget is not None and (problem := self._budget.check(pattern)):
            detail = f"must be a valid regular expression, but isn't: {problem}"
            self.out.append(invalid(f"{path}.pattern", pattern, detail))

    def _check_nested(self, node: Props, level: _Level, path: str, *, skip_any_of: bool = False) -> None:
        if len(self.out) >= MAX_VIOLATIONS:
            return
        self._check_values(node, level, path, outside=False, skip_any_of=skip_any_of)
        if isinstance(items := node.get("items"), dict):
            self._check_nested(items, level, f"{path}.items")
        properties = mapping(node.get("properties"))
        for name, child in properties.items():
            self._check_nested(mapping(child), _Level.FIELD, f"{path}.properties[{name}]")
        for name, detail in _OUTSIDE_ONLY.items() if not _OUTSIDE_ONLY.keys().isdisjoint(node) else ():
            if name in node and (node[name] is not False or name == "default"):
                self.out.append(forbidden(f"{path}.{name}", detail))
        if "metadata" in properties:
            self.out.append(forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context"))

    def check_completeness(self, values: Props, node: Props | None, path: str, values_path: str) -> None:
        """Check that the node declares what value validations restrict. `values`: the node itself, or a validation of it."""
        for keyword in ("not", "allOf", "anyOf", "oneOf"):
            nested = values.get(keyword)
            if isinstance(nested, dict):
                self._check_nested_completeness(nested, node, path, f"{values_path}.{keyword}")
            for index, child in enumerate(objects(nested)):
                self._check_nested_completeness(child, node, path, f"{values_path}.{keyword}[{index}]")

    def _check_nested_completeness(self, values: Props, node: Props | None, path: str, values_path: str) -> None:
        if len(self.out) >= MAX_VIOLATIONS:
            return
        if node is None:
            self.out.append(required(path, f"because it is defined in {values_path}"))
            return
        self.check_completeness(values, node, path, values_path)
        if isinstance(items := values.get("items"), dict):
            declared = node.get("items")
            inner = declared if isinstance(declared, dict) else None
            self._check_nested_completeness(items, inner, f"{path}.items", f"{values_path}.items")
        properties = mapping(node.get("properties"))
        for name, child in mapping(values.get("properties")).items():
            at, nested_at = f"{path}.properties[{name}]", f"{values_path}.properties[{name}]"
            if name in properties:
                self._check_nested_completeness(mapping(child), mapping(properties[name]), at, nested_at)
            else:
                self.out.append(required(at, f"because it is defined in {nested_at}"))
