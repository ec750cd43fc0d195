"""What a kind decides for itself: defaults, validation, and what an update may change.

The generic part of create, update and delete is `apiserver.registry.store`, the same for all resources. It calls a Strategy,
which does what is the same for most of them; each kind is a subclass, in `apiserver.registry.strategies` (the shape of
Kubernetes' registry strategies). A kind overrides `set_defaults` and the checks, and a `prepare` method where more than the
defaults is particular to it; and, where its objects end otherwise than most, the methods about deletes.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from apiserver.registry.validation.metadata import NameCheck, validate_metadata, validate_metadata_update
from apiserver.registry.validation.violations import forbidden
from pinnace.api import names
from pinnace.api.meta_v1_pb2 import DeleteOptions
from pinnace.api.resources import Object, Resource
from pinnace.api.status import Violation
from pinnace.api.verbs_pb2 import Disruption

T = TypeVar("T", bound=Object)
_INDEX = re.compile(r"\[[0-9]+\]")


class Strategy(Generic[T]):
    """Of a kind whose status nobody writes by itself, if it has one.

    Functions of values: no clock, no storage, no I/O. Objects are changed in place where a method says "prepare" or "set".
    Checks append what they find to the list that they are given; metadata is judged before them.

    What is wrong with an object by itself (`check`) and what may not be changed (`check_change`) are told apart: what is wrong
    with the stored object already is not held against an update. It was taken before there was such a rule, and who scales or
    labels it, or lets it go, cannot be asked to mend it, too.
    Source: ratcheting, https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4008-crd-ratcheting
    """

    check_name: NameCheck = staticmethod(names.dns_subdomain)
    allow_unconditional_update = True
    """May an update leave out which version it changes, upon which the latest write wins?"""
    can_be_disrupted = False
    """May a delete say why others end the object (`DeleteRequest.disruption`)?"""

    def __init__(self, resource: Resource[T]) -> None:
        self.resource = resource

    def set_defaults(self, obj: T) -> None:
        """Of an object that is created or updated."""

    def check(self, obj: T, out: list[Violation]) -> None:
        """What is wrong with an object by itself, be it new or changed; after defaults, as all checks. Where there is a spec it
        looks at nothing else that may change: an update that leaves the spec alone is not judged by it."""

    def check_new(self, obj: T, out: list[Violation]) -> None:
        """What is wrong with a new object."""
        self.check(obj, out)

    def check_change(self, new: T, old: T, out: list[Violation]) -> None:
        """What of the change is not allowed, whatever there is in the new object."""

    def warnings(self, obj: T) -> Iterable[str]:
        """What of a valid spec that is new does not do what it seems to."""
        return ()

    def prepare_create(self, obj: T) -> None:
        """Sets defaults and drops what a client may not set (status)."""
        self.set_defaults(obj)

    def validate(self, obj: T) -> list[Violation]:
        """Everything that is wrong with a new object, after `prepare_create`."""
        out: list[Violation] = []
        self.check_metadata(obj, out)
        self.check_new(obj, out)
        return out

    def prepare_update(self, obj: T, old: T) -> None:
        """Carries over what an update of spec and metadata may not change (status), and sets defaults."""
        self.set_defaults(obj)

    def is_new_generation(self, new: T, old: T) -> bool:
        """Is something else wanted of the object than was?"""
        return bool(getattr(new, "spec", None) != getattr(old, "spec", None))

    def validate_update(self, obj: T, old: T) -> list[Violation]:
        """Everything that is wrong with the change, and what it makes wrong with the object, after `prepare_update`."""
        return self._validate_change(obj, old, self.check_change)

    def prepare_resize(self, obj: T, old: T) -> None:
        """Carries over everything from `old` but the resources of containers: here nothing, as the resize is refused."""

    def validate_resize(self, obj: T, old: T) -> list[Violation]:
        """Everything that is wrong with the step to other resources, after `prepare_resize`."""
        return [forbidden("spec", "this resource cannot be resized")]

    def _validate_change(self, obj: T, old: T, check: Callable[[T, T, list[Violation]], None]) -> list[Violation]:
        """`check` appends what of the change is not allowed."""
        spec = getattr(obj, "spec", None)
        whole = spec is None or spec != getattr(old, "spec", None)
        out: list[Violation] = []
        self._check(obj, whole, out)
        if out:
            before: list[Violation] = []
            self._check(old, whole, before)
            out = added(out, before)
        validate_metadata_update(obj.metadata, old.metadata, out)
        check(obj, old, out)
        return out

    def _check(self, obj: T, whole: bool, out: list[Violation]) -> None:
        self.check_metadata(obj, out)
        if whole:
            self.check(obj, out)

    def check_metadata(self, obj: T, out: list[Violation]) -> None:
        """What is wrong with the metadata of an object, be it new or changed."""
        validate_metadata(obj.metadata, out, namespaced=self.resource.namespaced, name_check=self.check_name)

    def prepare_status_update(self, obj: T, old: T) -> None:
        """Carries over everything but status from `old`: here nothing, as the update is refused."""

    def date_status(self, obj: T, old: T, now: float) -> None:
        """What a new status says of when it became so, after `prepare_status_update`. `now` in Unix seconds."""

    def validate_status_update(self, obj: T, old: T) -> list[Violation]:
        """Everything that is wrong with the step to the new status, and what it makes wrong, after `date_status`."""
        return [forbidden("status", "this resource has no status to update")]

    def grace_period(self, obj: T, options: DeleteOptions) -> int:
        """Seconds that an object may take to end when it is deleted with these options (Kubernetes' CheckGracefulDelete)."""
        return 0

    def holds_others(self, obj: T) -> bool:
        """May there be objects in it that must go before?"""
        return False

    def prepare_delete(self, obj: T, why: Disruption | None, now: float) -> None:
        """What an object says of itself while it is being deleted. `why`: others end it; `now` in Unix seconds."""


class StatusStrategy(Strategy[T]):
    """Of a kind with a status, which is whoever's who watches over such objects: created without, and updated by itself."""

    def check_status(self, obj: T, out: list[Violation]) -> None:
        """What is wrong with a status by itself."""

    def check_status_change(self, new: T, old: T, out: list[Violation]) -> None:
        """What of the step to a new status is not allowed, whatever there is in it."""

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
        self.check_status(obj, out)
        if out:
            before: list[Violation] = []
            self.check_status(old, before)
            out = added(out, before)
        self.check_status_change(obj, old, out)
        return out


def added(found: Sequence[Violation], before: Iterable[Violation]) -> list[Violation]:
    """What was found beyond what there was before. What was at another index of a list has moved there with its item."""
    left = Counter(before)
    rest = _without(found, left, lambda each: each)
    return _without(rest, Counter(map(_place, left.elements())), _place)


def _without(found: Sequence[Violation], known: Counter[Violation], key: Callable[[Violation], Violation]) -> list[Violation]:
    """Takes from what is known what it takes from what was found."""
    rest: list[Violation] = []
    for each in found:
        if known[key(each)] > 0:
            known[key(each)] -= 1
        else:
            rest.append(each)
    return rest


def _place(violation: Violation) -> Violation:
    """The same wherever in its list it is."""
    return Violation(_INDEX.sub("[]", violation.field), violation.message)


def carry_over(obj: Any, old: Any, *fields: str) -> None:
    """Makes these message fields of `obj` what they are in `old`: absent ones too, so that an update that changes nothing
    leaves nothing to write."""
    for field in fields:
        if old.HasField(field):
            getattr(obj, field).CopyFrom(getattr(old, field))
        else:
            obj.ClearField(field)
