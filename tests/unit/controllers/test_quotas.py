"""Owners that are synced when a quota allows more pods."""

import pytest

from pinnace.api.core_v1_pb2 import ResourceQuota
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED, WatchEventType
from pinnace.client.informer import Delta, Index
from pinnace.controllers.podcontrol import keys_lacking_quota
from pinnace.controllers.pods import object_namespace
from tests.builders import quantities
from tests.workloads import make_replica_set

LACKS = make_replica_set("lacks", replicas=3)
HAS = make_replica_set("has", replicas=3)
HAS.status.replicas = 3
ELSEWHERE = make_replica_set("elsewhere", replicas=3)
ELSEWHERE.metadata.namespace = "other"


def quota(**hard: str) -> ResourceQuota:
    made = ResourceQuota()
    made.metadata.name, made.metadata.namespace = "q", "default"
    for name, bound in quantities(hard).items():
        made.spec.hard[name].CopyFrom(bound)
    return made


def woken(kind: WatchEventType, before: ResourceQuota | None, after: ResourceQuota) -> list[str]:
    keys = keys_lacking_quota(
        Index(object_namespace, [LACKS, HAS, ELSEWHERE]), lambda item: item.status.replicas < item.spec.replicas
    )
    return list(keys(Delta(kind, after, before)))


@pytest.mark.parametrize(
    "after", [quota(pods="6", cpu="1500m"), quota(pods="5", cpu="2"), quota(cpu="1500m"), quota(pods="6", cpu="1")]
)
def test_raised_or_removed_limit_wakes_owners_that_lack_pods(after: ResourceQuota) -> None:
    assert woken(MODIFIED, quota(pods="5", cpu="1500m"), after) == ["default/lacks"]


def test_deleted_quota_wakes_its_owners() -> None:
    assert woken(DELETED, quota(pods="5"), quota(pods="5")) == ["default/lacks"]


def test_changed_scopes_wake_owners_that_lack_pods() -> None:
    narrower = quota(pods="5")
    narrower.spec.scopes.append("BestEffort")
    assert woken(MODIFIED, quota(pods="5"), narrower) == ["default/lacks"]


@pytest.mark.parametrize(
    "after", [quota(pods="5", cpu="1.5"), quota(pods="4", cpu="1500m"), quota(pods="5", cpu="1500m", memory="1")]
)
def test_quota_update_that_grants_no_more_wakes_nothing(after: ResourceQuota) -> None:
    assert woken(MODIFIED, quota(pods="5", cpu="1500m"), after) == []


def test_new_quota_or_count_wakes_nothing() -> None:
    assert woken(ADDED, None, quota(pods="5")) == []
    counted = quota(pods="5")
    counted.status.used["pods"].string = "3"
    assert woken(MODIFIED, quota(pods="5"), counted) == []
