"""Namespaces in a table."""

from pinnace.api.core_v1_pb2 import Namespace
from pinnace.printers.ages import since
from pinnace.printers.columns import Columns


def row(namespace: Namespace, now: float) -> tuple[str, ...]:
    return namespace.metadata.name, namespace.status.phase, since(namespace.metadata.creationTimestamp, now)


COLUMNS = Columns(headers=("NAME", "STATUS", "AGE"), wide=(), row=row)
