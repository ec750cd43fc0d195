"""Disruption budgets in a table.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printPodDisruptionBudget.
"""

from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.scalars import STRING
from pinnace.cli.ages import since
from pinnace.cli.printers.columns import Columns

NOT_APPLICABLE = "N/A"


def row(budget: PodDisruptionBudget, now: float) -> tuple[str, ...]:
    spec = budget.spec
    return (
        budget.metadata.name,
        _bound(spec.minAvailable) if spec.HasField("minAvailable") else NOT_APPLICABLE,
        _bound(spec.maxUnavailable) if spec.HasField("maxUnavailable") else NOT_APPLICABLE,
        str(budget.status.disruptionsAllowed),
        since(budget.metadata.creationTimestamp, now),
    )


COLUMNS = Columns(
    headers=("NAME", "MIN AVAILABLE", "MAX UNAVAILABLE", "ALLOWED DISRUPTIONS", "AGE"),
    wide=(),
    row=row,
)


def _bound(value: IntOrString) -> str:
    return value.strVal if value.type == STRING else str(value.intVal)
