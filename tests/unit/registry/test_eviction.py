"""The step of an eviction that a client cannot make happen: the pod becomes another between the question and the delete."""

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import DeleteOptions
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.eviction import delete_pod_mutation
from pinnace.apiserver.registry.mutation import ObjectVersion, PutObject
from pinnace.apiserver.registry.strategies import STRATEGIES
from tests.builders import PodBuilder, make_pod

NOW = 1_700_000_000.0


def ready() -> PodBuilder:
    return make_pod("a").node("n").phase("Running").condition("Ready", "True")


def deleted(judged: PodBuilder, found: PodBuilder, *, spared: bool) -> Pod:
    mutation = delete_pod_mutation(STRATEGIES["pods"], judged.build(), DeleteOptions(), spared=spared, now=NOW)
    result = mutation.step(ObjectVersion(found.build(), 7, b""))
    assert isinstance(result, PutObject)
    return result.obj


def test_newly_ready_pod_needs_a_budget_check() -> None:
    starting = make_pod("a").node("n").phase("Pending")
    with pytest.raises(Rejected) as caught:
        deleted(starting, ready(), spared=True)
    assert caught.value.refusal.reason == "Contended"
    assert deleted(starting, starting, spared=True).metadata.HasField("deletionTimestamp")


def test_approved_eviction_proceeds_after_changes() -> None:
    assert deleted(ready(), ready().condition("Later", "True"), spared=False).metadata.HasField("deletionTimestamp")


def test_namesake_stays() -> None:
    with pytest.raises(Rejected) as caught:
        deleted(ready(), ready().uid("new"), spared=False)
    assert caught.value.refusal.reason == "UIDMismatch"
