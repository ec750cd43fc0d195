"""The rules for the openAPIV3Schema of a definition: supported keywords, list and map types, rules in CEL, and defaults.

Rules are compiled, and their cost is estimated, by functions that are passed in (`RuleCheck`, `RuleEvaluation`).

Source: k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go and
k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting/validation.go of Kubernetes 1.36.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pinnace.api.status import Violation
from pinnace.apiextensions.defaulting import copy_json
from pinnace.apiextensions.field_paths import FieldPathError, find_field
from pinnace.apiextensions.metadata import coerce_metadata, validate_embedded
from pinnace.apiextensions.patterns import PatternBudget
from pinnace.apiextensions.pruning import META_FIELDS, prune
from pinnace.apiextensions.schema import StructuralSchema, mapping, objects, text, texts
from pinnace.apiextensions.schema_types import GO_NAMES, go_schema
from pinnace.apiextensions.structural import NotConvertible, Props, check_convertible, inner_schemas, validate_structural
from pinnace.apiextensions.validation import MAX_VIOLATIONS, RuleEvaluation, ValidationBudget, validate_value
from pinnace.apiextensions.violations import forbidden, invalid, required, unsupported

RuleCheck = Callable[[Mapping[str, Any], str], Sequence[Violation]]
"""Compiles the rules of a whole openAPIV3Schema and estimates their cost: schema, and its path
("spec.validation.openAPIV3Schema")."""

TYPES = ("array", "boolean", "integer", "number", "object", "string")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_LIST_TYPE, _MAP_TYPE, _MAP_KEYS = "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-list-map-keys"
_TOPOLOGY = frozenset({_LIST_TYPE, _MAP_TYPE, _MAP_KEYS})
_RULES, _PRESERVE, _EMBEDDED = (
    "x-kubernetes-validations",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
)
_LIST_TYPES, _MAP_TYPES = ("atomic", "set", "map"), ("atomic", "granular")
_NESTED = frozenset({"not", "allOf", "oneOf", "anyOf", "items", "definitions", "dependencies"})
_UNSUPPORTED = frozenset({"id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"})
_ROOT_FIELDS = (
    "Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum", "MaxLength",
    "MinLength", "Pattern", "MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items", "Properties",
    "ExternalDocs", "Example", "XPreserveUnknownFields", "XValidations",
)  # fmt: skip
"""What the root of a schema may have if the definition has a status subresource."""
_DEFAULT_OBJECT_META = {"apiVersion": "validation/v1", "kind": "Validation"}


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """What an update may leave as it is, because the old definition has it."""

    require_types: bool = True
    require_structural: bool = True
    require_pruned_defaults: bool = True
    require_atomic_sets: bool = True
    require_map_keys: bool = True


def validate_schema(
    props: Props,
    path: str,
    *,
    status: bool,
    options: SchemaOptions,
    check_rules: RuleCheck | None = None,
    evaluate_rules: RuleEvaluation | None = None,
) -> list[Violation]:
    """Return the violations of an openAPIV3Schema. `path`: of the schema. `status`: the definition has a status
    subresource."""
    out = list(_check_root(props, path)) if status else []
    if props.get("nullable"):
        out.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    unconvertible, structural, keywords = "", False, set[str]()
    if options.require_structural:
        violations = list[Violation]()
        try:
            keywords = check_convertible(props)
            violations = validate_structural(props, path, PatternBudget())
            if not violations and "default" in keywords:
                violations = validate_defaults(props, path, evaluate_rules, require_pruned=options.require_pruned_defaults)
            structural = not violations
        except NotConvertible as error:
            unconvertible = str(error)
        out += violations
    checker = _SchemaChecker(options)
    checker.check(props, path, _Place(is_root=True))
    out += checker.out
    if unconvertible and not out:
        out.append(invalid(path, "", unconvertible))
    if structural and not checker.out and check_rules is not None and _RULES in keywords:
        out += check_rules(props, path)
    return out


def _check_root(props: Props, path: str) -> Iterator[Violation]:
    """Only keywords that are not lost if the schema of the status is used alone may stand at the root."""
    for name, go_name in GO_NAMES.items():
        if name not in props:
            continue
        if name == "type":
            if props[name] != "object":
                detail = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
                yield invalid(f"{path}.type", props[name], detail)
                return
        elif go_name not in _ROOT_FIELDS:
            allowed = f"[{' '.join(_ROOT_FIELDS)}] fields are allowed at the root of the schema"
            yield invalid(path, go_schema(props), f"only {allowed} if the status subresource is enabled")
            return


def walk_schemas(props: Props) -> Iterator[Props]:
    """Return a schema and all schemas in it."""
    waiting: list[Any] = [props]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(inner_schemas(node))


def has_rules(props: Props) -> bool:
    return any(node.get(_RULES) for node in walk_schemas(props))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node is. `in_meta`: in metadata, apiVersion or kind. `no_default`: why it must not have a default; "" if
    it may."""

    is_root: bool = False
    in_meta: bool = False
    no_default: str = ""


