"""The default service account and the root CA of each namespace.

    active namespace --no account `default`-------------------------> created (serviceaccount)
                     --no kube-root-ca.crt, or with other data------> created, updated (root-ca-certificate-publisher)

Both are created again when they are deleted, and not in terminating namespaces.

Source: pkg/controller/serviceaccount and pkg/controller/certificates/rootcacertpublisher of Kubernetes 1.36.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pinnace.api.core_v1_pb2 import ConfigMap, Namespace, ServiceAccount
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from pinnace.api.wellknown import DEFAULT_ACCOUNT, ROOT_CA_CONFIG_MAP
from pinnace.client.errors import AlreadyExists, ApiError, NotFound
from pinnace.client.informer import Delta
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.runtime import ControllerContext, WatchedResource, key_of_object

DESCRIPTION = "kubernetes.io/description"
DESCRIPTION_TEXT = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal "
    "service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)
"""The annotation of the ConfigMap, the same as in Kubernetes."""
CA_KEY = "ca.crt"


class ServiceAccountController:
    name = "serviceaccount"
    workers = 5
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext) -> None:
        self._client = shared.client
        self._namespaces = shared.informers.store(NAMESPACES)
        self._accounts = shared.informers.store(SERVICE_ACCOUNTS)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (
            WatchedResource(NAMESPACES, key_of_object),
            WatchedResource(SERVICE_ACCOUNTS, lambda delta: _namespace_of(delta, DEFAULT_ACCOUNT)),
        )

    async def sync(self, key: str) -> float | None:
        if not is_active(self._namespaces.get(key)) or self._accounts.get(f"{key}/{DEFAULT_ACCOUNT}") is not None:
            return None
        account = ServiceAccount(metadata=ObjectMeta(namespace=key, name=DEFAULT_ACCOUNT))
        await _create_unless_exists(self._client.of(SERVICE_ACCOUNTS), account)
        return None


class RootCAPublisher:
    """`authority`: PEM certificates. If it is empty, nothing is published."""

    name = "root-ca-certificate-publisher"
    workers = 5
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext, authority: str) -> None:
        self._client = shared.client
        self._authority = authority
        self._namespaces = shared.informers.store(NAMESPACES)
        self._config_maps = shared.informers.store(CONFIG_MAPS)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (
            WatchedResource(NAMESPACES, key_of_object),
            WatchedResource(CONFIG_MAPS, lambda delta: _namespace_of(delta, ROOT_CA_CONFIG_MAP)),
        )

    async def sync(self, key: str) -> float | None:
        if not self._authority or not is_active(self._namespaces.get(key)):
            return None
        config_map = plan_root_ca_config_map(self._config_maps.get(f"{key}/{ROOT_CA_CONFIG_MAP}"), key, self._authority)
        if config_map is None:
            return None
        client = self._client.of(CONFIG_MAPS)
        if config_map.metadata.uid:
            await client.update(config_map)
        else:
            await _create_unless_exists(client, config_map)
        return None


def plan_root_ca_config_map(present: ConfigMap | None, namespace: str, authority: str) -> ConfigMap | None:
    """Return the ConfigMap to create or update; None if the present one is right. `present` is not changed."""
    if present is None:
        wanted = ConfigMap(metadata=ObjectMeta(namespace=namespace, name=ROOT_CA_CONFIG_MAP))
    elif dict(present.data) == {CA_KEY: authority} and present.metadata.annotations.get(DESCRIPTION):
        return None
    else:
        wanted = ConfigMap()
        wanted.CopyFrom(present)
        wanted.data.clear()
    wanted.data[CA_KEY] = authority
    wanted.metadata.annotations[DESCRIPTION] = DESCRIPTION_TEXT
    return wanted


def is_active(namespace: Namespace | None) -> bool:
    """Report whether objects can be created in the namespace."""
    return namespace is not None and not namespace.metadata.HasField("deletionTimestamp")


def _namespace_of(delta: Delta[Any], name: str) -> Iterable[str]:
    """Return the key of the namespace if the change is of the object with this name."""
    return (delta.obj.metadata.namespace,) if delta.obj.metadata.name == name else ()


async def _create_unless_exists(client: Any, obj: Any) -> None:
    """Create an object, unless it exists or its namespace is deleted meanwhile. Raises ApiError."""
    try:
        await client.create(obj)
    except (AlreadyExists, NotFound):
        return
    except ApiError as error:
        if error.reason != "NamespaceTerminating":
            raise
