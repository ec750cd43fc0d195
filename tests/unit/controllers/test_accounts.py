"""The default account and the root CA of namespaces."""

from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import ConfigMap, Namespace, ServiceAccount
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.errors import AlreadyExists, ApiError, Forbidden, NotFound
from pinnace.client.informer import Delta
from pinnace.controllers.accounts import DESCRIPTION_TEXT, RootCAPublisher, ServiceAccountController
from tests.workloads import deleting

CA = "-----BEGIN CERTIFICATE-----\n"


class Cluster:
    """What controllers see, and what they write. `error`: of each write."""

    def __init__(self, *objects: Any, error: ApiError | None = None) -> None:
        self.written: list[tuple[str, Any]] = []
        stores: dict[Any, dict[str, Any]] = {NAMESPACES: {}, SERVICE_ACCOUNTS: {}, CONFIG_MAPS: {}}
        for obj in objects:
            resource = {Namespace: NAMESPACES, ServiceAccount: SERVICE_ACCOUNTS, ConfigMap: CONFIG_MAPS}[type(obj)]
            metadata = obj.metadata
            key = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
            stores[resource][key] = obj

        def of(resource: Any) -> Any:
            async def write(verb: str, obj: Any) -> None:
                self.written.append((verb, obj))
                if error is not None:
                    raise error

            return SimpleNamespace(create=lambda obj: write("create", obj), update=lambda obj: write("update", obj))

        self.shared: Any = SimpleNamespace(client=SimpleNamespace(of=of), informers=SimpleNamespace(store=stores.__getitem__))

    async def accounts(self) -> list[tuple[str, Any]]:
        await ServiceAccountController(self.shared).sync("team")
        return self.written

    async def root_ca(self, authority: str = CA) -> list[tuple[str, Any]]:
        await RootCAPublisher(self.shared, authority).sync("team")
        return self.written


def namespace() -> Namespace:
    return Namespace(metadata=ObjectMeta(name="team"))


def terminating() -> Namespace:
    result = namespace()
    deleting(result)
    return result


def published(text: str = CA, description: str = DESCRIPTION_TEXT) -> ConfigMap:
    result = ConfigMap(metadata=ObjectMeta(namespace="team", name="kube-root-ca.crt", uid="u"), data={"ca.crt": text})
    result.metadata.annotations["kubernetes.io/description"] = description
    return result


async def test_active_namespace_gets_a_default_account_and_the_root_ca() -> None:
    ((verb, account),) = await Cluster(namespace()).accounts()
    assert verb == "create" and (account.metadata.namespace, account.metadata.name) == ("team", "default")
    ((verb, config_map),) = await Cluster(namespace()).root_ca()
    assert verb == "create" and config_map.metadata.name == "kube-root-ca.crt"
    assert dict(config_map.data) == {"ca.crt": CA}
    assert config_map.metadata.annotations["kubernetes.io/description"].startswith("Contains a CA bundle that can be used")


async def test_accounts_are_not_created_in_terminating_and_missing_namespaces() -> None:
    assert not await Cluster(terminating()).accounts() and not await Cluster(terminating()).root_ca()
    assert not await Cluster().accounts() and not await Cluster().root_ca()


async def test_existing_objects_are_left_alone() -> None:
    account = ServiceAccount(metadata=ObjectMeta(namespace="team", name="default"))
    assert not await Cluster(namespace(), account).accounts()
    assert not await Cluster(namespace(), published()).root_ca()


async def test_changed_root_ca_is_written_again() -> None:
    found = published("other")
    found.data["more"] = "x"
    ((verb, config_map),) = await Cluster(namespace(), found).root_ca()
    assert verb == "update" and dict(config_map.data) == {"ca.crt": CA} and config_map.metadata.uid == "u"
    assert dict(found.data) == {"ca.crt": "other", "more": "x"}, "the object of the informer is not changed"


async def test_root_ca_is_not_published_while_it_is_unknown() -> None:
    assert not await Cluster(namespace()).root_ca("")


@pytest.mark.parametrize(
    "error",
    [
        AlreadyExists(Refusal(Code.ALREADY_EXISTS, "AlreadyExists", "")),
        NotFound(Refusal(Code.NOT_FOUND, "NamespaceNotFound", "")),
        Forbidden(Refusal(Code.PERMISSION_DENIED, "NamespaceTerminating", "")),
    ],
    ids=lambda error: error.reason,
)
async def test_namespace_that_changes_meanwhile_is_no_failure(error: ApiError) -> None:
    assert await Cluster(namespace(), error=error).accounts()


async def test_refused_account_is_retried() -> None:
    with pytest.raises(Forbidden):
        await Cluster(namespace(), error=Forbidden(Refusal(Code.PERMISSION_DENIED, "Forbidden", ""))).accounts()


def test_deletion_of_an_account_syncs_its_namespace() -> None:
    _, watch = ServiceAccountController(Cluster().shared).watches
    for name, keys in (("default", ("team",)), ("other", ())):
        account = ServiceAccount(metadata=ObjectMeta(namespace="team", name=name))
        assert tuple(watch.keys(Delta(DELETED, account, account))) == keys
