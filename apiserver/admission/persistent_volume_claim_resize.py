"""PersistentVolumeClaimResize: a claim grows only if its class says that volumes of it can.

What a claim asks for is what it was promised: where nobody makes its volume larger, it would be told a size that it never gets.

Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#persistentvolumeclaimresize
"""

from apiserver import errors
from apiserver.cacher.resource import ResourceCache
from apiserver.errors import Rejected
from apiserver.registry.admission import Operation, Request
from apiserver.registry.validation.persistentvolumeclaims import size_of
from pinnace.api.core_v1_pb2 import PersistentVolumeClaim
from pinnace.api.pods import class_of
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES
from pinnace.api.storage_v1_pb2 import StorageClass

_REFUSED = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize "
    "(allowVolumeExpansion)"
)


class PersistentVolumeClaimResize:
    asked = ((Operation.UPDATE, PERSISTENT_VOLUME_CLAIMS),)

    def __init__(self, classes: ResourceCache[StorageClass]) -> None:
        self._classes = classes

    def validate(self, request: Request, operation: Operation, obj: PersistentVolumeClaim, old: PersistentVolumeClaim) -> None:
        if size_of(obj.spec.resources.requests) <= size_of(old.spec.resources.requests):
            return
        entry = self._classes.get(STORAGE_CLASSES.key("", class_of(old)))
        if class_of(obj) != class_of(old) or entry is None or not entry.obj.allowVolumeExpansion:
            what = f'{PERSISTENT_VOLUME_CLAIMS.plural} "{obj.metadata.name}" is forbidden'
            raise Rejected(errors.forbidden(f"{what}: {_REFUSED}"))
