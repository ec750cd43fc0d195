"""Replica sets in a table.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printReplicaSet.
"""

from pinnace.api.apps_v1_pb2 import ReplicaSet
from pinnace.printers.ages import since
from pinnace.printers.columns import Columns
from pinnace.printers.templates import WIDE, wide


def row(replica_set: ReplicaSet, now: float) -> tuple[str, ...]:
    spec, status = replica_set.spec, replica_set.status
    return (
        replica_set.metadata.name,
        str(spec.replicas),
        str(status.replicas),
        str(status.readyReplicas),
        since(replica_set.metadata.creationTimestamp, now),
        *wide(spec.template, spec.selector),
    )


COLUMNS = Columns(
    headers=("NAME", "DESIRED", "CURRENT", "READY", "AGE"),
    wide=WIDE,
    row=row,
)
