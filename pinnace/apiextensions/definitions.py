"""Defaults and validation of CustomResourceDefinitions, with Kubernetes' messages and paths.

Kubernetes converts a definition to an internal form before it validates it, which shows in the paths: what all versions have in
common (always, if there is one version) stands at the top: `spec.validation.openAPIV3Schema`, `spec.subresources`,
`spec.additionalPrinterColumns`, `spec.selectableFields`.

A schema that an update does not change is not validated again.

The functions take the JSON form of the message. It has the types of the message; only schemas can be any JSON.

Source: k8s.io/apiextensions-apiserver/pkg/apis/apiextensions (v1/defaults.go, v1/conversion.go, validation) and
k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition of Kubernetes 1.36.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pinnace.api import names
from pinnace.api.status import Violation
from pinnace.apiextensions.field_paths import FieldPathError, find_field
from pinnace.apiextensions.formats import is_recognized, is_uri
from pinnace.apiextensions.schema import mapping, objects, text, texts
from pinnace.apiextensions.schema_rules import (
    TYPES,
    RuleCheck,
    SchemaOptions,
    check_list_keys,
    find_non_atomic_set,
    validate_defaults,
    validate_schema,
    walk_schemas,
)
from pinnace.apiextensions.schema_types import go_version, read_schema
from pinnace.apiextensions.structs import StructError
from pinnace.apiextensions.structural import NotConvertible, check_convertible, validate_structural
from pinnace.apiextensions.validation import MAX_VIOLATIONS, RuleEvaluation
from pinnace.apiextensions.violations import duplicate, forbidden, invalid, quote, required, too_many, unsupported

Definition = dict[str, Any]
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
APPROVAL_ANNOTATION = "api-approved.kubernetes.io"
MAX_SELECTABLE_FIELDS = 8
DEFAULT_PORT = 443
MAX_LABELS = 1_000
"""Maximum number of short names, and of categories. Kubernetes has no maximum."""
MAX_SHOWN_VERSIONS = 20
"""Maximum number of versions in a message. Kubernetes has no maximum."""
_MAX_PORT = 65535
_MAX_WARNING = 256
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_SELECTABLE_TYPES = ("string", "boolean", "integer")
_SCOPES, _STRATEGIES = ("Cluster", "Namespaced"), ("None", "Webhook")
_REVIEW_VERSIONS = ("v1", "v1beta1")
_IMMUTABLE = "field is immutable"
_URL_FORM = "; desired format: https://host[/path]"
_SHARED_FIELDS = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STABILITY = {"": 2, "beta": 1, "alpha": 0}


def set_definition_defaults(crd: Definition) -> None:
    """Set singular, listKind, the conversion strategy and the ports of webhooks, and read the schemas, in place, before
    `validate_definition`."""
    spec = crd.setdefault("spec", {})
    kinds = spec.setdefault("names", {})
    kind = text(kinds.get("kind"))
    if kind:
        kinds["singular"] = kinds.get("singular") or kind.lower()
        kinds["listKind"] = kinds.get("listKind") or f"{kind}List"
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    service = mapping(mapping(spec["conversion"].get("webhook")).get("clientConfig")).get("service")
    if isinstance(service, dict) and service.get("port") is None:
        service["port"] = DEFAULT_PORT
    with suppress(StructError):
        read_schemas(crd)


def read_schemas(crd: Definition) -> list[str]:
    """Read the schemas as Kubernetes does, in place: without unknown fields and empty values. Return the paths of the unknown
    fields: "spec.versions[0].schema.openAPIV3Schema.x".

    Raises StructError, with Go's message for a 400, if a value in a schema has the wrong type.
    """
    unknown = list[str]()
    for index, version in enumerate(_versions(crd)):
        schema = version.get("schema")
        if isinstance(schema, dict) and schema.get("openAPIV3Schema") is not None:
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            schema["openAPIV3Schema"], paths = read_schema(schema["openAPIV3Schema"], path)
            unknown += paths
    return unknown


def prepare_create(crd: Definition) -> None:
    """Clear the status of a new definition, and set its generation and stored version, in place."""
    crd["status"] = {}
    crd.setdefault("metadata", {})["generation"] = 1
    _add_stored_version(crd)


def prepare_update(new: Definition, old: Definition) -> None:
    """Keep the old status, add the storage version to storedVersions, and count the generation if the spec changes."""
    new["status"] = dict(mapping(old.get("status")))
    if new.get("spec") != old.get("spec"):
        new.setdefault("metadata", {})["generation"] = mapping(old.get("metadata")).get("generation", 0) + 1
    _add_stored_version(new)


def prepare_status_update(new: Definition, old: Definition) -> None:
    """Keep the old spec and metadata, in place."""
    version = mapping(new.get("metadata")).get("resourceVersion")
    new["spec"] = old.get("spec", {})
    new["metadata"] = dict(mapping(old.get("metadata"))) | ({"resourceVersion": version} if version else {})


def _add_stored_version(crd: Definition) -> None:
    stored = list(texts(crd["status"].get("storedVersions")))
    if (name := storage_version(crd)) and name not in stored:
        stored.append(name)
    if stored:
        crd["status"]["storedVersions"] = stored


def storage_version(crd: Mapping[str, Any]) -> str:
    """Return the name of the version that is stored; "" if there is none."""
    return next((text(version.get("name")) for version in _versions(crd) if version.get("storage")), "")


def version_schema(crd: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    """Return the openAPIV3Schema of a version; {} if there is none."""
    return next((_schema_of(item) or {} for item in _versions(crd) if item.get("name") == version), {})


def _versions(crd: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return objects(mapping(crd.get("spec")).get("versions"))


def _schema_of(version: Mapping[str, Any]) -> Mapping[str, Any] | None:
    props = mapping(version.get("schema")).get("openAPIV3Schema")
    return props if isinstance(props, dict) else None


def sort_versions(versions: Sequence[str]) -> list[str]:
    """Return version names in Kubernetes' priority: v10, v2, v1, v11beta2, v10beta3, v3beta1, v12alpha1, foo1, foo10."""

    def rank(name: str) -> tuple[Any, ...]:
        match = _VERSION.fullmatch(name)
        if not match:
            return (1, name)
        return (0, -_STABILITY[match[2] or ""], -int(match[1]), -int(match[3] or 0))

    return sorted(versions, key=rank)


