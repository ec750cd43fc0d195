"""Namespaces: begin as Active, and carry a finalizer of the system that keeps them until they are empty. Their names are DNS
labels, because they become parts of names."""

from apiserver.registry.strategy import Strategy, carry_over
from apiserver.registry.validation.labels import validate_key
from pinnace.api import names
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.status import Violation
from pinnace.api.verbs_pb2 import Disruption

FINALIZER = "kubernetes"
NAME_LABEL = "kubernetes.io/metadata.name"
"""So that selectors of namespaces can name one."""


class NamespaceStrategy(Strategy[Namespace]):
    check_name = staticmethod(names.dns_label)

    def set_defaults(self, obj: Namespace) -> None:
        obj.metadata.labels[NAME_LABEL] = obj.metadata.name

    def prepare_create(self, obj: Namespace) -> None:
        super().prepare_create(obj)
        obj.ClearField("status")
        obj.status.phase = "Active"
        if FINALIZER not in obj.spec.finalizers:
            obj.spec.finalizers.append(FINALIZER)

    def prepare_update(self, obj: Namespace, old: Namespace) -> None:
        super().prepare_update(obj, old)
        carry_over(obj, old, "spec", "status")

    def check_new(self, obj: Namespace, out: list[Violation]) -> None:
        for index, finalizer in enumerate(obj.spec.finalizers):
            validate_key(finalizer, f"spec.finalizers[{index}]", out)

    def holds_others(self, obj: Namespace) -> bool:
        return bool(obj.spec.finalizers)

    def prepare_delete(self, obj: Namespace, why: Disruption | None, now: float) -> None:
        obj.status.phase = "Terminating"
