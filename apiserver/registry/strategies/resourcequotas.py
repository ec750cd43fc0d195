"""Quotas: born without a status, which is whoever's who counts."""

from apiserver.registry.strategy import StatusStrategy, carry_over
from apiserver.registry.validation.resourcequotas import validate_quota, validate_quota_status, validate_quota_update
from pinnace.api.core_v1_pb2 import ResourceQuota
from pinnace.api.status import Violation


class ResourceQuotaStrategy(StatusStrategy[ResourceQuota]):
    def prepare_create(self, obj: ResourceQuota) -> None:
        obj.ClearField("status")

    def validate(self, obj: ResourceQuota) -> list[Violation]:
        return validate_quota(obj)

    def prepare_update(self, obj: ResourceQuota, old: ResourceQuota) -> None:
        """What was counted stays, unless something else is to be counted now: who charges the quota relies on it."""
        carry_over(obj, old, "status")
        if obj.spec.hard.keys() != old.spec.hard.keys() or obj.spec.scopeSelector != old.spec.scopeSelector:
            obj.ClearField("status")

    def validate_update(self, obj: ResourceQuota, old: ResourceQuota) -> list[Violation]:
        return validate_quota_update(obj, old)

    def prepare_status_update(self, obj: ResourceQuota, old: ResourceQuota) -> None:
        carry_over(obj, old, "metadata", "spec")

    def validate_status_update(self, obj: ResourceQuota, old: ResourceQuota) -> list[Violation]:
        return validate_quota_status(obj)
