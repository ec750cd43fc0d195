"""Deployments in a table.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printDeployment.
"""

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.printers.ages import since
from pinnace.printers.columns import Columns
from pinnace.printers.templates import WIDE, wide


def row(deployment: Deployment, now: float) -> tuple[str, ...]:
    spec, status = deployment.spec, deployment.status
    return (
        deployment.metadata.name,
        f"{status.readyReplicas}/{spec.replicas}",
        str(status.updatedReplicas),
        str(status.availableReplicas),
        since(deployment.metadata.creationTimestamp, now),
        *wide(spec.template, spec.selector),
    )


COLUMNS = Columns(
    headers=("NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"),
    wide=WIDE,
    row=row,
)
