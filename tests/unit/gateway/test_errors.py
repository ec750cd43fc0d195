"""The Status objects that HTTP clients receive for errors of the API servers."""

from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.apiserver.registry.eviction import eviction_refused
from pinnace.client.errors import from_refusal
from pinnace.gateway.errors import convert_error


def test_refused_eviction_contains_the_budget() -> None:
    budget = PodDisruptionBudget()
    budget.metadata.name = "web"
    budget.status.desiredHealthy, budget.status.currentHealthy = 2, 1
    status = convert_error(from_refusal(eviction_refused(budget)))
    assert (status.code, status.reason) == (429, "TooManyRequests")
    assert status.message == "Cannot evict pod as it would violate the pod's disruption budget."
    message = "The disruption budget web needs 2 healthy pods and has 1 currently"
    assert status.details == {"causes": [{"reason": "DisruptionBudget", "message": message}]}
