"""Leases in a table."""

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.printers.ages import since
from pinnace.printers.columns import NONE, Columns


def row(lease: Lease, now: float) -> tuple[str, ...]:
    return lease.metadata.name, lease.spec.holderIdentity or NONE, since(lease.metadata.creationTimestamp, now)


COLUMNS = Columns(headers=("NAME", "HOLDER", "AGE"), wide=(), row=row)
