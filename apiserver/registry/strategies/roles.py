"""Roles and cluster roles: kept as they come."""

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.roles import AnyRole, validate_role, validate_role_update
from pinnace.api.status import Violation


class RoleStrategy(Strategy[AnyRole]):
    def prepare_create(self, obj: AnyRole) -> None:
        """No defaults."""

    def validate(self, obj: AnyRole) -> list[Violation]:
        return validate_role(obj)

    def prepare_update(self, obj: AnyRole, old: AnyRole) -> None:
        """No defaults."""

    def validate_update(self, obj: AnyRole, old: AnyRole) -> list[Violation]:
        return validate_role_update(obj, old)