@dataclass(frozen=True, slots=True)
class _Internal:
    """The internal form of a spec. `shared`: what all versions have in common, by the name in a version; `versions`: without
    it."""

    shared: Mapping[str, Any]
    versions: Sequence[Mapping[str, Any]]


def _internal(versions: Sequence[Mapping[str, Any]]) -> _Internal:
    shared = dict[str, Any]()
    for name in _SHARED_FIELDS:
        values = [version.get(name) for version in versions]
        if values and all(value == values[0] for value in values):
            shared[name] = values[0]
    rest = [{name: value for name, value in version.items() if name not in shared} for version in versions]
    return _Internal({name: value for name, value in shared.items() if value is not None}, rest)


def validate_definition(
    new: Definition,
    old: Definition | None = None,
    *,
    check_rules: RuleCheck | None = None,
    evaluate_rules: RuleEvaluation | None = None,
) -> list[Violation]:
    """Return the violations of a definition, or of its update, except in metadata (but for its name). `new` has defaults.

    Invalid parts of `old` that stay are tolerated where Kubernetes tolerates them.
    """
    try:
        return _Validator(new, old, check_rules, evaluate_rules).validate()[:MAX_VIOLATIONS]
    except RecursionError:
        return [invalid("spec.versions", "", "nested too deeply")]


