"""Leases: kept as they come."""

from apiserver.registry.strategies.without_status import WithoutStatus
from apiserver.registry.validation.leases import validate_lease, validate_lease_update
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.status import Violation


class LeaseStrategy(WithoutStatus):
    def prepare_create(self, obj: Lease) -> None:
        """No defaults."""

    def validate(self, obj: Lease) -> list[Violation]:
        return validate_lease(obj)

    def prepare_update(self, obj: Lease, old: Lease) -> None:
        """No defaults."""

    def validate_update(self, obj: Lease, old: Lease) -> list[Violation]:
        return validate_lease_update(obj, old)
