"""DefaultStorageClass: a claim that names no class gets the default one.

Source: https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass
"""

from apiserver.cacher.resource import ResourceCache
from apiserver.cacher.store import Selection
from apiserver.registry.admission import Request
from pinnace.api.core_v1_pb2 import PersistentVolumeClaim
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.wellknown import CLASS_ANNOTATION, DEFAULT_CLASS_ANNOTATION


class DefaultStorageClass:
    resources = (PERSISTENT_VOLUME_CLAIMS,)

    def __init__(self, classes: ResourceCache[StorageClass]) -> None:
        self._classes = classes
        self._everything = Selection.parse(STORAGE_CLASSES, "", "", "")

    def admit(self, request: Request, obj: PersistentVolumeClaim) -> None:
        """A class that is named, be it the empty one, stays."""
        if obj.spec.HasField("storageClassName") or CLASS_ANNOTATION in obj.metadata.annotations:
            return
        if default := self._default():
            obj.spec.storageClassName = default

    def _default(self) -> str:
        """Of several the youngest, and of those the first by name, as Kubernetes does; empty: there is none."""
        found = [entry.obj for entry in self._classes.select(self._everything)]
        marked = [each.metadata for each in found if each.metadata.annotations.get(DEFAULT_CLASS_ANNOTATION) == "true"]
        youngest = min(marked, key=lambda each: (-each.creationTimestamp.seconds, each.name), default=None)
        return youngest.name if youngest is not None else ""
