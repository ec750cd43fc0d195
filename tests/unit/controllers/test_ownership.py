"""Whose an object is."""

from types import SimpleNamespace
from typing import Any

import pytest

from controllers.claiming import Claimer
from controllers.labelled import Labelled
from controllers.ownership import adopted, claims, keeper, kept_by, ownerless, released
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS, REPLICA_SETS
from pinnace.api.selectors import from_message
from pinnace.client.index import Index
from tests.builders import make_pod
from tests.workloads import deleting, make_replica_set, named, pod_of

WEB = make_replica_set("web")
SELECTOR = from_message(WEB.spec.selector)


def claimed(*, managed: list[Pod] | None = None, free: list[Pod] | None = None) -> tuple[list[str], list[str], list[str]]:
    found = claims(WEB.metadata, SELECTOR, managed or [], free or [])
    return named(found.own), named(found.adopt), named(found.release)


def test_what_is_managed_and_selected_is_its_own_and_what_is_not_selected_any_more_is_released() -> None:
    pods = [pod_of(WEB, "a").build(), pod_of(WEB, "b", labels={}).build(), pod_of(WEB, "c").terminating().build()]
    assert claimed(managed=pods) == (["a", "c"], [], ["b"])


def test_who_is_selected_and_nobodys_is_adopted_unless_it_is_being_deleted() -> None:
    free = [make_pod("a").label("app", "web").build(), make_pod("c").label("app", "web").terminating().build()]
    assert claimed(free=free) == ([], ["a"], [])


def test_an_owner_that_is_being_deleted_keeps_what_it_has_and_takes_no_more() -> None:
    owner = make_replica_set("web")
    deleting(owner)
    managed = [pod_of(WEB, "a").build(), pod_of(WEB, "b", labels={}).build()]
    found = claims(owner.metadata, SELECTOR, managed, [make_pod("c").label("app", "web").build()])
    assert (named(found.own), found.adopt, found.release) == (["a"], [], [])


@pytest.mark.parametrize("others", [0, 1])
def test_adopted_and_released_again_an_object_is_as_it_was(others: int) -> None:
    builder = make_pod("a")
    for number in range(others):
        builder.owner("Other", f"o{number}", f"uid-o{number}")
    before = builder.build()
    for reference in before.metadata.ownerReferences:
        reference.controller = False
    assert ownerless(before)
    during = adopted(before, REPLICA_SETS, WEB)
    assert keeper(during) == kept_by(WEB)
    assert during.metadata.ownerReferences[-1].blockOwnerDeletion
    assert len(before.metadata.ownerReferences) == others  # it belongs to the informer
    assert released(during, WEB) == before


async def test_whoever_names_an_owner_of_another_namespace_is_not_its_own_and_is_not_written_to() -> None:
    pods = [pod_of(WEB, "own").build(), pod_of(WEB, "selected").build(), pod_of(WEB, "other", labels={}).build()]
    for each in pods[1:]:
        each.metadata.namespace = "elsewhere"
    informers = SimpleNamespace(
        index=lambda resource, by: Index(by, pods), labelled=lambda resource, only: Labelled(only, pods)
    )
    shared: Any = SimpleNamespace(informers=informers, client=SimpleNamespace(of=lambda resource: None))
    expectations: Any = None  # nothing is written
    claimer: Claimer[Pod] = Claimer(shared, REPLICA_SETS, PODS, expectations)
    assert named(await claimer.claim("default/web", WEB, SELECTOR)) == ["own"]
