"""What a kind decides for itself: defaults, validation, and what an update may change.

The generic part of create, update and delete is `apiserver.registry.store`, the same for all resources. It calls a Strategy,
which does what is the same for most of them; each kind is a subclass, in `apiserver.registry.strategies` (the shape of
Kubernetes' registry strategies). A kind overrides `set_defaults` and the checks, and a `prepare` method where more than the
defaults is particular to it.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from apiserver.registry.validation.metadata import NameCheck, validate_metadata, validate_metadata_update
from apiserver.registry.validation.violations import forbidden
from pinnace.api import names
from pinnace.api.resources import Object, Resource
from pinnace.api.status import Violation

T = TypeVar("T", bound=Object)


class Strategy(Generic[T]):
    """Of a kind whose status nobody writes by itself, if it has one.

    Functions of values: no clock, no storage, no I/O. Objects are changed in place where a method says "prepare" or "set".
    Checks append what they find to the list that they are given; metadata is judged before them.
    """

    check_name: NameCheck = staticmethod(names.dns_subdomain)

    def __init__(self, resource: Resource[T]) -> None:
        self.resource = resource

    def set_defaults(self, obj: T) -> None:
        """Of an object that is created or updated."""

    def check(self, obj: T, out: list[Violation]) -> None:
        """What is wrong with an object, be it new or changed; after defaults, as all checks."""

    def check_new(self, obj: T, out: list[Violation]) -> None:
        """What is wrong with a new object."""
        self.check(obj, out)

    def check_change(self, new: T, old: T, out: list[Violation]) -> None:
        """What is wrong with the change, and with the object as it would be."""
        self.check(new, out)

    def prepare_create(self, obj: T) -> None:
        """Sets defaults and drops what a client may not set (status)."""
        self.set_defaults(obj)

    def validate(self, obj: T) -> list[Violation]:
        """Everything that is wrong with a new object, after `prepare_create`."""
        out: list[Violation] = []
        validate_metadata(obj.metadata, out, namespaced=self.resource.namespaced, name_check=self.check_name)
        self.check_new(obj, out)
        return out

    def prepare_update(self, obj: T, old: T) -> None:
        """Carries over what an update of spec and metadata may not change (status), and sets defaults."""
        self.set_defaults(obj)

    def validate_update(self, obj: T, old: T) -> list[Violation]:
        """Everything that is wrong with the change, and with the object, after `prepare_update`."""
        out: list[Violation] = []
        namespaced = self.resource.namespaced
        validate_metadata_update(obj.metadata, old.metadata, out, namespaced=namespaced, name_check=self.check_name)
        self.check_change(obj, old, out)
        return out

    def prepare_status_update(self, obj: T, old: T) -> None:
        """Carries over everything but status from `old`: here nothing, as the update is refused."""

    def validate_status_update(self, obj: T, old: T) -> list[Violation]:
        """Everything that is wrong with the new status, and with the step to it, after `prepare_status_update`."""
        return [forbidden("status", "this resource has no status to update")]


class StatusStrategy(Strategy[T]):
    """Of a kind with a status, which is whoever's who watches over such objects: created without, and updated by itself."""

    def check_status(self, new: T, old: T, out: list[Violation]) -> None:
        """What is wrong with a new status, and with the step to it."""

    def prepare_create(self, obj: T) -> None:
        super().prepare_create(obj)
        message: Any = obj
        message.ClearField("status")

    def prepare_update(self, obj: T, old: T) -> None:
        super().prepare_update(obj, old)
        carry_over(obj, old, "status")

    def prepare_status_update(self, obj: T, old: T) -> None:
        carry_over(obj, old, "metadata", "spec")

    def validate_status_update(self, obj: T, old: T) -> list[Violation]:
        out: list[Violation] = []
        self.check_status(obj, old, out)
        return out


def added(judge: Callable[[T, T], list[Violation]], new: T, old: T) -> list[Violation]:
    """What a change makes wrong: all that `judge(new, old)` finds but what is wrong with the old object already. It was taken
    before there was such a rule, so that who scales or labels it, or lets it go, cannot be asked to mend it, too.

    Source: ratcheting, https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4008-crd-ratcheting
    """
    if not (found := judge(new, old)):
        return []
    before = judge(old, old)
    return [each for each in found if each not in before]


def carry_over(obj: Any, old: Any, *fields: str) -> None:
    """Makes these message fields of `obj` what they are in `old`: absent ones too, so that an update that changes nothing
    leaves nothing to write."""
    for field in fields:
        if old.HasField(field):
            getattr(obj, field).CopyFrom(getattr(old, field))
        else:
            obj.ClearField(field)
