"""Which storage class a claim or a volume is of.

Source: pkg/apis/core/v1/helper of Kubernetes 1.36, GetPersistentVolumeClaimClass and GetPersistentVolumeClass.
"""

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.wellknown import CLASS_ANNOTATION


def class_of(obj: PersistentVolumeClaim | PersistentVolume) -> str:
    """The name of its storage class; empty for none. The annotation counts before the field, also when it is empty."""
    return obj.metadata.annotations.get(CLASS_ANNOTATION, obj.spec.storageClassName)
