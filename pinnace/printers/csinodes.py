"""Nodes and their CSI drivers in a table."""

from pinnace.api.storage_v1_pb2 import CSINode
from pinnace.printers.ages import since
from pinnace.printers.columns import Columns


def row(node: CSINode, now: float) -> tuple[str, ...]:
    return node.metadata.name, str(len(node.spec.drivers)), since(node.metadata.creationTimestamp, now)


COLUMNS = Columns(headers=("NAME", "DRIVERS", "AGE"), wide=(), row=row)
