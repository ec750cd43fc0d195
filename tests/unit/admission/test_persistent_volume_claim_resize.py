"""Which claims may ask for more than they did."""

import pytest

from pinnace.api.core_v1_pb2 import PersistentVolumeClaim
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import STORAGE_CLASSES
from pinnace.api.status import Code
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.wellknown import CLASS_ANNOTATION
from pinnace.apiserver.admission.defaults import PersistentVolumeClaimResize
from pinnace.apiserver.auth.authentication import UNSECURED
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteRequest
from pinnace.apiserver.storage.interface import KeyValue
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import OWN, serving
from tests.unit.registry.test_creating import asked, call

CLASSES = (
    StorageClass(metadata=ObjectMeta(name="grows"), provisioner="example.com/disks", allowVolumeExpansion=True),
    StorageClass(metadata=ObjectMeta(name="fixed"), provisioner="example.com/disks"),
)


def claim(size: str, class_name: str = "", annotation: str = "") -> PersistentVolumeClaim:
    made = PersistentVolumeClaim(metadata=ObjectMeta(name="c", namespace=OWN))
    made.spec.accessModes.append("ReadWriteOnce")
    made.spec.storageClassName = class_name
    made.spec.resources.requests["storage"].string = size
    if annotation:
        made.metadata.annotations[CLASS_ANNOTATION] = annotation
    return made


def plugin() -> PersistentVolumeClaimResize:
    cacher = Cacher(MemoryStorage())
    stored = [
        (STORAGE_CLASSES.key("", storage_class.metadata.name), storage_class.SerializeToString()) for storage_class in CLASSES
    ]
    cacher.install_state(5, [KeyValue(key, value, 1, 1, 1) for key, value in stored])
    return PersistentVolumeClaimResize(cacher.cache_of(STORAGE_CLASSES))


@pytest.mark.parametrize(
    ("class_name", "annotation", "size", "allowed"),
    [
        ("grows", "", "2Gi", True),
        ("fixed", "", "2Gi", False),
        ("", "", "2Gi", False),
        ("gone", "", "2Gi", False),
        ("fixed", "grows", "2Gi", True),
        ("grows", "fixed", "2Gi", False),
        ("fixed", "", "1024Mi", True),
        ("fixed", "", "512Mi", True),  # whether it may shrink is not asked here
    ],
)
def test_its_class_says_whether_it_may_grow(class_name: str, annotation: str, size: str, allowed: bool) -> None:
    old, new = claim("1Gi", class_name, annotation), claim(size, class_name, annotation)
    try:
        plugin().validate(WriteRequest(UNSECURED), AdmissionOperation.UPDATE, new, old)
    except Rejected as rejected:
        assert not allowed
        assert rejected.refusal.message == (
            'persistentvolumeclaims "c" is forbidden: only dynamically provisioned pvc can be resized and the storageclass '
            "that provisions the pvc must support resize (allowVolumeExpansion)"
        )
    else:
        assert allowed


@pytest.mark.parametrize(("before", "after"), [("fixed", "grows"), ("grows", "fixed")])
def test_claim_grows_within_its_storage_class(before: str, after: str) -> None:
    with pytest.raises(Rejected, match="must support resize"):
        plugin().validate(WriteRequest(UNSECURED), AdmissionOperation.UPDATE, claim("2Gi", after), claim("1Gi", before))


async def test_bound_claim_of_a_class_that_does_not_grow_stays_as_it_is() -> None:
    async with serving() as assembly:
        for storage_class in CLASSES:
            await call(assembly, "StorageClasses/Create", asked(assembly, "StorageClasses/Create", storage_class))
        for class_name, allowed in (("fixed", False), ("grows", True)):
            wanted = claim("1Gi", class_name)
            wanted.metadata.name = class_name
            made = await call(
                assembly, "PersistentVolumeClaims/Create", asked(assembly, "PersistentVolumeClaims/Create", wanted)
            )
            bound = PersistentVolumeClaim.FromString(made)
            bound.metadata.resourceVersion, bound.status.phase = "", "Bound"
            request = asked(assembly, "PersistentVolumeClaims/UpdateStatus", bound)
            await call(assembly, "PersistentVolumeClaims/UpdateStatus", request)
            await assembly.cacher.wait_until_fresh(5)
            bound.spec.resources.requests["storage"].string = "1Ti"
            request = asked(assembly, "PersistentVolumeClaims/Update", bound)
            if allowed:
                assert await call(assembly, "PersistentVolumeClaims/Update", request)
                continue
            with pytest.raises(Rejected, match="must support resize") as caught:
                await call(assembly, "PersistentVolumeClaims/Update", request)
            assert caught.value.refusal.code is Code.PERMISSION_DENIED
