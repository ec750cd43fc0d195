"""Strategies: the defaults, validation and deletion rules of a kind. Also the limit on the size of objects, and warnings.

`pinnace.apiserver.registry.store` has the generic part of create, update and delete, and calls the Strategy of the kind, as in
Kubernetes' registry. The strategies of the kinds are in `pinnace.apiserver.registry.strategies`. Each overrides `set_defaults`
and the checks. Some also override `prepare` methods or the methods for deletes.

Limit: an object has at most MAX_PARTS items in its lists and maps. Validation of an item takes about a hundred times as long as
its decoding: 4 MB of empty containers, two bytes each, blocked a server for a minute, and the violations used 4 GB of memory.
So the items of large objects are counted before validation. Kubernetes has no such limit: it does not serve all calls in
one thread. A stored object may exceed the limit: it may be older than the limit, and statuses, defaults and bindings add items.

Warnings: a call returns warnings about valid fields without the effect that they seem to have.

    store --warn()--> collect_warnings() of the call --> trailers (apiserver.services.handlers) --> Connection's on_warning

Source: https://kubernetes.io/blog/2020/09/03/warnings/
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pinnace.api import names
from pinnace.api.codec import map_value
from pinnace.api.meta_v1_pb2 import DeleteOptions
from pinnace.api.resources import Object, Resource
from pinnace.api.status import Violation
from pinnace.api.verbs_pb2 import Disruption
from pinnace.apiserver.registry.validation.fields import NameCheck, forbidden, validate_metadata, validate_metadata_update

T = TypeVar("T", bound=Object)
_LIST_INDEX = re.compile(r"\[[0-9]+\]")

USUAL_OBJECT_SIZE = 16 << 10
"""Objects of at most this size in bytes are not counted."""
MAX_PARTS = 10_000
"""Items of lists and maps, at any depth."""
_UNBOUNDED_PARTS = 1 << 62

MAX_WARNINGS = 20
"""Maximum number of warnings per call. A batch may cause thousands of similar warnings."""
MAX_WARNING_LENGTH = 200
"""Maximum length of a warning in characters. All warnings share the trailers with the details of a refusal."""


class Strategy(Generic[T]):
    """The base of all strategies, for kinds without a status subresource.

    All methods are pure: they use no clock, no storage and no I/O. `prepare` and `set` methods change objects in place. Checks
    append violations to a list, those of metadata first.

    `check_fields` finds violations of an object by itself, and `check_change` finds forbidden changes. A violation that the
    stored object already has does not fail an update (ratcheting), because the object may be older than the rule. So clients
    can scale or label the object without correcting it.
    Source: ratcheting, https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4008-crd-ratcheting
    """

    check_name: NameCheck = staticmethod(names.dns_subdomain)
    allow_unconditional_update = True
    """Whether an update may omit the resourceVersion. Such an update overwrites all earlier ones."""
    has_generation = False
    """Whether the server sets metadata.generation. Objects of other kinds keep what a client sends at creation. Source: the
    strategies in pkg/registry of Kubernetes 1.36."""
    counts_deletion = True
    """Whether the first delete starts a new generation, if the object has one."""
    finalizers_at_deletion: Sequence[str] = ()
    """Finalizers that the first delete adds."""
    is_graceful = False
    """Whether deletes have a grace period. If it is 0, the response contains the end of the object nevertheless."""
    is_slow = False
    """Whether defaults and violations of large objects take long, so that a thread computes them (`precompute`)."""
    can_be_disrupted = False
    """Whether a delete may contain a disruption (`DeleteRequest.disruption`)."""

    def __init__(self, resource: Resource[T]) -> None:
        self.resource = resource

    def in_version(self, api_version: str) -> "Strategy[T]":
        """Return the strategy for writes in an API version; "" is the stored one. Objects are in the stored form."""
        return self

    def set_defaults(self, obj: T) -> None:
        """Set the defaults of an object that is created or updated."""

    def check_fields(self, obj: T, out: list[Violation]) -> None:
        """Append the violations of a new or changed object, after defaults. For a kind with a spec, it checks only the spec
        and immutable fields, because it is skipped for updates that do not change the spec."""

    def check_new(self, obj: T, out: list[Violation]) -> None:
        """Append the violations of a new object."""
        self.check_fields(obj, out)

    def check_change(self, new: T, old: T, out: list[Violation]) -> None:
        """Append the forbidden changes."""

    def warnings(self, obj: T) -> Iterable[str]:
        """Warnings for a new, valid spec: fields without the effect that they seem to have."""
        return ()

    def prepare_create(self, obj: T) -> None:
        """Set defaults, and clear the fields that a client may not set (status)."""
        self.set_defaults(obj)

    @property
    def needs_compilation(self) -> bool:
        """Whether the next validation takes long, whatever the size of the object."""
        return False

    def finish_create(self, obj: T) -> Iterable[str]:
        """Make the last changes to a new object that is valid and admitted, and return its warnings. Called once for each
        object, while a refused object and one that a webhook changes are prepared again."""
        return self.warnings(obj)

    def validate(self, obj: T) -> list[Violation]:
        """Return the violations of a new object, after `prepare_create`."""
        out: list[Violation] = []
        self.check_metadata(obj, out)
        self.check_new(obj, out)
        return out

    def precompute(self, obj: T) -> None:
        """Compute the defaults and violations of a new object, and remember them if it is large. `obj` is not changed. Called
        in a thread, if `is_slow`."""

    def prepare_update(self, obj: T, old: T) -> None:
        """Copy the fields that an update of spec and metadata may not change (status) from `old`, and set defaults."""
        self.set_defaults(obj)

    def is_new_generation(self, new: T, old: T) -> bool:
        """Return whether the desired state has changed."""
        return bool(getattr(new, "spec", None) != getattr(old, "spec", None))

    def validate_update(self, obj: T, old: T) -> list[Violation]:
        """Return the forbidden changes, and the violations that the change adds, after `prepare_update`."""
        return self._validate_change(obj, old, self.check_change)

    def prepare_resize(self, obj: T, old: T) -> None:
        """Copy everything but the resources of containers from `old`. By default a resize is refused."""

    def validate_resize(self, obj: T, old: T) -> list[Violation]:
        """Return the violations of a resize, after `prepare_resize`."""
        return [forbidden("spec", "this resource cannot be resized")]

    def prepare_ephemeral_containers(self, obj: T, old: T) -> None:
        """Copy everything but the ephemeral containers from `old`. By default such an update is refused."""

    def validate_ephemeral_containers(self, obj: T, old: T) -> list[Violation]:
        """Return the violations of an update of ephemeral containers, after `prepare_ephemeral_containers`."""
        return [forbidden("spec.ephemeralContainers", "this resource has no ephemeral containers")]

    def prepare_finalize(self, obj: T, old: T) -> None:
        """Copy the fields that an update of spec.finalizers may not change from `old`. By default such an update is refused."""

    def validate_finalize(self, obj: T, old: T) -> list[Violation]:
        """Return the violations of an update of spec.finalizers, after `prepare_finalize`."""
        return [forbidden("spec.finalizers", "this resource has no finalizers in its spec")]

    def _validate_change(self, obj: T, old: T, check: Callable[[T, T, list[Violation]], None]) -> list[Violation]:
        """Return the violations that a change adds. `check_fields` appends the forbidden changes."""
        spec = getattr(obj, "spec", None)
        whole = spec is None or spec != getattr(old, "spec", None)
        out: list[Violation] = []
        self._check_object(obj, whole, out)
        if out:
            before: list[Violation] = []
            self._check_object(old, whole, before)
            out = added_violations(out, before)
        validate_metadata_update(obj.metadata, old.metadata, out)
        check(obj, old, out)
        return out

    def _check_object(self, obj: T, whole: bool, out: list[Violation]) -> None:
        self.check_metadata(obj, out)
        if whole:
            self.check_fields(obj, out)

    def check_metadata(self, obj: T, out: list[Violation]) -> None:
        """Append the violations in the metadata of a new or changed object."""
        validate_metadata(obj.metadata, out, namespaced=self.resource.namespaced, name_check=self.check_name)

    def prepare_status_update(self, obj: T, old: T) -> None:
        """Copy everything but the status from `old`. By default a status update is refused."""

    def set_status_times(self, obj: T, old: T, now: float) -> None:
        """Set the timestamps of a new status, after `prepare_status_update`. `now`: Unix seconds."""

    def validate_status_update(self, obj: T, old: T) -> list[Violation]:
        """Return the violations of a status update, after `set_status_times`."""
        return [forbidden("status", "this resource has no status to update")]

    def grace_period(self, obj: T, options: DeleteOptions) -> int:
        """Return the grace period in seconds of a delete with these options (Kubernetes' CheckGracefulDelete)."""
        return 0

    def may_contain_objects(self, obj: T) -> bool:
        """Return whether the object may contain others that must be deleted first. It then has no grace period."""
        return False

    def prepare_delete(self, obj: T, why: Disruption | None, now: float) -> None:
        """Set the status of an object that is being deleted. `why`: the disruption that ends it. `now`: Unix seconds."""


class StatusStrategy(Strategy[T]):
    """For kinds with a status subresource: the status is empty at creation and is updated separately."""

    def check_status(self, obj: T, out: list[Violation]) -> None:
        """Append the violations of a status."""

    def check_status_change(self, new: T, old: T, out: list[Violation]) -> None:
        """Append the forbidden changes of a status."""

    def prepare_create(self, obj: T) -> None:
        super().prepare_create(obj)
        message: Any = obj
        message.ClearField("status")

    def prepare_update(self, obj: T, old: T) -> None:
        super().prepare_update(obj, old)
        carry_over_fields(obj, old, "status")

    def prepare_status_update(self, obj: T, old: T) -> None:
        carry_over_fields(obj, old, "metadata", "spec")

    def validate_status_update(self, obj: T, old: T) -> list[Violation]:
        out: list[Violation] = []
        self.check_status(obj, out)
        if out:
            before: list[Violation] = []
            self.check_status(old, before)
            out = added_violations(out, before)
        self.check_status_change(obj, old, out)
        return out


def added_violations(new_violations: Sequence[Violation], before: Iterable[Violation]) -> list[Violation]:
    """Return the violations that are not in `before`. A violation at another index of the same list counts as moved."""
    left = Counter(before)
    rest = _subtract_violations(new_violations, left, lambda violation: violation)
    return _subtract_violations(rest, Counter(map(_without_indices, left.elements())), _without_indices)


def _subtract_violations(
    new_violations: Sequence[Violation], known: Counter[Violation], key: Callable[[Violation], Violation]
) -> list[Violation]:
    """Return the violations that are not known. Each known violation cancels one match."""
    rest: list[Violation] = []
    for violation in new_violations:
        if known[key(violation)] > 0:
            known[key(violation)] -= 1
        else:
            rest.append(violation)
    return rest


def _without_indices(violation: Violation) -> Violation:
    """Return the violation without list indices."""
    return Violation(_LIST_INDEX.sub("[]", violation.field), violation.message)


def carry_over_fields(obj: Any, old: Any, *fields: str) -> None:
    """Copy message fields from `old` to `obj`. A field that is absent in `old` is cleared, so that an update without changes
    writes nothing."""
    for field in fields:
        if old.HasField(field):
            getattr(obj, field).CopyFrom(getattr(old, field))
        else:
            obj.ClearField(field)


def has_too_many_items(obj: Any, stored: Any = None) -> bool:
    """Return whether the object has more than MAX_PARTS items.

    If a version of the object is `stored`, each top-level field counts separately, and may have as many items as the stored
    field.
    """
    if obj.ByteSize() <= USUAL_OBJECT_SIZE or _remaining_item_room(obj, MAX_PARTS) >= 0:
        return False
    return stored is None or any(
        _has_grown_past_limit(value, getattr(stored, field.name), field) for field, value in obj.ListFields()
    )


def _has_grown_past_limit(value: Any, before: Any, field: FieldDescriptor) -> bool:
    """Return whether the field has more than MAX_PARTS items, and more than in `before`."""
    if _remaining_field_item_room(field, value, MAX_PARTS) >= 0:
        return False
    had = _UNBOUNDED_PARTS - _remaining_field_item_room(field, before, _UNBOUNDED_PARTS)
    return _remaining_field_item_room(field, value, max(had, MAX_PARTS)) < 0


def _remaining_item_room(message: Message, room: int) -> int:
    """Return `room` minus the items of the message. The result is negative if there are more, and counting stops there."""
    for field, value in message.ListFields():
        room = _remaining_field_item_room(field, value, room)
        if room < 0:
            break
    return room


def _remaining_field_item_room(field: FieldDescriptor, value: Any, room: int) -> int:
    """`room` minus the items of one field, counted as in `_remaining_item_room`."""
    if field.is_repeated:
        room -= len(value)
    if room < 0 or field.message_type is None:
        return room
    if not field.is_repeated:
        return _remaining_item_room(value, room)
    of = map_value(field)
    if of is None or of.message_type is not None:
        for item in value if of is None else value.values():
            room = _remaining_item_room(item, room)
    return room


class CollectedWarnings(dict[str, None]):
    """The warnings of a call, without duplicates, in order."""

    created = False
    """Whether the call created an object, although it need not have."""


_collected_warnings: ContextVar[CollectedWarnings | None] = ContextVar("warnings", default=None)


@contextmanager
def collect_warnings() -> Iterator[CollectedWarnings]:
    """Collect the warnings of a call."""
    gathered = CollectedWarnings()
    token = _collected_warnings.set(gathered)
    try:
        yield gathered
    finally:
        _collected_warnings.reset(token)


def record_created() -> None:
    """Note that the present call created an object."""
    gathered = _collected_warnings.get()
    if gathered is not None:
        gathered.created = True


def add_warnings(warnings: Iterable[str]) -> None:
    """Add warnings to the present call, if it collects them."""
    gathered = _collected_warnings.get()
    if gathered is None:
        return
    for warning in warnings:
        if len(gathered) >= MAX_WARNINGS:
            return
        gathered[warning[:MAX_WARNING_LENGTH]] = None
