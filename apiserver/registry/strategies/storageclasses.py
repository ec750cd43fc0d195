"""Storage classes: volumes are deleted with their claims, and bound at once, unless they say otherwise."""

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.storageclasses import validate_storage_class, validate_storage_class_update
from pinnace.api.status import Violation
from pinnace.api.storage_v1_pb2 import StorageClass


class StorageClassStrategy(Strategy[StorageClass]):
    def prepare_create(self, obj: StorageClass) -> None:
        _set_defaults(obj)

    def validate(self, obj: StorageClass) -> list[Violation]:
        return validate_storage_class(obj)

    def prepare_update(self, obj: StorageClass, old: StorageClass) -> None:
        _set_defaults(obj)

    def validate_update(self, obj: StorageClass, old: StorageClass) -> list[Violation]:
        return validate_storage_class_update(obj, old)


def _set_defaults(storage_class: StorageClass) -> None:
    if not storage_class.HasField("reclaimPolicy"):
        storage_class.reclaimPolicy = "Delete"
    if not storage_class.HasField("volumeBindingMode"):
        storage_class.volumeBindingMode = "Immediate"
