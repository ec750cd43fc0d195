"""Storage classes, and what nodes can attach."""

from typing import Any, ClassVar

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import CSI_NODES, STORAGE_CLASSES
from tests.unit.registry.objects import Data, changed, created, status_changed


def storage_class(**fields: Any) -> Any:
    return from_dict(STORAGE_CLASSES, {"metadata": {"name": "fast"}, "provisioner": "example.com/disks", **fields})


def csi_node(*drivers: Data) -> Any:
    return from_dict(CSI_NODES, {"metadata": {"name": "n"}, "spec": {"drivers": list(drivers)}})


class TestStorageClasses:
    def test_defaults(self) -> None:
        obj = storage_class()
        assert created(STORAGE_CLASSES, obj) == []
        assert (obj.reclaimPolicy, obj.volumeBindingMode) == ("Delete", "Immediate")

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"provisioner": ""}, ["provisioner: Required value"]),
            ({"parameters": {"": "x"}}, ['parameters: Invalid value: "": field can not be empty.']),
            ({"parameters": {"a": "x" * (256 << 10)}}, ["parameters: Too long: may not be more than 262144 bytes"]),
            (
                {"reclaimPolicy": "Recycle"},
                ['reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"'],
            ),
            (
                {"volumeBindingMode": "x"},
                ['volumeBindingMode: Unsupported value: "x": supported values: "Immediate", "WaitForFirstConsumer"'],
            ),
            ({"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]}, []),
            (
                {"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "a"]}, {"key": "zone"}]}]},
                [
                    'allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "a"',
                    "allowedTopologies[0].matchLabelExpressions[1].values: Required value",
                    'allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: "zone"',
                ],
            ),
            (
                {"allowedTopologies": [{}, {}]},
                ['allowedTopologies[1].matchLabelExpressions: Duplicate value: ""'],
            ),
        ],
    )
    def test_fields(self, fields: Data, expected: list[str]) -> None:
        assert created(STORAGE_CLASSES, storage_class(**fields)) == expected

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"allowVolumeExpansion": True, "mountOptions": ["ro"]}, []),
            ({"provisioner": "example.com/others"}, ["provisioner: Forbidden: updates to provisioner are forbidden."]),
            ({"parameters": {"a": "b"}}, ["parameters: Forbidden: updates to parameters are forbidden."]),
            ({"reclaimPolicy": "Retain"}, ["reclaimPolicy: Forbidden: updates to reclaimPolicy are forbidden."]),
            (
                {"volumeBindingMode": "WaitForFirstConsumer"},
                ['volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable'],
            ),
        ],
    )
    def test_update(self, fields: Data, expected: list[str]) -> None:
        old = storage_class()
        assert created(STORAGE_CLASSES, old) == []
        assert changed(STORAGE_CLASSES, storage_class(**fields), old) == expected

    def test_there_is_no_status(self) -> None:
        assert len(status_changed(STORAGE_CLASSES, storage_class(), storage_class())) == 1


class TestCSINodes:
    DRIVER: ClassVar[Data] = {
        "name": "disks.example.com",
        "nodeID": "i-1",
        "topologyKeys": ["zone"],
        "allocatable": {"count": 3},
    }

    @pytest.mark.parametrize(
        ("drivers", "expected"),
        [
            ([DRIVER], []),
            ([DRIVER, DRIVER], ['spec.drivers[1].name: Duplicate value: "disks.example.com"']),
            ([{}], ["spec.drivers[0].name: Required value", "spec.drivers[0].nodeID: Required value"]),
            (
                [DRIVER | {"name": "x" * 64}],
                [f'spec.drivers[0].name: Invalid value: "{"x" * 64}": must be no more than 63 characters'],
            ),
            (
                [DRIVER | {"nodeID": "x" * 193}],
                [f'spec.drivers[0].nodeID: Invalid value: "{"x" * 128}...": must be 192 characters or less'],
            ),
            (
                [DRIVER | {"allocatable": {"count": -1}}],
                ["spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0"],
            ),
            ([DRIVER | {"topologyKeys": ["a", "a"]}], ['spec.drivers[0].topologyKeys: Duplicate value: "a"']),
        ],
    )
    def test_drivers(self, drivers: list[Data], expected: list[str]) -> None:
        assert created(CSI_NODES, csi_node(*drivers)) == expected

    @pytest.mark.parametrize(
        ("drivers", "expected"),
        [
            ([], []),
            ([DRIVER | {"allocatable": {"count": 9}}, {"name": "other", "nodeID": "x"}], []),
            ([DRIVER | {"nodeID": "i-2"}], ['spec.drivers[0]: Invalid value: "disks.example.com": field is immutable']),
        ],
    )
    def test_update(self, drivers: list[Data], expected: list[str]) -> None:
        assert changed(CSI_NODES, csi_node(*drivers), csi_node(self.DRIVER)) == expected
