"""Interfaces between the registry and admission: `AdmissionControl` for the built-in plugins, `AdmissionWebhooks` for admission
webhooks."""

from enum import Enum, auto
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from pinnace.api.resources import Object, Resource
from pinnace.apiserver.auth.authentication import NODE_PREFIX, SERVER, User
from pinnace.apiserver.storage.interface import Guard


class AdmissionOperation(Enum):
    CREATE = auto()
    UPDATE = auto()
    """An update of metadata and spec."""
    UPDATE_STATUS = auto()
    RESIZE = auto()
    """An update of the resources of a pod's containers."""
    FINALIZE = auto()
    """An update of the spec.finalizers of a namespace."""
    DELETE = auto()


class WriteRequest(NamedTuple):
    """The user that sends a write, and whether the write is a dry run."""

    user: User
    dry_run: bool = False
    field_manager: str = ""
    """The manager in the options of the write."""
    api_version: str = ""
    """The API version whose rules apply. Empty: the stored one."""

    @property
    def manager(self) -> str:
        """The manager of the fields that the write changes."""
        return self.field_manager or default_manager(self.user.name)


_MANAGERS = {SERVER.name: "kube-apiserver", "kubernetes-admin": "pinnace"}
"""The managers of users who are not named like their programs."""


@lru_cache(maxsize=1024)
def default_manager(user: str) -> str:
    """Return the manager of writes over gRPC without a manager: the name of the program, as in Kubernetes' user agents."""
    if user.startswith(NODE_PREFIX):
        return "kubelet"
    return (_MANAGERS.get(user) or user.removeprefix("system:"))[:MAX_MANAGER]


MAX_MANAGER = 128
"""Maximum length of a manager's name in bytes."""


class AdmissionControl(Protocol):
    """The built-in admission plugins. They read the caches and do no I/O. Each retry of a write calls them again."""

    def admit(self, request: WriteRequest, resource: Resource[Any], obj: Object) -> None:
        """Set defaults in an object that is about to be created. Raises Rejected."""
        ...

    def validate(
        self,
        request: WriteRequest,
        operation: AdmissionOperation,
        resource: Resource[Any],
        obj: Object | None,
        old: Object | None,
    ) -> None:
        """Validate a write. `obj`: the new version, None for a delete. `old`: the present version, None for a create. Neither
        is changed. Raises Rejected."""
        ...

    def guards(self, resource: Resource[Any], obj: Object) -> tuple[Guard, ...]:
        """Return the conditions for the creation of an object, which etcd compares. Raises Rejected if one does not hold
        now."""
        ...


class WriteAttributes(NamedTuple):
    """The attributes of a write. `obj`: the new version, None for a delete. `old`: the present version, None for a create."""

    request: WriteRequest
    operation: AdmissionOperation
    resource: Resource[Any]
    obj: Object | None
    old: Object | None


class AdmissionWebhooks(Protocol):
    """The admission webhooks. Their calls do I/O. Each retry of a write calls them again."""

    def has_matching_webhooks(self, request: WriteRequest, operation: AdmissionOperation, resource: Resource[Any]) -> bool:
        """Return whether a webhook matches such writes."""
        ...

    async def mutate(self, change: WriteAttributes) -> Any:
        """Return the object after the mutating webhooks: the same instance if none changed it, None for a delete. Raises
        Rejected."""
        ...

    async def validate(self, change: WriteAttributes) -> None:
        """Call the validating webhooks. Raises Rejected."""
        ...
