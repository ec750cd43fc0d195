"""Conditions in the status of objects: at most one of each type, with the time of its last transition.

The caller sets additional fields, such as lastHeartbeatTime and observedGeneration.
Source: SetStatusCondition in k8s.io/apimachinery/pkg/api/meta/conditions.go of Kubernetes.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from pinnace.api.meta_v1_pb2 import Time
from pinnace.api.scalars import to_time


class Condition(Protocol):
    """The common fields of PodCondition, NodeCondition and other conditions."""

    type: str
    status: str
    """True, False or Unknown."""
    lastTransitionTime: Time  # noqa: N815 - the field's name
    reason: str
    message: str


C = TypeVar("C", bound=Condition)
C_co = TypeVar("C_co", bound=Condition, covariant=True)


class Conditions(Protocol[C_co]):
    """A repeated condition field of a status."""

    def __iter__(self) -> Iterator[C_co]: ...

    def add(self, *, type: str) -> C_co: ...  # noqa: A002 - the field's name


def find_condition(conditions: Iterable[C], type_: str) -> C | None:
    for condition in conditions:
        if condition.type == type_:
            return condition
    return None


def is_condition_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Return whether the condition exists and is True."""
    condition = find_condition(conditions, type_)
    return condition is not None and condition.status == "True"


def set_condition(conditions: Conditions[C], type_: str, status: str, reason: str, message: str, now: float) -> C:
    """Set the condition of this type in place, and return it. It is added if it does not exist. lastTransitionTime is set to
    `now`, in Unix time, if `status` changes."""
    said = find_condition(conditions, type_)
    if said is None:
        said = conditions.add(type=type_)
    if said.status != status:
        said.lastTransitionTime.CopyFrom(to_time(now))
    said.status, said.reason, said.message = status, reason, message
    return said
