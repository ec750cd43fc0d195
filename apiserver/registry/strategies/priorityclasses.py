"""Priority classes: preempt, unless they say otherwise."""

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.priorityclasses import validate_priority_class, validate_priority_class_update
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.api.status import Violation


class PriorityClassStrategy(Strategy[PriorityClass]):
    def prepare_create(self, obj: PriorityClass) -> None:
        if not obj.HasField("preemptionPolicy"):
            obj.preemptionPolicy = "PreemptLowerPriority"

    def validate(self, obj: PriorityClass) -> list[Violation]:
        return validate_priority_class(obj)

    def prepare_update(self, obj: PriorityClass, old: PriorityClass) -> None:
        if not obj.HasField("preemptionPolicy"):
            obj.preemptionPolicy = old.preemptionPolicy

    def validate_update(self, obj: PriorityClass, old: PriorityClass) -> list[Violation]:
        return validate_priority_class_update(obj, old)
