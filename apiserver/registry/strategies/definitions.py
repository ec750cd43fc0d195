"""CustomResourceDefinitions: defaults, validation, and the first steps of their deletion.

The first delete adds the finalizer `customresourcecleanup.apiextensions.k8s.io` and the condition Terminating, and does not
start a new generation. The API servers then delete the objects, and remove the finalizer
(pinnace.apiserver.customresources.controller).

Source: pkg/registry/customresourcedefinition of k8s.io/apiextensions-apiserver 1.36.
"""

from collections.abc import Iterable
from typing import Any

from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition, CustomResourceDefinitionSpec
from pinnace.api.codec import from_dict, to_dict
from pinnace.api.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from pinnace.api.scalars import format_rfc3339, to_time
from pinnace.api.status import Violation
from pinnace.api.verbs_pb2 import Disruption
from pinnace.apiextensions import definitions
from pinnace.apiextensions.definitions import CLEANUP_FINALIZER
from pinnace.apiextensions.naming import set_condition, terminating_condition
from pinnace.apiserver.registry.large import LargeResultCache
from pinnace.apiserver.registry.strategy import StatusStrategy, added_violations, carry_over_fields
from pinnace.apiserver.registry.validation.fields import validate_metadata, validate_metadata_update
from pinnace.cel.rule_checks import check_rules
from pinnace.cel.rules import DefaultRules

_PENDING = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"


class DefinitionStrategy(StatusStrategy[CustomResourceDefinition]):
    allow_unconditional_update = False
    is_slow = True
    has_generation = True
    counts_deletion = False
    finalizers_at_deletion = (CLEANUP_FINALIZER,)

    def __init__(self, resource: Resource[CustomResourceDefinition]) -> None:
        super().__init__(resource)
        self._specs: LargeResultCache[bytes] = LargeResultCache()
        self._violations: LargeResultCache[list[Violation]] = LargeResultCache()
        self._warnings: LargeResultCache[list[str]] = LargeResultCache()

    def prepare_create(self, obj: CustomResourceDefinition) -> None:
        self._default_spec(obj)
        form = _without_schemas(obj)
        definitions.prepare_create(form)
        _set_fields_from_form(obj, form, "status")

    def prepare_update(self, obj: CustomResourceDefinition, old: CustomResourceDefinition) -> None:
        self._default_spec(obj)
        form = _without_schemas(obj)
        definitions.prepare_update(form, _without_schemas(old))
        _set_fields_from_form(obj, form, "status")

    def prepare_status_update(self, obj: CustomResourceDefinition, old: CustomResourceDefinition) -> None:
        carry_over_fields(obj, old, "metadata", "spec")

    def validate(self, obj: CustomResourceDefinition) -> list[Violation]:
        return _merge_violations(_metadata_violations(obj), self._validate(obj, None))

    def validate_update(self, obj: CustomResourceDefinition, old: CustomResourceDefinition) -> list[Violation]:
        out = _metadata_violations(obj)
        if out:
            out = added_violations(out, _metadata_violations(old))
        validate_metadata_update(obj.metadata, old.metadata, out)
        return _merge_violations(out, self._validate(obj, old))

    def validate_status_update(self, obj: CustomResourceDefinition, old: CustomResourceDefinition) -> list[Violation]:
        return definitions.validate_definition_status(_without_schemas(obj), _without_schemas(old))

    def warnings(self, obj: CustomResourceDefinition) -> Iterable[str]:
        encoded = _validation_cache_key(obj)
        return self._warnings.get(len(encoded), encoded, lambda: definitions.definition_warnings(to_dict(obj)))

    def precompute(self, obj: CustomResourceDefinition) -> None:
        new = CustomResourceDefinition()
        new.CopyFrom(obj)
        self.prepare_create(new)
        self.validate(new)
        self.warnings(new)

    def _default_spec(self, obj: CustomResourceDefinition) -> None:
        """Set the defaults of the spec, and read its schemas."""
        encoded = obj.spec.SerializeToString(deterministic=True)

        def compute() -> bytes:
            form = {"spec": to_dict(obj.spec)}
            definitions.set_definition_defaults(form)
            spec: bytes = from_dict(CustomResourceDefinitionSpec, form["spec"]).SerializeToString(deterministic=True)
            return spec

        obj.spec.ParseFromString(self._specs.get(len(encoded), encoded, compute))

    def _validate(self, obj: CustomResourceDefinition, old: CustomResourceDefinition | None) -> list[Violation]:
        key = _validation_cache_key(obj), _validation_cache_key(old) if old is not None else None
        return self._violations.get(
            len(key[0]),
            key,
            lambda: definitions.validate_definition(
                to_dict(obj),
                to_dict(old) if old is not None else None,
                check_rules=check_rules,
                evaluate_rules=DefaultRules(),
            ),
        )

    def prepare_delete(self, obj: CustomResourceDefinition, why: Disruption | None, now: float) -> None:
        obj.metadata.ClearField("deletionGracePeriodSeconds")
        if not any(condition.type == "Terminating" for condition in obj.status.conditions):
            form = to_dict(obj)
            status = form.setdefault("status", {})
            instant = format_rfc3339(to_time(now))
            set_condition(status, terminating_condition("InstanceDeletionPending", _PENDING, instant))
            _set_fields_from_form(obj, form, "status")


def _validation_cache_key(obj: CustomResourceDefinition) -> bytes:
    """Return the parts of a definition on which its violations depend."""
    part = CustomResourceDefinition(spec=obj.spec, status=obj.status)
    part.metadata.name = obj.metadata.name
    part.metadata.annotations.update(obj.metadata.annotations)
    if obj.metadata.HasField("deletionTimestamp"):
        part.metadata.deletionTimestamp.CopyFrom(obj.metadata.deletionTimestamp)
    encoded: bytes = part.SerializeToString(deterministic=True)
    return encoded


def _without_schemas(obj: CustomResourceDefinition) -> dict[str, Any]:
    """Return the JSON form without schemas, which are most of it."""
    light = CustomResourceDefinition(metadata=obj.metadata, status=obj.status)
    light.spec.group, light.spec.scope = obj.spec.group, obj.spec.scope
    light.spec.names.CopyFrom(obj.spec.names)
    for version in obj.spec.versions:
        light.spec.versions.add(name=version.name, served=version.served, storage=version.storage)
    return to_dict(light)


def _metadata_violations(obj: CustomResourceDefinition) -> list[Violation]:
    """Return the violations in the metadata. The name belongs to the spec."""
    out: list[Violation] = []
    validate_metadata(obj.metadata, out, namespaced=False, name_check=lambda name: (), any_finalizer=True)
    return out


def _merge_violations(metadata: list[Violation], others: list[Violation]) -> list[Violation]:
    """A missing name is not also a wrong one."""
    fields = {violation.field for violation in metadata}
    return metadata + [violation for violation in others if violation.field not in fields]


def _set_fields_from_form(obj: CustomResourceDefinition, form: dict[str, Any], *fields: str) -> None:
    """Set fields of the object to those of its JSON form."""
    parts: Any = from_dict(CUSTOM_RESOURCE_DEFINITIONS, {name: form[name] for name in fields if name in form})
    carry_over_fields(obj, parts, *fields)
