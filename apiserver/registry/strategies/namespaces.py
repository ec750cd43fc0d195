"""Namespaces: begin as Active, and carry a finalizer of the system that keeps them until they are empty."""

from apiserver.registry.strategy import Strategy, carry_over
from apiserver.registry.validation.namespaces import validate_namespace, validate_namespace_update
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.status import Violation

FINALIZER = "kubernetes"
NAME_LABEL = "kubernetes.io/metadata.name"
"""So that selectors of namespaces can name one."""


class NamespaceStrategy(Strategy[Namespace]):
    def prepare_create(self, obj: Namespace) -> None:
        obj.ClearField("status")
        obj.status.phase = "Active"
        if FINALIZER not in obj.spec.finalizers:
            obj.spec.finalizers.append(FINALIZER)
        obj.metadata.labels[NAME_LABEL] = obj.metadata.name

    def validate(self, obj: Namespace) -> list[Violation]:
        return validate_namespace(obj)

    def prepare_update(self, obj: Namespace, old: Namespace) -> None:
        carry_over(obj, old, "spec", "status")
        obj.metadata.labels[NAME_LABEL] = obj.metadata.name

    def validate_update(self, obj: Namespace, old: Namespace) -> list[Violation]:
        return validate_namespace_update(obj, old)
