"""Limit ranges in a table.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printLimitRange.
"""

from pinnace.api.core_v1_pb2 import LimitRange
from pinnace.printers.ages import created_at
from pinnace.printers.columns import Columns


def row(limit_range: LimitRange, now: float) -> tuple[str, ...]:
    return limit_range.metadata.name, created_at(limit_range.metadata.creationTimestamp)


COLUMNS = Columns(headers=("NAME", "CREATED AT"), wide=(), row=row)
