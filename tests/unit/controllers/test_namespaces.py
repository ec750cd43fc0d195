"""How the objects of a terminating namespace are deleted."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from pinnace.api.core_v1_pb2 import ConfigMap, Namespace, NamespaceSpec, Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import CONFIG_MAPS, NAMESPACES, PODS, Resource
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import MODIFIED, BatchItem
from pinnace.apiserver.errors import contended_object, not_found, storage_refusal
from pinnace.apiserver.storage.interface import CommitOutcomeUnknown, OutOfSpace
from pinnace.client.errors import ApiError, Expired, Forbidden, NotFound, Unavailable
from pinnace.client.informer import Delta, Index
from pinnace.controllers.namespace import OTHERS, NamespaceController, RemainingContent, seconds_until_retry, set_conditions
from tests.refusals import denied
from tests.workloads import deleting

GONE = NotFound(not_found(NAMESPACES, "team"))


async def emptied(
    there: Namespace | ApiError | None = None,
    spec: NamespaceSpec = NamespaceSpec(finalizers=["kubernetes"]),  # noqa: B008 (not changed)
    remaining: Mapping[Resource[Any], Sequence[Any]] = MappingProxyType({}),
    written: list[Namespace] = [],  # noqa: B006 (a test that reads it passes its own)
    **outcomes: ApiError | list[BatchItem],
) -> tuple[list[str], ApiError | None]:
    """The kinds whose collections the controller deletes, and the raised error. `there` is the namespace that the API
    server has, if it differs from the cache. `outcomes` has the outcomes of deletions by plural.
    """
    namespace = Namespace(metadata=ObjectMeta(name="team", uid="uid-team"), spec=spec)
    deleting(namespace)
    asked: list[str] = []

    def of(resource: Resource[Any]) -> Any:
        async def delete_collection(key: str) -> list[BatchItem]:
            asked.append(resource.plural)
            outcome = outcomes.get(resource.plural, [])
            if isinstance(outcome, ApiError):
                raise outcome
            return outcome

        listing = SimpleNamespace(items=remaining.get(resource, ()))
        return SimpleNamespace(delete_collection=delete_collection, list=AsyncMock(return_value=listing))

    def index(resource: Resource[Any], by: Any) -> Index[Any]:
        return Index(by, remaining.get(resource, ()))

    informers = SimpleNamespace(store=lambda resource: {"team": namespace}, index=index, custom=SimpleNamespace(resources=[]))
    update_status = AsyncMock(side_effect=written.append)
    namespaces = SimpleNamespace(
        delete=AsyncMock(), get=AsyncMock(side_effect=[there or namespace, GONE]), update_status=update_status
    )
    clock = SimpleNamespace(time=lambda: 1.0)
    shared: Any = SimpleNamespace(informers=informers, client=SimpleNamespace(of=of, namespaces=namespaces), clock=clock)
    try:
        await NamespaceController(shared).sync("team")
    except ApiError as error:
        return asked, error
    return asked, None


async def test_rejected_deletion_does_not_block_other_kinds() -> None:
    expired = Expired(Refusal(Code.OUT_OF_RANGE, "Expired", "begin anew"))
    first, second = OTHERS[:2]
    asked, error = await emptied(**{first.plural: [denied("a")], second.plural: expired})
    assert asked == ["pods", *(resource.plural for resource in OTHERS)]
    assert isinstance(error, Forbidden) and error.message == f'{first.plural} "a": denied by a webhook', (
        "the first error names its object"
    )


async def test_pods_are_deleted_before_other_kinds() -> None:
    """Pods may still need the other objects, such as their service and their role."""
    assert await emptied(pods=[BatchItem(name="a")]) == (["pods"], None)
    asked, error = await emptied(pods=[BatchItem(name="a"), denied("p")])
    assert asked == ["pods"] and isinstance(error, Forbidden)


@pytest.mark.parametrize(
    "trouble",
    [storage_refusal(OutOfSpace("full")), storage_refusal(CommitOutcomeUnknown("lost")), contended_object(PODS, "a")],
    ids=lambda refusal: refusal.reason,
)
async def test_failed_pod_deletion_blocks_other_kinds(trouble: Refusal) -> None:
    """A full etcd accepts the deletion of a service, but not the start of a graceful deletion of a pod."""
    asked, error = await emptied(pods=[BatchItem(name="a", error=encode(trouble))])
    assert asked == ["pods"] and error is not None
    expired = Expired(Refusal(Code.OUT_OF_RANGE, "Expired", "begin anew"))
    assert await emptied(pods=expired) == (["pods"], expired)


async def test_pod_that_is_already_deleted_blocks_nothing() -> None:
    asked, error = await emptied(pods=[BatchItem(name="a", error=encode(not_found(PODS, "a")))])
    assert asked == ["pods", *(resource.plural for resource in OTHERS)] and error is None


async def test_recreated_namespace_is_not_emptied() -> None:
    """The cache does not have the new namespace yet."""
    assert await emptied(there=Namespace(metadata=ObjectMeta(name="team", uid="uid-new"))) == ([], None)
    assert await emptied(there=GONE) == ([], None)


async def test_namespace_that_waits_for_other_finalizers_is_not_emptied_again() -> None:
    waiting = NamespaceSpec(finalizers=["example.com/wait"])
    assert await emptied(spec=waiting) == ([], None)


@pytest.mark.parametrize(
    ("ending", "seconds"), [(-5.0, 0.5), (0.0, 0.5), (5.0, 0.5), (30.0, 3.0), (80.0, 8.0), (86_400.0, 8.0)]
)
def test_objects_with_finalizers_are_retried_with_backoff(ending: float, seconds: float) -> None:
    """Each retry reaches the audit log and webhooks. The clock of another process may be ahead."""
    namespace = Namespace(metadata=ObjectMeta(name="team"))
    deleting(namespace)
    assert seconds_until_retry(namespace, 1.0 + ending) == seconds


async def test_unavailable_server_ends_the_sync() -> None:
    away = Unavailable(Refusal(Code.UNAVAILABLE, "", "no server"))
    assert await emptied(pods=away) == (["pods"], away)


def said(namespace: Namespace) -> dict[str, tuple[str, str, str]]:
    return {item.type: (item.status, item.reason, item.message) for item in namespace.status.conditions}


async def test_namespace_that_is_empty_at_once_gets_no_conditions() -> None:
    written: list[Namespace] = []
    assert (await emptied(written=written))[1] is None and not written


async def test_conditions_say_what_remains_and_why() -> None:
    config = ConfigMap(metadata=ObjectMeta(namespace="team", name="c", finalizers=["example.com/wait"]))
    written: list[Namespace] = []
    items = [BatchItem(name="c"), denied("d")]
    _, error = await emptied(configmaps=items, remaining={CONFIG_MAPS: [config, config]}, written=written)
    assert error is not None
    assert said(written[0]) == {
        "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered", "All resources successfully discovered"),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "False", "ParsedGroupVersions", "All legacy kube types successfully parsed"
        ),
        "NamespaceDeletionContentFailure": (
            "True",
            "ContentDeletionFailed",
            'Failed to delete all resource types, 1 remaining: configmaps "d": denied by a webhook',
        ),
        "NamespaceContentRemaining": (
            "True", "SomeResourcesRemain", "Some resources are remaining: configmaps. has 2 resource instances"
        ),
        "NamespaceFinalizersRemaining": (
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: example.com/wait in 2 resource instances",
        ),
    }  # fmt: skip


async def test_unchanged_conditions_are_not_written_and_changed_ones_cause_no_sync() -> None:
    pod = Pod(metadata=ObjectMeta(namespace="team", name="p"))
    content = RemainingContent()
    content.count(PODS, [pod])
    namespace = Namespace(metadata=ObjectMeta(name="team"))
    deleting(namespace)
    changed = set_conditions(namespace, content, 5.0)
    assert changed is not None and said(changed)["NamespaceContentRemaining"][2].endswith("pods. has 1 resource instances")
    assert set_conditions(changed, content, 9.0) is None
    written: list[Namespace] = []
    await emptied(pods=[BatchItem(name="p")], remaining={PODS: [pod]}, written=written)
    assert said(written[0]) == said(changed)
    informers = SimpleNamespace(store=lambda resource: {}, index=lambda resource, by: None, custom=None)
    shared: Any = SimpleNamespace(informers=informers, client=None, clock=None)
    (watch,) = NamespaceController(shared).watches
    assert list(watch.keys(Delta(MODIFIED, changed, namespace))) == []
    assert list(watch.keys(Delta(MODIFIED, namespace, Namespace(metadata=ObjectMeta(name="team"))))) == ["team"]
