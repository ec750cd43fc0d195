"""Disruption budgets: born without a status, which is whoever's who counts the pods."""

from apiserver.registry.strategy import StatusStrategy, carry_over
from apiserver.registry.validation.poddisruptionbudgets import validate_budget, validate_budget_status, validate_budget_update
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.status import Violation


class PodDisruptionBudgetStrategy(StatusStrategy[PodDisruptionBudget]):
    def prepare_create(self, obj: PodDisruptionBudget) -> None:
        obj.ClearField("status")

    def validate(self, obj: PodDisruptionBudget) -> list[Violation]:
        return validate_budget(obj)

    def prepare_update(self, obj: PodDisruptionBudget, old: PodDisruptionBudget) -> None:
        carry_over(obj, old, "status")

    def validate_update(self, obj: PodDisruptionBudget, old: PodDisruptionBudget) -> list[Violation]:
        return validate_budget_update(obj, old)

    def prepare_status_update(self, obj: PodDisruptionBudget, old: PodDisruptionBudget) -> None:
        carry_over(obj, old, "metadata", "spec")

    def validate_status_update(self, obj: PodDisruptionBudget, old: PodDisruptionBudget) -> list[Violation]:
        return validate_budget_status(obj)
