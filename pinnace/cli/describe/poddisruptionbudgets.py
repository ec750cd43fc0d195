"""All about a disruption budget.

Source: kubectl, pkg/describe, PodDisruptionBudgetDescriber.
"""

from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.scalars import int_or_string
from pinnace.cli.describe.templates import head_of
from pinnace.cli.describe.text import Fields


def describe(budget: PodDisruptionBudget) -> Fields:
    spec, status = budget.spec, budget.status
    fields = head_of(budget.metadata, spec.selector)
    if spec.HasField("minAvailable"):
        fields["Min available"] = str(int_or_string(spec.minAvailable))
    elif spec.HasField("maxUnavailable"):
        fields["Max unavailable"] = str(int_or_string(spec.maxUnavailable))
    fields["Status"] = {
        "Allowed disruptions": str(status.disruptionsAllowed),
        "Current": str(status.currentHealthy),
        "Desired": str(status.desiredHealthy),
        "Total": str(status.expectedPods),
    }
    return fields
