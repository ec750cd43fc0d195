"""Bindings of roles, in a namespace and in the cluster: the API group of RBAC need not be written out."""

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.rolebindings import GROUP, AnyBinding, validate_binding, validate_binding_update
from pinnace.api.status import Violation


class RoleBindingStrategy(Strategy[AnyBinding]):
    def prepare_create(self, obj: AnyBinding) -> None:
        _set_defaults(obj)

    def validate(self, obj: AnyBinding) -> list[Violation]:
        return validate_binding(obj)

    def prepare_update(self, obj: AnyBinding, old: AnyBinding) -> None:
        _set_defaults(obj)

    def validate_update(self, obj: AnyBinding, old: AnyBinding) -> list[Violation]:
        return validate_binding_update(obj, old)


def _set_defaults(binding: AnyBinding) -> None:
    binding.roleRef.apiGroup = binding.roleRef.apiGroup or GROUP
    for subject in binding.subjects:
        if not subject.apiGroup and subject.kind in ("User", "Group"):
            subject.apiGroup = GROUP
