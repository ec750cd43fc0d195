"""Replica sets: a selector that finds the pods of the template, and stays; one pod unless they say more.

Source: pkg/apis/apps/validation of Kubernetes 1.36.
"""

from collections.abc import Iterable

from apiserver.registry.strategies.pod_defaults import set_template_defaults
from apiserver.registry.strategy import StatusStrategy
from apiserver.registry.validation.pod_templates import (
    validate_parts,
    validate_replicated,
    validate_selector_update,
    workload_warnings,
)
from pinnace.api.apps_v1_pb2 import ReplicaSet
from pinnace.api.status import Violation


class ReplicaSetStrategy(StatusStrategy[ReplicaSet]):
    def set_defaults(self, obj: ReplicaSet) -> None:
        """Source: pkg/apis/apps/v1/defaults.go of Kubernetes 1.36."""
        set_template_defaults(obj.spec.template.spec)
        if not obj.spec.HasField("replicas"):
            obj.spec.replicas = 1

    def check(self, obj: ReplicaSet, out: list[Violation]) -> None:
        validate_replicated(obj.spec, out)

    def warnings(self, obj: ReplicaSet) -> Iterable[str]:
        return workload_warnings(obj.metadata.name, obj.spec.template)

    def check_change(self, new: ReplicaSet, old: ReplicaSet, out: list[Violation]) -> None:
        validate_selector_update(new.spec, old.spec, out)

    def check_status(self, obj: ReplicaSet, out: list[Violation]) -> None:
        validate_parts(obj.status, ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"), out)
