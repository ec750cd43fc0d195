"""Interfaces between the registry and admission: `AdmissionControl` for the built-in plugins, `DynamicAdmission` for admission
webhooks and policies."""

from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from google.protobuf.message import Message

from pinnace.api.resources import Object, Resource
from pinnace.apiserver.auth.authentication import NODE_PREFIX, SERVER, User
from pinnace.apiserver.storage.interface import Guard

_MANAGERS = {SERVER.name: "kube-apiserver", "kubernetes-admin": "pinnace"}
"""The managers of users who are not named like their programs."""
MAX_MANAGER = 128
"""Maximum length of a manager's name in bytes."""


class AdmissionOperation(Enum):
    CREATE = auto()
    UPDATE = auto()
    """An update of metadata and spec."""
    UPDATE_STATUS = auto()
    RESIZE = auto()
    """An update of the resources of a pod's containers."""
    EPHEMERAL = auto()
    """An update of the ephemeral containers of a pod."""
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
    options: Message | None = None
    """The CreateOptions, UpdateOptions, PatchOptions or DeleteOptions of the request."""
    qualified: str = ""
    """The name of a custom resource in messages, such as "widgets.example.com". Empty for built-in kinds."""

    @property
    def manager(self) -> str:
        """The manager of the fields that the write changes."""
        return self.field_manager or default_manager(self.user.name)


@lru_cache(maxsize=1024)
def default_manager(user: str) -> str:
    """Return the manager of writes over gRPC without a manager: the name of the program, as in Kubernetes' user agents."""
    if user.startswith(NODE_PREFIX):
        return "kubelet"
    return (_MANAGERS.get(user) or user.removeprefix("system:"))[:MAX_MANAGER]


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


CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"
"""Kubernetes' operations, for webhooks and policies."""


def _leave_incomplete(obj: Any) -> None:
    return


class WriteAttributes(NamedTuple):
    """What webhooks and policies review: a write of an object, or a request to a subresource.

    `obj`: the new version, None for a delete. `old`: the present version, None for a create. Both are messages in the stored
    form. For CONNECT, `obj` is the JSON form of the options.
    """

    request: WriteRequest
    operation: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    resource: Resource[Any]
    obj: Any
    old: Any
    subresource: str = ""
    kind: tuple[str, str] = ("", "")
    """The API version and kind of the objects, if they are not those of the resource, such as those of a Scale."""
    name: str = ""
    """The name of the object. Empty: that of `obj` or `old`."""
    namespace: str = ""
    options: Message | None = None
    """The options of the request."""
    complete: Callable[[Any], None] = _leave_incomplete
    """Sets the defaults of an object that was changed, in place. Raises Rejected."""


class DynamicAdmission(Protocol):
    """Admission webhooks and policies. Their calls do I/O. Each retry of a write calls them again."""

    def has_reviewers(self, request: WriteRequest, operation: str, resource: Resource[Any], subresource: str = "") -> bool:
        """Return whether a webhook or policy may match such writes."""
        ...

    async def mutate(self, change: WriteAttributes) -> Any:
        """Return the object after the mutating policies and webhooks: the same instance if none changed it, None for a delete.
        Raises Rejected."""
        ...

    async def validate(self, change: WriteAttributes) -> None:
        """Call the validating policies and webhooks. Raises Rejected."""
        ...
