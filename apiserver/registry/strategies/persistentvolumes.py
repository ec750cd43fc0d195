"""Persistent volumes: kept when their claim goes, unless they say otherwise; available from the start.

In Kubernetes a volume is born Pending, and its volume controller makes it Available a moment later. Until there is such a
controller here, nothing would.
"""

from apiserver.registry.strategies.pod_defaults import default_source
from apiserver.registry.strategy import StatusStrategy, carry_over
from apiserver.registry.validation.persistentvolumes import (
    validate_persistent_volume,
    validate_persistent_volume_status,
    validate_persistent_volume_update,
)
from pinnace.api.core_v1_pb2 import PersistentVolume
from pinnace.api.status import Violation


class PersistentVolumeStrategy(StatusStrategy[PersistentVolume]):
    def prepare_create(self, obj: PersistentVolume) -> None:
        _set_defaults(obj)
        obj.ClearField("status")
        obj.status.phase = "Available"

    def validate(self, obj: PersistentVolume) -> list[Violation]:
        return validate_persistent_volume(obj)

    def prepare_update(self, obj: PersistentVolume, old: PersistentVolume) -> None:
        _set_defaults(obj)
        carry_over(obj, old, "status")

    def validate_update(self, obj: PersistentVolume, old: PersistentVolume) -> list[Violation]:
        return validate_persistent_volume_update(obj, old)

    def prepare_status_update(self, obj: PersistentVolume, old: PersistentVolume) -> None:
        carry_over(obj, old, "metadata", "spec")

    def validate_status_update(self, obj: PersistentVolume, old: PersistentVolume) -> list[Violation]:
        return validate_persistent_volume_status(obj)


def _set_defaults(volume: PersistentVolume) -> None:
    spec = volume.spec
    if not spec.persistentVolumeReclaimPolicy:
        spec.persistentVolumeReclaimPolicy = "Retain"
    if not spec.HasField("volumeMode"):
        spec.volumeMode = "Filesystem"
    if spec.HasField("persistentVolumeSource"):
        default_source(spec.persistentVolumeSource)
