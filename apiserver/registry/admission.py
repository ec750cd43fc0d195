"""What the registry asks of admission (apiserver.admission): who writes, what is written, and whether the cluster agrees."""

from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from apiserver.auth.authentication import User
from apiserver.storage.interface import Guard
from pinnace.api.resources import Object, Resource


class Operation(Enum):
    CREATE = auto()
    UPDATE = auto()
    """Of metadata and spec."""
    UPDATE_STATUS = auto()
    RESIZE = auto()
    """Of the resources of a pod's containers."""
    DELETE = auto()


class Request(NamedTuple):
    """Who writes, and whether it is for show only."""

    user: User
    dry_run: bool = False


class Admission(Protocol):
    """Sees the caches, and does no I/O: it may be asked several times for one write, each time about a later version."""

    def admit(self, request: Request, resource: Resource[Any], obj: Object) -> None:
        """Completes an object that is to be created. Raises Rejected."""
        ...

    def validate(
        self, request: Request, operation: Operation, resource: Resource[Any], obj: Object | None, old: Object | None
    ) -> None:
        """`obj`: as it is to be (None: deleted), `old`: as it is (None: created); neither is changed. Raises Rejected."""
        ...

    def guards(self, resource: Resource[Any], obj: Object) -> tuple[Guard, ...]:
        """What must still be as it was seen when an object is created: etcd compares. Raises Rejected when it is not so now."""
        ...


class WriteAttributes(NamedTuple):
    """A write that somebody wants. `obj`: as it is to be (None: deleted), `old`: as it is (None: created)."""

    request: Request
    operation: Operation
    resource: Resource[Any]
    obj: Object | None
    old: Object | None


class Webhooks(Protocol):
    """Those outside the server who have a say. They take their time, and may be asked again about a later version."""

    def concerned(self, request: Request, operation: Operation, resource: Resource[Any]) -> bool:
        """Does any of them want to hear of such writes?"""
        ...

    async def mutate(self, change: WriteAttributes) -> Any:
        """The object as they want it, which may be the very one (None: of a delete). Raises Rejected."""
        ...

    async def validate(self, change: WriteAttributes) -> None:
        """Raises Rejected."""
        ...
