"""What the CSI drivers of a node can attach.

Source: pkg/apis/storage/validation of Kubernetes 1.36.
"""

from collections.abc import Sequence

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.labels import validate_key
from apiserver.registry.validation.sources import validate_driver
from apiserver.registry.validation.violations import IMMUTABLE, NEGATIVE, duplicate, invalid, required
from pinnace.api.status import Violation
from pinnace.api.storage_v1_pb2 import CSINode, CSINodeDriver

MAX_NODE_ID = 192


class CSINodeStrategy(Strategy[CSINode]):
    allow_unconditional_update = False

    def check(self, obj: CSINode, out: list[Violation]) -> None:
        _validate_drivers(obj.spec.drivers, out)

    def check_change(self, new: CSINode, old: CSINode, out: list[Violation]) -> None:
        before = {driver.name: driver for driver in old.spec.drivers}
        for index, driver in enumerate(new.spec.drivers):
            known = before.get(driver.name)
            if known is not None and _fixed(driver) != _fixed(known):
                out.append(invalid(f"spec.drivers[{index}]", driver.name, IMMUTABLE))


def _fixed(driver: CSINodeDriver) -> tuple[str, list[str]]:
    return driver.nodeID, list(driver.topologyKeys)


def _validate_drivers(drivers: Sequence[CSINodeDriver], out: list[Violation]) -> None:
    seen: set[str] = set()
    for index, driver in enumerate(drivers):
        path = f"spec.drivers[{index}]"
        if not driver.name:
            out.append(required(f"{path}.name"))
        validate_driver(driver.name, f"{path}.name", out)
        if driver.name in seen:
            out.append(duplicate(f"{path}.name", driver.name))
        seen.add(driver.name)
        if not driver.nodeID:
            out.append(required(f"{path}.nodeID"))
        elif len(driver.nodeID) > MAX_NODE_ID:
            out.append(invalid(f"{path}.nodeID", driver.nodeID, f"must be {MAX_NODE_ID} characters or less"))
        if driver.allocatable.count < 0:
            out.append(invalid(f"{path}.allocatable.count", driver.allocatable.count, NEGATIVE))
        keys: set[str] = set()
        for key in driver.topologyKeys:
            if key in keys:
                out.append(duplicate(f"{path}.topologyKeys", key))
            keys.add(key)
            validate_key(key, f"{path}.topologyKeys", out)
