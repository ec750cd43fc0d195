"""Claims of volumes: pending until they are bound; what they ask for does not change."""

from apiserver.registry.strategies.pod_defaults import default_claim
from apiserver.registry.strategy import StatusStrategy, carry_over
from apiserver.registry.validation.persistentvolumeclaims import (
    validate_claim,
    validate_claim_status,
    validate_claim_update,
)
from pinnace.api.core_v1_pb2 import PersistentVolumeClaim
from pinnace.api.status import Violation


class PersistentVolumeClaimStrategy(StatusStrategy[PersistentVolumeClaim]):
    def prepare_create(self, obj: PersistentVolumeClaim) -> None:
        default_claim(obj.spec)
        obj.ClearField("status")
        obj.status.phase = "Pending"

    def validate(self, obj: PersistentVolumeClaim) -> list[Violation]:
        return validate_claim(obj)

    def prepare_update(self, obj: PersistentVolumeClaim, old: PersistentVolumeClaim) -> None:
        default_claim(obj.spec)
        carry_over(obj, old, "status")

    def validate_update(self, obj: PersistentVolumeClaim, old: PersistentVolumeClaim) -> list[Violation]:
        return validate_claim_update(obj, old)

    def prepare_status_update(self, obj: PersistentVolumeClaim, old: PersistentVolumeClaim) -> None:
        carry_over(obj, old, "metadata", "spec")

    def validate_status_update(self, obj: PersistentVolumeClaim, old: PersistentVolumeClaim) -> list[Violation]:
        return validate_claim_status(obj)