class _Validator:
    def __init__(
        self, new: Definition, old: Definition | None, check_rules: RuleCheck | None, evaluate_rules: RuleEvaluation | None
    ) -> None:
        self._new, self._old = new, old
        self._check_rules, self._evaluate_rules = check_rules, evaluate_rules
        self._spec = mapping(new.get("spec"))
        self._old_spec = mapping(old.get("spec")) if old is not None else {}
        self._established = old is not None and _has_condition(old, "Established")
        self.out = list[Violation]()
        self._versions = self._read_versions()
        self._internal = _internal(self._versions)

    def _read_versions(self) -> list[Mapping[str, Any]]:
        """Return the versions. Those whose schemas cannot be read have none, and a violation."""
        known = [version.get("schema") for version in _versions(self._old or {})]
        result = list[Mapping[str, Any]]()
        for index, version in enumerate(_versions(self._new)):
            props = _schema_of(version)
            if props is not None and version.get("schema") not in known:
                try:
                    version = {**version, "schema": {"openAPIV3Schema": read_schema(props)[0]}}
                except StructError as error:
                    self.out.append(invalid(f"spec.versions[{index}].schema.openAPIV3Schema", "", str(error)))
                    version = {**version, "schema": {"openAPIV3Schema": {}}}
            result.append(version)
        return result

    def validate(self) -> list[Violation]:
        self._validate_name()
        self._validate_group_and_scope()
        self._validate_versions()
        self._validate_names()
        self._validate_shared()
        self._validate_conversion(mapping(self._spec.get("conversion")), "spec.conversion")
        if self._old is not None:
            self._validate_immutable()
        status = mapping(self._new.get("status"))
        self.out += validate_names(mapping(status.get("acceptedNames")), "status.acceptedNames")
        self.out += _validate_stored_versions(texts(status.get("storedVersions")), self._internal.versions)
        self.out += _validate_approval(self._new, self._old)
        if self._spec.get("preserveUnknownFields") and not self._old_spec.get("preserveUnknownFields"):
            detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
            self.out.append(invalid("spec.preserveUnknownFields", True, detail))
        return self.out

    def _validate_name(self) -> None:
        name = text(mapping(self._new.get("metadata")).get("name"))
        plural, group = text(mapping(self._spec.get("names")).get("plural")), text(self._spec.get("group"))
        if self._old is None and name and name != f"{plural}.{group}":
            self.out.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))

    def _validate_group_and_scope(self) -> None:
        group, scope = text(self._spec.get("group")), text(self._spec.get("scope"))
        if not group:
            self.out.append(required("spec.group"))
        elif problems := names.dns_subdomain(group):
            self.out.append(invalid("spec.group", group, ",".join(problems)))
        elif "." not in group:
            self.out.append(invalid("spec.group", group, "should be a domain with at least one dot"))
        self._check_choice("spec.scope", scope, _SCOPES)

    def _check_choice(self, path: str, value: str, supported: Sequence[str]) -> None:
        if not value:
            self.out.append(required(path))
        elif value not in supported:
            self.out.append(unsupported(path, value, supported))

    def _validate_versions(self) -> None:
        versions = self._internal.versions
        preserve = bool(self._spec.get("preserveUnknownFields"))
        if mapping(self._internal.shared.get("schema")).get("openAPIV3Schema") is None:
            for index, version in enumerate(versions):
                if _schema_of(version) is None:
                    self.out.append(required(f"spec.versions[{index}].schema.openAPIV3Schema"))
        if preserve and any("default" in node for version in self._versions for node in _schema_nodes(version)):
            detail = "must be false in order to use defaults in the schema"
            self.out.append(invalid("spec.preserveUnknownFields", True, detail))
        for index, version in enumerate(versions):
            self._validate_version(version, f"spec.versions[{index}]")
        kinds = [text(version.get("name")) for version in versions]
        if len(set(kinds)) < len(kinds):
            self._add_versions("must contain unique version names")
        if sum(bool(version.get("storage")) for version in versions) != 1:
            self._add_versions("must have exactly one version marked as storage version")
        if kinds and (problems := names.dns_1035_label(kinds[0])) and kinds[0]:
            self.out.append(invalid("spec.version", kinds[0], ",".join(problems)))

    def _add_versions(self, detail: str) -> None:
        versions = [go_version(version) for version in self._internal.versions[:MAX_SHOWN_VERSIONS]]
        self.out.append(invalid("spec.versions", versions or None, detail))

    def _validate_version(self, version: Mapping[str, Any], path: str) -> None:
        name = text(version.get("name"))
        if problems := names.dns_1035_label(name):
            self.out.append(invalid(f"{path}.name", name, ",".join(problems)))
        warning = version.get("deprecationWarning")
        self.out += [
            invalid(f"{path}.deprecationWarning", warning, problem)
            for problem in _deprecation_problems(bool(version.get("deprecated")), warning)
        ]
        subresources = self._internal.shared.get("subresources", version.get("subresources"))
        has_status = mapping(subresources).get("status") is not None
        self._validate_version_schema(version, name, f"{path}.schema", status=has_status)
        self._validate_parts(version, path)
        if fields := objects(version.get("selectableFields")):
            props = _schema_of(version)
            if props is None:
                detail = "may only be set when `version.schema.openAPIV3Schema` is not included"
                self.out.append(invalid(f"{path}.selectableFields", "", detail))
            else:
                self._validate_selectable(fields, props, f"{path}.selectableFields", name)

    def _validate_shared(self) -> None:
        """Validate what all versions have in common."""
        shared, versions = self._internal.shared, self._internal.versions
        first = text(versions[0].get("name")) if versions else ""
        has_status = any(mapping(version.get("subresources")).get("status") is not None for version in self._versions)
        self._validate_version_schema(shared, first, "spec.validation", status=has_status)
        self._validate_parts(shared, "spec")
        if fields := objects(shared.get("selectableFields")):
            if "schema" not in shared:
                detail = "may only be set when validations.schema is included"
                self.out.append(invalid("spec.selectableFields", "", detail))
            else:
                self._validate_selectable(fields, _schema_of(shared) or {}, "spec.selectableFields", first)

    def _validate_parts(self, version: Mapping[str, Any], path: str) -> None:
        scale = mapping(version.get("subresources")).get("scale")
        if isinstance(scale, dict):
            self.out += _validate_scale(scale, f"{path}.subresources")
        for index, column in enumerate(objects(version.get("additionalPrinterColumns"))):
            self.out += _validate_column(column, f"{path}.additionalPrinterColumns[{index}]")

    def _validate_version_schema(self, version: Mapping[str, Any], name: str, path: str, *, status: bool) -> None:
        props = _schema_of(version)
        if props is None or self._is_unchanged(props, name):
            return
        self.out += validate_schema(
            props,
            f"{path}.openAPIV3Schema",
            status=status,
            options=self._schema_options,
            check_rules=self._check_rules,
            evaluate_rules=self._evaluate_rules,
        )

    def _is_unchanged(self, props: Mapping[str, Any], name: str) -> bool:
        """Return whether the update changes neither a schema nor the status subresource. `name`: a version with the schema."""
        if self._old is None:
            return False

        def parts(versions: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
            version = next((item for item in versions if item.get("name") == name), {})
            return _schema_of(version), mapping(version.get("subresources")).get("status")

        old = parts(_versions(self._old))
        return parts(self._versions) == old and old[0] == props

    @property
    def _schema_options(self) -> SchemaOptions:
        """Tolerate what the old definition has."""
        old = [props for version in _versions(self._old or {}) if (props := _schema_of(version)) is not None]
        if not old:
            return SchemaOptions()
        nodes = [node for props in old for node in walk_schemas(props)]
        structural = all(map(_is_structural, old))
        return SchemaOptions(
            require_types=all(text(node.get("type")) in ("", *TYPES) for node in nodes),
            require_structural=structural or not self._spec.get("preserveUnknownFields"),
            require_pruned_defaults=not structural or not any(map(_has_unpruned_defaults, old)),
            require_atomic_sets=not any(map(find_non_atomic_set, nodes)),
            require_map_keys=not any(check_list_keys(node, "") for node in nodes),
        )

    def _validate_names(self) -> None:
        kinds = mapping(self._spec.get("names"))
        for name in ("plural", "singular", "kind", "listKind"):
            if not kinds.get(name):
                self.out.append(required(f"spec.names.{name}"))
        self.out += validate_names(kinds, "spec.names")

    def _validate_selectable(
        self, fields: Sequence[Mapping[str, Any]], props: Mapping[str, Any], path: str, version: str
    ) -> None:
        unique = set[tuple[str, ...]]()
        for index, field in enumerate(fields[:MAX_VIOLATIONS]):
            where, value = f"{path}[{index}].jsonPath", text(field.get("jsonPath"))
            if not value:
                self.out.append(required(where))
                continue
            try:
                place, node = find_field(value, props, brackets=False)
            except FieldPathError as error:
                self.out.append(invalid(where, value, f"is an invalid path: {error}"))
                continue
            if place[0] == "metadata":
                self.out.append(invalid(where, value, "must not point to fields in metadata"))
            if node.get("type") not in _SELECTABLE_TYPES:
                detail = (
                    "must point to a field of type string, boolean or integer. "
                    "Enum string fields and strings with formats are allowed."
                )
                self.out.append(invalid(where, value, detail))
            if place in unique:
                self.out.append(duplicate(where, value))
            unique.add(place)
        if len(unique) > MAX_SELECTABLE_FIELDS and not self._had_selectable(fields, version):
            self.out.append(too_many(path, len(unique), MAX_SELECTABLE_FIELDS))

    def _had_selectable(self, fields: Sequence[Mapping[str, Any]], version: str) -> bool:
        old = _versions(self._old or {})
        return any(item.get("name") == version and item.get("selectableFields") == fields for item in old)

    def _validate_conversion(self, conversion: Mapping[str, Any], path: str) -> None:
        strategy = text(conversion.get("strategy"))
        webhook = mapping(conversion.get("webhook"))
        config, reviews = webhook.get("clientConfig"), texts(webhook.get("conversionReviewVersions"))
        if strategy not in ("", "None") and self._spec.get("preserveUnknownFields"):
            detail = "must be None if spec.preserveUnknownFields is true"
            self.out.append(invalid(f"{path}.strategy", strategy, detail))
        self._check_choice(f"{path}.strategy", strategy, _STRATEGIES)
        if strategy == "Webhook":
            if isinstance(config, dict):
                self._validate_client(config, f"{path}.webhookClientConfig")
            else:
                self.out.append(required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook"))
            self._validate_reviews(reviews, f"{path}.conversionReviewVersions")
            return
        detail = "should not be set when strategy is not set to Webhook"
        if config is not None:
            self.out.append(forbidden(f"{path}.webhookClientConfig", detail))
        if reviews:
            self.out.append(forbidden(f"{path}.conversionReviewVersions", detail))

    def _validate_client(self, config: Mapping[str, Any], path: str) -> None:
        url, service = config.get("url"), config.get("service")
        if (url is None) == (service is None):
            self.out.append(required(path, "exactly one of url or service is required"))
        elif url is not None:
            self.out += _validate_webhook_url(text(url), f"{path}.url")
        else:
            self.out += _validate_webhook_service(mapping(service), f"{path}.service")
        bundle = text(config.get("caBundle"))
        if bundle and self._established and not _is_bundle(bundle) and self._had_valid_bundle():
            detail = "unable to load root certificates: unable to parse bytes as PEM block"
            self.out.append(invalid(f"{path}.caBundle", bundle, detail))

    def _had_valid_bundle(self) -> bool:
        webhook = mapping(mapping(self._old_spec.get("conversion")).get("webhook"))
        bundle = text(mapping(webhook.get("clientConfig")).get("caBundle"))
        return not bundle or _is_bundle(bundle)

    def _validate_reviews(self, versions: Sequence[str], path: str) -> None:
        if not versions:
            self.out.append(required(path))
            return
        seen = set[str]()
        for index, version in enumerate(versions[:MAX_VIOLATIONS]):
            if version in seen:
                self.out.append(invalid(f"{path}[{index}]", version, "duplicate version"))
                continue
            seen.add(version)
            self.out += [invalid(f"{path}[{index}]", version, problem) for problem in names.dns_1035_label(version)]
        old = mapping(mapping(self._old_spec.get("conversion")).get("webhook")).get("conversionReviewVersions")
        tolerated = bool(texts(old)) and not set(texts(old)) & set(_REVIEW_VERSIONS)
        if not seen & set(_REVIEW_VERSIONS) and not tolerated:
            detail = f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
            self.out.append(invalid(path, list(versions), detail))

    def _validate_immutable(self) -> None:
        kinds, old_kinds = mapping(self._spec.get("names")), mapping(self._old_spec.get("names"))
        fields = []
        if self._established:
            fields = [
                ("spec.scope", self._spec.get("scope"), self._old_spec.get("scope")),
                ("spec.names.kind", kinds.get("kind"), old_kinds.get("kind")),
            ]
        fields.append(("spec.group", self._spec.get("group"), self._old_spec.get("group")))
        fields.append(("spec.names.plural", kinds.get("plural"), old_kinds.get("plural")))
        self.out += [invalid(path, new or "", _IMMUTABLE) for path, new, old in fields if (new or "") != (old or "")]


def _schema_nodes(version: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    props = _schema_of(version)
    return walk_schemas(props) if props is not None else iter(())


def _is_structural(props: Mapping[str, Any]) -> bool:
    try:
        check_convertible(props)
    except NotConvertible:
        return False
    return not validate_structural(props, "")


def _has_unpruned_defaults(props: Mapping[str, Any]) -> bool:
    return len(validate_defaults(props, "")) > len(validate_defaults(props, "", require_pruned=False))


def _has_condition(crd: Mapping[str, Any], kind: str) -> bool:
    conditions = objects(mapping(crd.get("status")).get("conditions"))
    return any(condition.get("type") == kind and condition.get("status") == "True" for condition in conditions)


def validate_names(kinds: Mapping[str, Any], path: str) -> list[Violation]:
    """Return the violations of spec.names or status.acceptedNames. Absent names are valid."""
    out = list[Violation]()
    for name in ("plural", "singular", "kind", "listKind"):
        value = text(kinds.get(name))
        is_kind = name in ("kind", "listKind")
        if value and (problems := names.dns_1035_label(value.lower() if is_kind else value)):
            mixed = "may have mixed case, but should otherwise match: " if is_kind else ""
            out.append(invalid(f"{path}.{name}", value, mixed + ",".join(problems)))
    out += _validate_labels(kinds, "shortNames", path)
    if kinds.get("kind") and kinds["kind"] == kinds.get("listKind"):
        out.append(invalid(f"{path}.listKind", kinds["listKind"], "kind and listKind may not be the same"))
    out += _validate_labels(kinds, "categories", path)
    return out


def _validate_labels(kinds: Mapping[str, Any], name: str, path: str) -> list[Violation]:
    labels = texts(kinds.get(name))
    if len(labels) > MAX_LABELS:
        return [too_many(f"{path}.{name}", len(labels), MAX_LABELS)]
    return [
        invalid(f"{path}.{name}[{index}]", label, ",".join(problems))
        for index, label in enumerate(labels)
        if (problems := names.dns_1035_label(label))
    ]


def _deprecation_problems(deprecated: bool, warning: Any) -> Iterator[str]:
    if not isinstance(warning, str):
        return
    if not deprecated:
        yield "can only be set for deprecated versions"
        return
    if len(warning.encode(errors="replace")) > _MAX_WARNING:
        yield f"must be <= {_MAX_WARNING} characters long"
    if not warning:
        yield "must not be an empty string"
    for index, character in enumerate(warning):
        if not character.isprintable():
            offset = len(warning[:index].encode(errors="replace"))
            yield f"must only contain printable UTF-8 characters; non-printable character found at index {offset}"
            return


def _validate_scale(scale: Mapping[str, Any], path: str) -> list[Violation]:
    out = list[Violation]()
    for name, prefixes, words in (
        ("specReplicasPath", (".spec.",), ".spec"),
        ("statusReplicasPath", (".status.",), ".status"),
        ("labelSelectorPath", (".spec.", ".status."), "either .spec or .status"),
    ):
        value, where = text(scale.get(name)), f"{path}.scale.{name}"
        if not value:
            if name != "labelSelectorPath":
                out.append(required(where))
        elif value[0] != ".":
            out.append(invalid(where, value, "must be a simple json path starting with ."))
        elif not value.startswith(prefixes):
            out.append(invalid(where, value, f"should be a json path under {words}"))
    return out


def _validate_column(column: Mapping[str, Any], path: str) -> list[Violation]:
    out = list[Violation]()
    kind, form, json_path = (text(column.get(name)) for name in ("type", "format", "jsonPath"))
    if not column.get("name"):
        out.append(required(f"{path}.name"))
    detail = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        out.append(required(f"{path}.type", detail))
    elif kind not in _COLUMN_TYPES:
        out.append(invalid(f"{path}.type", kind, detail))
    if form and form not in _COLUMN_FORMATS:
        out.append(invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}"))
    if not json_path:
        out.append(required(f"{path}.JSONPath"))
    elif json_path[0] != ".":
        out.append(invalid(f"{path}.JSONPath", json_path, "must be a simple json path starting with ."))
    return out


def _validate_webhook_url(url: str, path: str) -> list[Violation]:
    out = list[Violation]()
    try:
        parts = urlsplit(url)
    except ValueError:
        return [required(path, f"url must be a valid URL: parse {quote(url)}: invalid URL{_URL_FORM}")]
    if parts.scheme != "https":
        out.append(invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}"))
    user, _, host = parts.netloc.rpartition("@")
    if not host:
        out.append(invalid(path, "", f"host must be specified{_URL_FORM}"))
    for value, detail in (
        (user, "user information is"),
        (parts.fragment, "fragments are"),
        (parts.query, "query parameters are"),
    ):
        if value:
            out.append(invalid(path, value, f"{detail} not permitted in the URL"))
    return out


def _validate_webhook_service(service: Mapping[str, Any], path: str) -> list[Violation]:
    out = list[Violation]()
    # Kubernetes passes the name as the namespace, and the namespace as the name.
    out += [
        required(f"{path}.{other}") for name, other in (("namespace", "name"), ("name", "namespace")) if not service.get(name)
    ]
    port = service.get("port", DEFAULT_PORT)
    if not 1 <= port <= _MAX_PORT:
        out.append(invalid(f"{path}.port", port, f"port is not valid: must be between 1 and {_MAX_PORT}, inclusive"))
    value, where = text(service.get("path")), f"{path}.path"
    if value in ("", "/"):
        return out
    if value == "//":
        return [*out, invalid(where, value, "segment[0] may not be empty")]
    if not value.startswith("/"):
        out.append(invalid(where, value, "must start with a '/'"))
    for index, segment in enumerate(value[1:].removesuffix("/").split("/")[:MAX_VIOLATIONS]):
        if not segment:
            out.append(invalid(where, value, f"segment[{index}] may not be empty"))
        else:
            out += [invalid(where, value, f"segment[{index}]: {problem}") for problem in names.dns_subdomain(segment)]
    return out


def _is_bundle(bundle: str) -> bool:
    """Return whether a base64 text has certificates as PEM."""
    try:
        return b"-----BEGIN CERTIFICATE-----" in base64.b64decode(bundle)
    except binascii.Error:
        return False


def _validate_stored_versions(stored: Sequence[str], versions: Sequence[Mapping[str, Any]]) -> list[Violation]:
    path = "status.storedVersions"
    if not stored:
        return [invalid(path, None, "must have at least one stored version")]
    declared = [text(version.get("name")) for version in versions]
    out = [
        invalid(path, list(stored), f"must have the storage version {name}")
        for name, version in zip(declared, versions, strict=True)
        if version.get("storage") and name not in stored
    ]
    for index, name in enumerate(stored):
        if name not in declared:
            detail = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until "
                f"a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            )
            out.append(invalid(f"{path}[{index}]", name, detail))
    return out


def _validate_approval(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[Violation]:
    """Groups of the community need an annotation that links to their approval."""
    if not is_protected_group(text(mapping(new.get("spec")).get("group"))):
        return []
    state, reason = approval_state(new)
    if old is not None and approval_state(old)[0] == state:
        return []
    field = f"metadata.annotations[{APPROVAL_ANNOTATION}]"
    if state == "missing":
        return [required(field, reason)]
    return [invalid(field, _approval_of(new), reason)] if state == "invalid" else []


def is_protected_group(group: str) -> bool:
    return any(group == domain or group.endswith(f".{domain}") for domain in ("k8s.io", "kubernetes.io"))


def _approval_of(crd: Mapping[str, Any]) -> str:
    return text(mapping(mapping(crd.get("metadata")).get("annotations")).get(APPROVAL_ANNOTATION))


def approval_state(crd: Mapping[str, Any]) -> tuple[str, str]:
    """Return "missing", "bypassed", "approved" or "invalid", and Kubernetes' reason."""
    approval = _approval_of(crd)
    needed = f"protected groups must have approval annotation {quote(APPROVAL_ANNOTATION)}"
    link = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not approval:
        return "missing", f"{needed}, {link}"
    if approval.startswith("unapproved"):
        return "bypassed", f"not approved: {quote(approval)}"
    if is_uri(approval) and "://" in approval and not approval.partition("://")[2].startswith("/"):
        return "approved", f"approved in {approval}"
    return "invalid", f'{needed} with either a URL or a reason starting with "unapproved", {link}'


def validate_definition_status(new: Definition, old: Definition) -> list[Violation]:
    """Return the violations of an update of the status subresource."""
    return validate_names(mapping(mapping(new.get("status")).get("acceptedNames")), "status.acceptedNames")


def definition_warnings(new: Definition, old: Definition | None = None) -> list[str]:
    """Return warnings for formats that validation ignores, without those of `old`."""
    known = frozenset(_unrecognized_formats(old)) if old is not None else frozenset()
    return [f"unrecognized format {quote(name)}" for name in _unrecognized_formats(new) if name not in known]


def _unrecognized_formats(crd: Definition) -> list[str]:
    spec = _internal(_versions(crd))
    return [
        name
        for version in (spec.shared, *spec.versions)
        for node in _schema_nodes(version)
        if (name := text(node.get("format"))) and not is_recognized(name, text(node.get("type")))
    ]
