"""The rules of custom objects of one version: pruning, defaults, validation by the schema, and the status subresource.

Source: pkg/registry/customresource of k8s.io/apiextensions-apiserver 1.36 (strategy.go, status_strategy.go, validator.go).
"""

import json
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from pinnace.api.codec import to_dict
from pinnace.api.customobjects import read_content, write_content
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.status import Violation
from pinnace.api.wellknown import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from pinnace.apiextensions.kinds import CustomVersion
from pinnace.apiextensions.schema import StructuralSchema
from pinnace.apiextensions.validation import validate_object
from pinnace.apiserver.registry.large import LARGE, LargeResultCache
from pinnace.apiserver.registry.strategy import Strategy, add_warnings, added_violations
from pinnace.apiserver.registry.validation.fields import (
    MAX_SHOWN,
    forbidden,
    invalid,
    validate_metadata,
    validate_metadata_update,
)
from pinnace.cel.rules import CompiledRules, compile_rules

STATUS = "status"
_KUBERNETES_FINALIZERS = (ORPHAN_FINALIZER, FOREGROUND_FINALIZER)
_PREFER_DOMAIN = (
    "prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers"
)


class CustomObjectStrategy(Strategy[CustomObject]):
    allow_unconditional_update = False
    has_generation = True
    is_slow = True

    def __init__(self, version: CustomVersion) -> None:
        super().__init__(version.resource)
        self._version = version
        self._contents: LargeResultCache[bytes] = LargeResultCache()
        self._violations: LargeResultCache[tuple[list[Violation], list[Violation]]] = LargeResultCache()

    @property
    def needs_compilation(self) -> bool:
        """Rules are compiled once."""
        return "_compiled_rules" not in self.__dict__

    @cached_property
    def _compiled_rules(self) -> CompiledRules:
        rules = compile_rules(self._version.schema.props)
        rules.prepare()
        return rules

    def prepare_create(self, obj: CustomObject) -> None:
        content = self._normalized_content(obj)
        if self._version.has_status:
            content.pop(STATUS, None)
        obj.content = write_content(content)

    def prepare_update(self, obj: CustomObject, old: CustomObject) -> None:
        content = self._normalized_content(obj)
        if self._version.has_status:
            content.pop(STATUS, None)
            content |= {name: value for name, value in read_content(old).items() if name == STATUS}
        obj.content = write_content(content)

    def prepare_status_update(self, obj: CustomObject, old: CustomObject) -> None:
        content = self._normalized_content(obj)
        rest = read_content(old)
        rest.pop(STATUS, None)
        obj.content = write_content(rest | {name: value for name, value in content.items() if name == STATUS})
        obj.metadata.CopyFrom(old.metadata)
        obj.metadata.resourceVersion = ""
        obj.apiVersion, obj.kind = old.apiVersion, old.kind

    def is_new_generation(self, new: CustomObject, old: CustomObject) -> bool:
        return new.content != old.content

    def validate(self, obj: CustomObject) -> list[Violation]:
        _warn_of_finalizers(obj, ())
        out: list[Violation] = []
        if self._collect_type_errors(obj, out):
            self.check_metadata(obj, out)
        return out + self._validate(obj, None, status=False)

    def validate_update(self, obj: CustomObject, old: CustomObject) -> list[Violation]:
        _warn_of_finalizers(obj, old.metadata.finalizers)
        return self._validate_change(obj, old, status=False)

    def validate_status_update(self, obj: CustomObject, old: CustomObject) -> list[Violation]:
        if not self._version.has_status:
            return [forbidden(STATUS, "this resource has no status to update")]
        return self._validate_change(obj, old, status=True)

    def _validate_change(self, obj: CustomObject, old: CustomObject, *, status: bool) -> list[Violation]:  # type: ignore[override]  # custom objects have a narrower type
        out: list[Violation] = []
        if self._collect_type_errors(obj, out):
            new_violations, before = list[Violation](), list[Violation]()
            self.check_metadata(obj, new_violations)
            if new_violations:
                self.check_metadata(old, before)
            out += added_violations(new_violations, before)
            validate_metadata_update(obj.metadata, old.metadata, out)
        return out + self._validate(obj, old, status=status)

    def _validate(self, obj: CustomObject, old: CustomObject | None, *, status: bool) -> list[Violation]:
        """Return the violations. Those of rules that the object had before are warnings."""
        rules = self._compiled_rules

        def compute() -> tuple[list[Violation], list[Violation]]:
            warnings = list[Violation]()

            def evaluate(_: StructuralSchema, value: Any, before: Any, path: str) -> list[Violation]:
                evaluation = rules.validate(value, before, path)
                warnings.extend(evaluation.warnings)
                return evaluation.violations

            violations = validate_object(
                to_dict(obj),
                self._version.schema,
                to_dict(old) if old is not None else None,
                scale=self._scale_subresource,
                evaluate_rules=evaluate if rules.has_rules else None,
                status=status,
            )
            return violations, warnings

        key = (*_validation_cache_key(obj), *(_validation_cache_key(old) if old is not None else ()), status)
        violations, warnings = self._violations.get(len(obj.content), key, compute)
        add_warnings(map(str, warnings))
        return violations

    def precompute(self, obj: CustomObject) -> None:
        new = CustomObject()
        new.CopyFrom(obj)
        self.prepare_create(new)
        self.validate(new)

    def check_metadata(self, obj: CustomObject, out: list[Violation]) -> None:
        validate_metadata(obj.metadata, out, namespaced=self.resource.namespaced, any_finalizer=True)

    @property
    def _scale_subresource(self) -> dict[str, Any] | None:
        scale: dict[str, Any] | None = self._version.form.get("subresources", {}).get("scale")
        return scale

    def _collect_type_errors(self, obj: CustomObject, out: list[Violation]) -> bool:
        """Append wrong types. Return whether there are none."""
        for field, value, expected in (
            ("kind", obj.kind, self.resource.kind),
            ("apiVersion", obj.apiVersion, self.resource.api_version),
        ):
            if value != expected:
                out.append(invalid(field, value, f"must be {expected}"))
        return not out

    def _normalized_content(self, obj: CustomObject) -> dict[str, Any]:
        """Return the content without unknown fields, and with defaults."""

        def compute() -> dict[str, Any]:
            form = to_dict(obj)
            self._version.normalize(form)
            return {name: value for name, value in form.items() if name not in ("apiVersion", "kind", "metadata")}

        if len(obj.content) < LARGE:
            return compute()
        encoded = self._contents.get(len(obj.content), obj.content, lambda: write_content(compute()))
        content: dict[str, Any] = json.loads(encoded or b"{}")
        return content


def _warn_of_finalizers(obj: CustomObject, old: Iterable[str]) -> None:
    """Warn of new finalizers that are not qualified by a domain."""
    for finalizer in sorted({*obj.metadata.finalizers}.difference(old, _KUBERNETES_FINALIZERS)):
        if "/" not in finalizer:
            add_warnings([f'metadata.finalizers: "{finalizer[:MAX_SHOWN]}": {_PREFER_DOMAIN}'])


def _validation_cache_key(obj: CustomObject) -> tuple[bytes, str, str, str, str]:
    """Return the parts of an object on which its violations depend."""
    return obj.content, obj.metadata.name, obj.metadata.generateName, obj.apiVersion, obj.kind
