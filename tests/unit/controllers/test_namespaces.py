"""How a namespace that is being deleted is emptied."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from apiserver.errors import contended, from_storage, not_found
from apiserver.storage.interface import OutcomeUnknown, OutOfSpace
from controllers.namespace import OTHERS, NamespaceController, patience
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import NAMESPACES, PODS, Resource
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.errors import ApiError, Expired, Forbidden, NotFound, Unavailable
from tests.refusals import denied
from tests.workloads import deleting

GONE = NotFound(not_found(NAMESPACES, "team"))


async def emptied(
    there: Namespace | ApiError | None = None, **outcomes: ApiError | list[BatchItem]
) -> tuple[list[str], ApiError | None]:
    """The kinds whose deletion was asked for, and what was raised. `there`: what the API server has under the name at first, if
    it is not what the cache has; `outcomes`: of kinds, by plural."""
    namespace = Namespace(metadata=ObjectMeta(name="team", uid="uid-team"))
    deleting(namespace)
    asked: list[str] = []

    def of(resource: Resource[Any]) -> Any:
        async def delete_collection(key: str) -> list[BatchItem]:
            asked.append(resource.plural)
            outcome = outcomes.get(resource.plural, [])
            if isinstance(outcome, ApiError):
                raise outcome
            return outcome

        return SimpleNamespace(delete_collection=delete_collection)

    informers = SimpleNamespace(store=lambda resource: {"team": namespace})
    namespaces = SimpleNamespace(delete=AsyncMock(), get=AsyncMock(side_effect=[there or namespace, GONE]))
    clock = SimpleNamespace(time=lambda: 1.0)
    shared: Any = SimpleNamespace(informers=informers, client=SimpleNamespace(of=of, namespaces=namespaces), clock=clock)
    try:
        await NamespaceController(shared).sync("team")
    except ApiError as error:
        return asked, error
    return asked, None


async def test_where_a_delete_is_refused_the_other_kinds_are_emptied_all_the_same() -> None:
    expired = Expired(Refusal(Code.OUT_OF_RANGE, "Expired", "begin anew"))
    first, second = OTHERS[:2]
    asked, error = await emptied(**{first.plural: [denied("a")], second.plural: expired})
    assert asked == ["pods", *(resource.plural for resource in OTHERS)]
    assert isinstance(error, Forbidden) and error.message == f'{first.plural} "a": denied by a webhook', (
        "the first, and of what"
    )


async def test_pods_go_first() -> None:
    """They may still need the rest: the service that they are reached by, the role that lets them do their last things."""
    assert await emptied(pods=[BatchItem(name="a")]) == (["pods"], None)
    asked, error = await emptied(pods=[BatchItem(name="a"), denied("p")])
    assert asked == ["pods"] and isinstance(error, Forbidden)


@pytest.mark.parametrize(
    "trouble",
    [from_storage(OutOfSpace("full")), from_storage(OutcomeUnknown("lost")), contended(PODS, "a")],
    ids=lambda refusal: refusal.reason,
)
async def test_pods_that_something_keeps_are_waited_for(trouble: Refusal) -> None:
    """A full etcd takes the deletion of a service, but not the beginning of a pod's end."""
    asked, error = await emptied(pods=[BatchItem(name="a", error=encode(trouble))])
    assert asked == ["pods"] and error is not None
    expired = Expired(Refusal(Code.OUT_OF_RANGE, "Expired", "begin anew"))
    assert await emptied(pods=expired) == (["pods"], expired)


async def test_pods_that_are_gone_by_then_are_not() -> None:
    asked, error = await emptied(pods=[BatchItem(name="a", error=encode(not_found(PODS, "a")))])
    assert asked == ["pods", *(resource.plural for resource in OTHERS)] and error is None


async def test_a_namespace_that_was_made_anew_under_its_name_is_left_alone() -> None:
    """The cache has not heard of it yet."""
    assert await emptied(there=Namespace(metadata=ObjectMeta(name="team", uid="uid-new"))) == ([], None)
    assert await emptied(there=GONE) == ([], None)


@pytest.mark.parametrize(
    ("ending", "seconds"), [(-5.0, 0.5), (0.0, 0.5), (5.0, 0.5), (30.0, 3.0), (80.0, 8.0), (86_400.0, 8.0)]
)
def test_objects_with_finalizers_are_retried_with_backoff(ending: float, seconds: float) -> None:
    """Each time for the audit log, and for webhooks. Another's clock may be ahead."""
    namespace = Namespace(metadata=ObjectMeta(name="team"))
    deleting(namespace)
    assert patience(namespace, 1.0 + ending) == seconds


async def test_a_server_that_is_not_there_is_asked_once() -> None:
    away = Unavailable(Refusal(Code.UNAVAILABLE, "", "no server"))
    assert await emptied(pods=away) == (["pods"], away)
