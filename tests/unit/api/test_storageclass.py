"""The storage class of a claim or a volume."""

import pytest

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.pods import class_of
from pinnace.api.wellknown import CLASS_ANNOTATION


@pytest.mark.parametrize("kind", [PersistentVolume, PersistentVolumeClaim])
@pytest.mark.parametrize(
    ("annotation", "field", "expected"), [(None, "", ""), (None, "fast", "fast"), ("slow", "fast", "slow"), ("", "fast", "")]
)
def test_annotation_overrides_the_field(
    kind: type[PersistentVolume | PersistentVolumeClaim], annotation: str | None, field: str, expected: str
) -> None:
    obj = kind()
    obj.spec.storageClassName = field
    if annotation is not None:
        obj.metadata.annotations[CLASS_ANNOTATION] = annotation
    assert class_of(obj) == expected
    assert (CLASS_ANNOTATION in obj.metadata.annotations) is (annotation is not None), "reading changed the annotations"
