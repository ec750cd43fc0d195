"""CustomResourceDefinitions: defaults, validation, and the first steps of their deletion.

The first delete adds the finalizer `customresourcecleanup.apiextensions.k8s.io` and the condition Terminating, and does not
start a new generation. The API servers then delete the objects, and remove the finalizer
(pinnace.apiserver.customresources.controller).

Source: pkg/registry/customresourcedefinition of k8s.io/apiextensions-apiserver 1.36.
"""

from collections.abc import Iterable
from typing import Any

from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition
from pinnace.api.codec import from_dict, to_dict
from pinnace.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from pinnace.api.scalars import format_rfc3339, to_time
from pinnace.api.status import Violation
from pinnace.api.verbs_pb2 import Disruption
from pinnace.apiextensions import definitions
from pinnace.apiextensions.definitions import CLEANUP_FINALIZER
from pinnace.apiextensions.naming import set_condition, terminating_condition
from pinnace.apiserver.customresources.rules import check_schema_rules, evaluate_default_rules
from pinnace.apiserver.registry.strategy import StatusStrategy, added_violations, carry_over
from pinnace.apiserver.registry.validation.fields import validate_metadata, validate_metadata_update

_PENDING = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"


class DefinitionStrategy(StatusStrategy[CustomResourceDefinition]):
    has_generation = True
    counts_deletion = False
    finalizers_at_deletion = (CLEANUP_FINALIZER,)

    def prepare_create(self, obj: CustomResourceDefinition) -> None:
        form = to_dict(obj)
        definitions.set_definition_defaults(form)
        definitions.prepare_create(form)
        _assign(obj, form, "spec", "status")

    def prepare_update(self, obj: CustomResourceDefinition, old: CustomResourceDefinition) -> None:
        form = to_dict(obj)
        definitions.set_definition_defaults(form)
        definitions.prepare_update(form, to_dict(old))
        _assign(obj, form, "spec", "status")

    def prepare_status_update(self, obj: CustomResourceDefinition, old: CustomResourceDefinition) -> None:
        carry_over(obj, old, "metadata", "spec")

    def validate(self, obj: CustomResourceDefinition) -> list[Violation]:
        return _merge_violations(_metadata_violations(obj), self._violations(to_dict(obj), None))

    def validate_update(self, obj: CustomResourceDefinition, old: CustomResourceDefinition) -> list[Violation]:
        out = _metadata_violations(obj)
        if out:
            out = added_violations(out, _metadata_violations(old))
        validate_metadata_update(obj.metadata, old.metadata, out)
        return _merge_violations(out, self._violations(to_dict(obj), to_dict(old)))

    def _violations(self, form: dict[str, Any], old: dict[str, Any] | None) -> list[Violation]:
        return definitions.validate_definition(form, old, check_rules=check_schema_rules, evaluate_rules=evaluate_default_rules)

    def validate_status_update(self, obj: CustomResourceDefinition, old: CustomResourceDefinition) -> list[Violation]:
        return definitions.validate_definition_status(to_dict(obj), to_dict(old))

    def warnings(self, obj: CustomResourceDefinition) -> Iterable[str]:
        return definitions.definition_warnings(to_dict(obj))

    def prepare_delete(self, obj: CustomResourceDefinition, why: Disruption | None, now: float) -> None:
        obj.metadata.ClearField("deletionGracePeriodSeconds")
        if not any(condition.type == "Terminating" for condition in obj.status.conditions):
            form = to_dict(obj)
            status = form.setdefault("status", {})
            instant = format_rfc3339(to_time(now))
            set_condition(status, terminating_condition("InstanceDeletionPending", _PENDING, instant))
            _assign(obj, form, "status")


def _metadata_violations(obj: CustomResourceDefinition) -> list[Violation]:
    """Return the violations in the metadata. The name belongs to the spec."""
    out: list[Violation] = []
    validate_metadata(obj.metadata, out, namespaced=False, name_check=lambda name: (), any_finalizer=True)
    return out


def _merge_violations(metadata: list[Violation], others: list[Violation]) -> list[Violation]:
    """A missing name is not also a wrong one."""
    fields = {violation.field for violation in metadata}
    return metadata + [violation for violation in others if violation.field not in fields]


def _assign(obj: CustomResourceDefinition, form: dict[str, Any], *fields: str) -> None:
    """Set fields of the object to those of its JSON form."""
    parts: Any = from_dict(CUSTOM_RESOURCE_DEFINITIONS, {name: form[name] for name in fields if name in form})
    carry_over(obj, parts, *fields)
