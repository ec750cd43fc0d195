"""How a namespace that is being deleted is emptied."""

from types import SimpleNamespace
from typing import Any

from controllers.namespaces import OTHERS, NamespaceController
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import Resource
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.errors import ApiError, Expired, Forbidden, Unavailable
from tests.refusals import denied
from tests.workloads import deleting


async def emptied(**outcomes: ApiError | list[BatchItem]) -> tuple[list[str], ApiError | None]:
    """The kinds whose deletion was asked for, and what was raised. `outcomes`: of kinds, by plural."""
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
    shared: Any = SimpleNamespace(informers=informers, client=SimpleNamespace(of=of))
    try:
        await NamespaceController(shared).sync("team")
    except ApiError as error:
        return asked, error
    return asked, None


async def test_where_a_delete_is_refused_the_other_kinds_are_emptied_all_the_same() -> None:
    expired = Expired(Refusal(Code.OUT_OF_RANGE, "Expired", "begin anew"))
    asked, error = await emptied(pods=[denied("p")], services=expired)
    assert asked == ["pods", *(resource.plural for resource in OTHERS)]
    assert isinstance(error, Forbidden) and error.message == 'pods "p": denied by a webhook', "the first, and of what"


async def test_pods_go_first() -> None:
    """They may still need the rest: the service that they are reached by, the role that lets them do their last things."""
    assert await emptied(pods=[BatchItem(name="a")]) == (["pods"], None)
    asked, error = await emptied(pods=[BatchItem(name="a"), denied("p")])
    assert asked == ["pods"] and isinstance(error, Forbidden)


async def test_a_server_that_is_not_there_is_asked_once() -> None:
    away = Unavailable(Refusal(Code.UNAVAILABLE, "", "no server"))
    assert await emptied(pods=away) == (["pods"], away)
