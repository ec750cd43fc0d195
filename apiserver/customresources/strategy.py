"""The rules of custom objects of one version: pruning, defaults, validation by the schema, and the status subresource.

Source: pkg/registry/customresource of k8s.io/apiextensions-apiserver 1.36 (strategy.go, status_strategy.go, validator.go).
"""

from functools import cached_property
from typing import Any

from pinnace.api.codec import to_dict
from pinnace.api.customobjects import read_content, write_content
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.status import Violation
from pinnace.apiextensions.kinds import CustomVersion
from pinnace.apiextensions.validation import RuleEvaluation, validate_object
from pinnace.apiserver.customresources.rules import object_rules
from pinnace.apiserver.registry.strategy import Strategy, added_violations
from pinnace.apiserver.registry.validation.fields import forbidden, invalid, validate_metadata, validate_metadata_update

STATUS = "status"


class CustomObjectStrategy(Strategy[CustomObject]):
    allow_unconditional_update = False
    has_generation = True

    def __init__(self, version: CustomVersion) -> None:
        super().__init__(version.resource)
        self._version = version

    @cached_property
    def _evaluate_rules(self) -> RuleEvaluation | None:
        return object_rules(self._version.schema)

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
        out: list[Violation] = []
        if self._check_type(obj, out):
            self.check_metadata(obj, out)
        out += validate_object(to_dict(obj), self._version.schema, scale=self._scale, evaluate_rules=self._evaluate_rules)
        return out

    def validate_update(self, obj: CustomObject, old: CustomObject) -> list[Violation]:
        return self._validate_change(obj, old, status=False)

    def validate_status_update(self, obj: CustomObject, old: CustomObject) -> list[Violation]:
        if not self._version.has_status:
            return [forbidden(STATUS, "this resource has no status to update")]
        return self._validate_change(obj, old, status=True)

    def _validate_change(self, obj: CustomObject, old: CustomObject, *, status: bool) -> list[Violation]:  # type: ignore[override]
        out: list[Violation] = []
        if self._check_type(obj, out):
            new_violations, before = list[Violation](), list[Violation]()
            self.check_metadata(obj, new_violations)
            if new_violations:
                self.check_metadata(old, before)
            out += added_violations(new_violations, before)
            validate_metadata_update(obj.metadata, old.metadata, out)
        out += validate_object(
            to_dict(obj),
            self._version.schema,
            to_dict(old),
            scale=self._scale,
            evaluate_rules=self._evaluate_rules,
            status=status,
        )
        return out

    def check_metadata(self, obj: CustomObject, out: list[Violation]) -> None:
        validate_metadata(obj.metadata, out, namespaced=self.resource.namespaced, any_finalizer=True)

    @property
    def _scale(self) -> dict[str, Any] | None:
        scale: dict[str, Any] | None = self._version.form.get("subresources", {}).get("scale")
        return scale

    def _check_type(self, obj: CustomObject, out: list[Violation]) -> bool:
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
        form = to_dict(obj)
        self._version.normalize(form)
        return {name: value for name, value in form.items() if name not in ("apiVersion", "kind", "metadata")}
