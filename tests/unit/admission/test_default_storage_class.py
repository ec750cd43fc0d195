"""The class of a claim that names none."""

import pytest

from pinnace.api.core_v1_pb2 import PersistentVolumeClaim
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.wellknown import DEFAULT_CLASS_ANNOTATION
from pinnace.apiserver.admission.defaults import DefaultStorageClass
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.storage.interface import KeyValue
from tests.storage.memory import MemoryStorage


def stored(name: str, seconds: int, default: str = "true") -> KeyValue:
    obj = StorageClass(provisioner="example.com/disks")
    obj.metadata.name, obj.metadata.creationTimestamp.seconds = name, seconds
    obj.metadata.annotations[DEFAULT_CLASS_ANNOTATION] = default
    return KeyValue(STORAGE_CLASSES.key("", name), obj.SerializeToString(), 1, 1, 1)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([], None),
        ([stored("slow", 1, default="false")], None),
        ([stored("fast", 1), stored("slow", 9, default="false")], "fast"),
        ([stored("old", 1), stored("b", 2), stored("a", 2)], "a"),
    ],
)
def test_default(classes: list[KeyValue], expected: str | None) -> None:
    cacher = Cacher(MemoryStorage())
    cacher.install_state(5, classes)
    plugin = DefaultStorageClass(cacher.cache_of(STORAGE_CLASSES))
    silent, none, old = PersistentVolumeClaim(), PersistentVolumeClaim(), PersistentVolumeClaim()
    none.spec.storageClassName = ""
    old.metadata.annotations["volume.beta.kubernetes.io/storage-class"] = "x"
    for claim in (silent, none, old):
        plugin.admit(PERSISTENT_VOLUME_CLAIMS, claim)
    assert (silent.spec.storageClassName if silent.spec.HasField("storageClassName") else None) == expected
    assert none.spec.storageClassName == "" and not old.spec.HasField("storageClassName")