class _SchemaChecker:
    def __init__(self, options: SchemaOptions) -> None:
        self.out = list[Violation]()
        self._options = options

    def check(self, node: Props, path: str, place: _Place) -> None:
        if len(self.out) >= MAX_VIOLATIONS:
            return
        self._check_keywords(node, path, place)
        if node.get("uniqueItems"):
            detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            self.out.append(forbidden(f"{path}.uniqueItems", detail))
        self._check_children(node, path, place)
        if node.get(_PRESERVE) is False:
            self.out.append(invalid(f"{path}.{_PRESERVE}", False, "must be true or undefined"))
        if not _TOPOLOGY.isdisjoint(node):
            self._check_topology(node, path)
        for index, rule in enumerate(objects(node.get(_RULES))):
            self._check_rule(rule, node, f"{path}.{_RULES}[{index}]")

    def _check_keywords(self, node: Props, path: str, place: _Place) -> None:
        kind = text(node.get("type"))
        if kind and kind not in TYPES and self._options.require_types:
            self.out.append(unsupported(f"{path}.type", kind, TYPES))
        if "default" in node and place.no_default:
            self.out.append(forbidden(f"{path}.default", f"must not be set {place.no_default}"))
        for name in sorted(_UNSUPPORTED.intersection(node)):
            self.out.append(forbidden(f"{path}.{name}", f"{name} is not supported"))
        if kind == "null":
            self.out.append(forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative"))
        if isinstance(node.get("items"), list) and node["items"]:
            self.out.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
        if place.in_meta and node.get(_EMBEDDED):
            self.out.append(forbidden(f"{path}.{_EMBEDDED}", "must not be used inside of resource meta"))

    def _check_children(self, node: Props, path: str, place: _Place) -> None:
        is_root = place.is_root
        place = replace(place, is_root=False) if is_root else place
        properties, additional = mapping(node.get("properties")), node.get("additionalProperties")
        if additional is not None:
            if properties and additional is not True:
                detail = "additionalProperties and properties are mutual exclusive"
                self.out.append(forbidden(f"{path}.additionalProperties", detail))
            if isinstance(additional, dict):
                reason = "inside additionalProperties applying to object metadata"
                inner = replace(place, no_default=reason) if place.in_meta else place
                self.check(additional, f"{path}.additionalProperties", inner)
        for name, child in properties.items():
            inner = place
            if (is_root or node.get(_EMBEDDED)) and name in META_FIELDS:
                inner = replace(place, in_meta=True, no_default=f"in top-level {name}" if is_root else place.no_default)
            self.check(mapping(child), f"{path}.properties[{name}]", inner)
        if not _NESTED.isdisjoint(node):
            self._check_nested(node, path, place)

    def _check_nested(self, node: Props, path: str, place: _Place) -> None:
        if isinstance(negated := node.get("not"), dict):
            self.check(negated, f"{path}.not", place)
        for name in ("allOf", "oneOf", "anyOf", "items"):
            for index, child in enumerate(objects(node.get(name))):
                self.check(child, f"{path}.{name}[{index}]", place)
        for name in ("definitions", "dependencies"):
            for key, child in mapping(node.get(name)).items():
                if isinstance(child, dict):
                    self.check(child, f"{path}.{name}[{key}]", place)
        if isinstance(items := node.get("items"), dict):
            self.check(items, f"{path}.items", place)

    def _check_topology(self, node: Props, path: str) -> None:
        kind = text(node.get("type"))
        map_type, list_type = node.get(_MAP_TYPE), node.get(_LIST_TYPE)
        if map_type is not None and kind != "object":
            self._add_wrong_type(f"{path}.type", kind, f"must be object if {_MAP_TYPE} is specified")
        if map_type is not None and map_type not in _MAP_TYPES:
            self.out.append(unsupported(f"{path}.{_MAP_TYPE}", map_type, _MAP_TYPES))
        if list_type is not None and kind != "array":
            self._add_wrong_type(f"{path}.type", kind, f"must be array if {_LIST_TYPE} is specified")
        elif self._options.require_atomic_sets and (name := find_non_atomic_set(node)):
            value = mapping(node.get("items")).get(_LIST_TYPE)
            detail = f"must be atomic as item of a list with {_LIST_TYPE}=set"
            self.out.append(invalid(f"{path}.items.{name}", value, detail))
        if list_type is not None and list_type not in _LIST_TYPES:
            self.out.append(unsupported(f"{path}.{_LIST_TYPE}", list_type, _LIST_TYPES))
        if node.get(_MAP_KEYS) and list_type != "map":
            detail = f"must be map if {_MAP_KEYS} is non-empty"
            field = f"{path}.{_LIST_TYPE}"
            self.out.append(required(field, detail) if list_type is None else invalid(field, list_type, detail))
        if list_type == "map":
            self._check_map_items(node, path)
        if self._options.require_map_keys:
            self.out += check_list_keys(node, path)

    def _add_wrong_type(self, path: str, kind: str, detail: str) -> None:
        self.out.append(invalid(path, kind, detail) if kind else required(path, detail))

    def _check_map_items(self, node: Props, path: str) -> None:
        keys, items = texts(node.get(_MAP_KEYS)), node.get("items")
        if not keys:
            self.out.append(required(f"{path}.{_MAP_KEYS}", f"must not be empty if {_LIST_TYPE} is map"))
        if items is None:
            self.out.append(required(f"{path}.items", f"must have a schema if {_LIST_TYPE} is map"))
        elif not isinstance(items, dict):
            value = {"Schema": None, "JSONSchemas": [go_schema(mapping(item)) for item in items]}
            self.out.append(invalid(f"{path}.items", value, f"must only have a single schema if {_LIST_TYPE} is map"))
        elif (kind := text(items.get("type"))) != "object":
            detail = f"must be object if parent array's {_LIST_TYPE} is map"
            self.out.append(invalid(f"{path}.items.type", kind, detail))
        else:
            self._check_map_keys(keys, mapping(items.get("properties")), path)

    def _check_map_keys(self, keys: Sequence[str], properties: Props, path: str) -> None:
        seen = set[str]()
        for key in keys[:MAX_VIOLATIONS]:
            if key not in properties:
                self.out.append(invalid(f"{path}.{_MAP_KEYS}", list(keys), "entries must all be names of item properties"))
            elif mapping(properties[key]).get("type") in ("array", "object"):
                detail = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
                self.out.append(invalid(f"{path}.items.properties[{key}].type", "object", detail))
            if key in seen:
                self.out.append(invalid(f"{path}.{_MAP_KEYS}", list(keys), "must not contain duplicate entries"))
            seen.add(key)

    def _check_rule(self, rule: Props, node: Props, path: str) -> None:
        expression, message = text(rule.get("rule")).strip(), text(rule.get("message"))
        if not expression:
            self.out.append(required(f"{path}.rule", "rule is not specified"))
        elif message and not message.strip():
            self.out.append(invalid(f"{path}.message", message, "must be non-empty if specified"))
        elif _has_line_breaks(message.strip()):
            self.out.append(invalid(f"{path}.message", message, "must not contain line breaks"))
        elif _has_line_breaks(expression) and not message.strip():
            detail = "message must be specified if rule contains line breaks"
            self.out.append(required(f"{path}.message", detail))
        message_expression = text(rule.get("messageExpression"))
        if message_expression and not message_expression.strip():
            detail = "messageExpression must be non-empty if specified"
            self.out.append(required(f"{path}.messageExpression", detail))
        reason = rule.get("reason")
        if reason is not None and reason not in _REASONS:
            self.out.append(unsupported(f"{path}.reason", reason, _REASONS))
        field_path = text(rule.get("fieldPath"))
        if field_path:
            self._check_field_path(field_path, node, f"{path}.fieldPath")

    def _check_field_path(self, field_path: str, node: Props, path: str) -> None:
        if not field_path.strip():
            self.out.append(invalid(path, field_path, "must be non-empty if specified"))
        if _has_line_breaks(field_path):
            self.out.append(invalid(path, field_path, "must not contain line breaks"))
        try:
            find_field(field_path, node)
        except FieldPathError:
            self.out.append(invalid(path, field_path, "must be a valid path"))


def _has_line_breaks(value: str) -> bool:
    return "\n" in value or "\r" in value


def find_non_atomic_set(node: Props) -> str:
    """Return the keyword that makes the items of a set not atomic, or "" if they are."""
    items = node.get("items")
    if node.get(_LIST_TYPE) != "set" or not isinstance(items, dict):
        return ""
    if items.get("type") == "array" and items.get(_LIST_TYPE, "atomic") != "atomic":
        return _LIST_TYPE
    return _MAP_TYPE if items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic" else ""


def check_list_keys(node: Props, path: str) -> list[Violation]:
    """Check that items of sets and maps are not nullable, and that the keys of maps always have a value."""
    out = list[Violation]()
    items, list_type = node.get("items"), node.get(_LIST_TYPE)
    if not isinstance(items, dict) or list_type not in ("set", "map"):
        return out
    if items.get("nullable"):
        out.append(forbidden(f"{path}.items.nullable", f"cannot be nullable when {_LIST_TYPE} is {list_type}"))
    names, properties = frozenset(texts(items.get("required"))), mapping(items.get("properties"))
    for key in texts(node.get(_MAP_KEYS))[:MAX_VIOLATIONS] if list_type == "map" else ():
        field = properties.get(key)
        if not isinstance(field, dict):
            continue
        where = f"{path}.items.properties[{key}]"
        if key not in names and "default" not in field:
            detail = f"this property is in {_MAP_KEYS}, so it must have a default or be a required property"
            out.append(required(f"{where}.default", detail))
        if field.get("nullable"):
            out.append(forbidden(f"{where}.nullable", f"this property is in {_MAP_KEYS}, so it cannot be nullable"))
    return out


def validate_defaults(
    props: Props, path: str, evaluate_rules: RuleEvaluation | None = None, *, require_pruned: bool = True
) -> list[Violation]:
    """Return where a default is invalid by its own schema, or has unknown fields. `props`: a structural schema."""
    checker = _DefaultChecker(evaluate_rules if has_rules(props) else None, require_pruned)
    checker.check(props, path, _Surroundings(props), is_root=True)
    return checker.out


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """`root`: the schema of the object whose metadata the node may belong to; `names`: from it to the node, "*" for items of
    lists. `in_meta`: the node belongs to metadata, apiVersion or kind."""

    root: Props
    names: tuple[str, ...] = ()
    in_meta: bool = False

    def child(self, name: str, *, in_meta: bool = False) -> "_Surroundings":
        return _Surroundings(self.root, (*self.names, name), self.in_meta or in_meta)


class _DefaultChecker:
    def __init__(self, evaluate_rules: RuleEvaluation | None, require_pruned: bool) -> None:
        self.out = list[Violation]()
        self._evaluate_rules = evaluate_rules
        self._require_pruned = require_pruned
        self._budget = ValidationBudget()

    def check(self, node: Props, path: str, around: _Surroundings, *, is_root: bool = False) -> None:
        """`is_root`: the node is the schema of whole objects."""
        if len(self.out) >= MAX_VIOLATIONS:
            return
        is_object = is_root or bool(node.get(_EMBEDDED))
        if is_object:
            around = _Surroundings(node)
        if "default" in node:
            self._check_default(StructuralSchema(node), f"{path}.default", around, is_object=is_object)
        if isinstance(items := node.get("items"), dict):
            self.check(items, f"{path}.items", around.child("*"))
        for name, child in mapping(node.get("properties")).items():
            in_meta = is_object and name in META_FIELDS
            self.check(mapping(child), f"{path}.properties[{name}]", around.child(name, in_meta=in_meta))

    def _check_default(self, node: StructuralSchema, path: str, around: _Surroundings, *, is_object: bool) -> None:
        default = node.default
        if around.in_meta:
            if problem := _check_meta_default(default, around):
                self.out.append(invalid(path, default, f"must result in valid metadata: {problem}"))
                return
        else:
            if self._require_pruned:
                pruned = copy_json(default)
                prune(pruned, node, root=is_object)
                if pruned != default:
                    self.out.append(invalid(path, default, "must not have unknown fields"))
            coerced = copy_json(default)
            violation, _ = coerce_metadata(coerced, node, root=is_object)
            if violation is not None:
                self.out.append(_move_below(path, violation))
                return
            if violations := validate_embedded(coerced, node, root=is_object):
                self.out += [_move_below(path, violation) for violation in violations]
                return
        violations = validate_value(default, node, path=path, budget=self._budget)
        if not violations and self._evaluate_rules is not None and has_rules(node.props):
            violations = [*self._evaluate_rules(node, default, default, path)]
            violations = violations or [*self._evaluate_rules(node, default, None, path)]
        self.out += violations


def _move_below(path: str, violation: Violation) -> Violation:
    return Violation(f"{path}.{violation.field}", violation.message, violation.reason)


def _check_meta_default(default: Any, around: _Surroundings) -> str:
    """Return why an object is invalid that has the default at this place, or ""."""
    value = copy_json(default)
    for name in reversed(around.names):
        value = [value] if name == "*" else {name: value}
    obj, root = _DEFAULT_OBJECT_META | value, StructuralSchema(around.root)
    violation, _ = coerce_metadata(obj, root, root=True)
    if violation is not None:
        return str(violation)
    violations = [str(violation) for violation in validate_embedded(obj, root, root=True)]
    return violations[0] if len(violations) == 1 else f"[{', '.join(violations)}]" if violations else ""
