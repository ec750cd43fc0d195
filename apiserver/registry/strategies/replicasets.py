"""Replica sets: one pod unless they say more; the status is whoever's who makes the pods."""

from apiserver.registry.strategies.pod_defaults import set_template_defaults
from apiserver.registry.strategy import StatusStrategy, carry_over
from apiserver.registry.validation.replicasets import (
    validate_replica_set,
    validate_replica_set_status,
    validate_replica_set_update,
)
from pinnace.api.apps_v1_pb2 import ReplicaSet
from pinnace.api.status import Violation


class ReplicaSetStrategy(StatusStrategy[ReplicaSet]):
    def prepare_create(self, obj: ReplicaSet) -> None:
        _set_defaults(obj)
        obj.ClearField("status")

    def validate(self, obj: ReplicaSet) -> list[Violation]:
        return validate_replica_set(obj)

    def prepare_update(self, obj: ReplicaSet, old: ReplicaSet) -> None:
        _set_defaults(obj)
        carry_over(obj, old, "status")

    def validate_update(self, obj: ReplicaSet, old: ReplicaSet) -> list[Violation]:
        return validate_replica_set_update(obj, old)

    def prepare_status_update(self, obj: ReplicaSet, old: ReplicaSet) -> None:
        carry_over(obj, old, "metadata", "spec")

    def validate_status_update(self, obj: ReplicaSet, old: ReplicaSet) -> list[Violation]:
        return validate_replica_set_status(obj)


def _set_defaults(replica_set: ReplicaSet) -> None:
    """Source: pkg/apis/apps/v1/defaults.go of Kubernetes 1.36."""
    set_template_defaults(replica_set.spec.template.spec)
    if not replica_set.spec.HasField("replicas"):
        replica_set.spec.replicas = 1
