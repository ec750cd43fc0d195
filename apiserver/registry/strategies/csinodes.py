"""What the CSI drivers of a node can attach: kept as it comes."""

from apiserver.registry.strategies.without_status import WithoutStatus
from apiserver.registry.validation.csinodes import validate_csi_node, validate_csi_node_update
from pinnace.api.status import Violation
from pinnace.api.storage_v1_pb2 import CSINode


class CSINodeStrategy(WithoutStatus):
    def prepare_create(self, obj: CSINode) -> None:
        """No defaults."""

    def validate(self, obj: CSINode) -> list[Violation]:
        return validate_csi_node(obj)

    def prepare_update(self, obj: CSINode, old: CSINode) -> None:
        """No defaults."""

    def validate_update(self, obj: CSINode, old: CSINode) -> list[Violation]:
        return validate_csi_node_update(obj, old)
