"""Disruption budgets in a table.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printPodDisruptionBudget.
"""

from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.scalars import int_or_string
from pinnace.printers.ages import since
from pinnace.printers.columns import Columns

NOT_APPLICABLE = "N/A"


def row(budget: PodDisruptionBudget, now: float) -> tuple[str, ...]:
    spec = budget.spec
    return (
        budget.metadata.name,
        str(int_or_string(spec.minAvailable)) if spec.HasField("minAvailable") else NOT_APPLICABLE,
        str(int_or_string(spec.maxUnavailable)) if spec.HasField("maxUnavailable") else NOT_APPLICABLE,
        str(budget.status.disruptionsAllowed),
        since(budget.metadata.creationTimestamp, now),
    )


COLUMNS = Columns(
    headers=("NAME", "MIN AVAILABLE", "MAX UNAVAILABLE", "ALLOWED DISRUPTIONS", "AGE"),
    wide=(),
    row=row,
)
