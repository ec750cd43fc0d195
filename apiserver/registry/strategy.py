"""What a resource decides for itself: defaults, validation, and what an update may change.

The generic part of create, update and delete is `apiserver.registry.store`; it calls a Strategy and is otherwise the same for
all resources (the shape of Kubernetes' registry strategies).
"""

from typing import Protocol, TypeVar

from pinnace.api.resources import Object
from pinnace.api.status import Violation

T = TypeVar("T", bound=Object, contravariant=True)


class Strategy(Protocol[T]):
    """Functions of values: no clock, no storage, no I/O. Objects are changed in place where a method says "prepare"."""

    def prepare_create(self, obj: T) -> None:
        """Sets defaults and drops what a client may not set (status)."""
        ...

    def validate(self, obj: T) -> list[Violation]:
        """Everything that is wrong with a new object, after `prepare_create`."""
        ...

    def prepare_update(self, obj: T, old: T) -> None:
        """Carries over what an update of spec and metadata may not change (status), and sets defaults."""
        ...

    def validate_update(self, obj: T, old: T) -> list[Violation]:
        """Everything that is wrong with the change, and with the object."""
        ...

    def prepare_status_update(self, obj: T, old: T) -> None:
        """Carries over everything but status from `old`."""
        ...

    def validate_status_update(self, obj: T, old: T) -> list[Violation]: ...
