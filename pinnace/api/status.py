"""Encoding and decoding of refusals as google.rpc.Status with details.

The server converts its exceptions to refusals (apiserver.errors), and the client converts refusals to its exceptions
(pinnace.client.errors). Codes are gRPC status codes; `reason` is a machine-readable reason in CamelCase.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

DOMAIN = "pinnace"
APPLY_CONFLICT = "ApplyConflict"
"""The reason when an apply changes fields of other managers. Each violation is a field, and the manager that owns it."""
DEFINITION_TERMINATING = "DefinitionTerminating"
"""The reason of a refusal: the definition of the kind is being deleted."""
INVALID_KIND = "invalidKind"
"""The metadata with the kind in the message about an invalid object, if it is not that of the resource."""
PRECONDITION_KIND = "preconditionKind"
"""The metadata with the kind of the object, if a precondition of a delete did not hold."""
TOO_LARGE = "TooLarge"
"""The reason of a refusal: etcd does not store objects of this size."""
UNMERGEABLE = "Unmergeable"
"""The reason of a refusal: a strategic merge patch cannot be merged into the object."""
TYPE_INVALID = "FieldValueTypeInvalid"
"""The reason of a violation: the value of a custom object has another type or format than its schema."""
UNTYPED = "Untyped"
"""The reason when a configuration does not have the types of its kind."""
STATUS_CODE, STATUS_REASON, STATUS_DETAILS = "statusCode", "statusReason", "statusDetails"
"""The metadata of a refusal whose HTTP status somebody else has chosen, such as a webhook: its code, reason, and details as
JSON. The gateway sends them unchanged."""
DETAILS_KEY = "grpc-status-details-bin"
"""The trailer that contains the Status."""


class Code(IntEnum):
    """The gRPC status codes that the API uses (google.rpc.Code). Other numbers are mapped to INTERNAL."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16

    @classmethod
    def _missing_(cls, value: object) -> "Code":
        return cls.INTERNAL


@dataclass(frozen=True, slots=True)
class Violation:
    """An invalid field of an object. `field`: its path, for example "spec.containers[0].name"."""

    field: str
    message: str
    reason: str = ""
    """The reason of Kubernetes' cause. Empty: the reason that belongs to the beginning of the message."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


@dataclass(frozen=True, slots=True)
class Refusal:
    """The content of a Status."""

    code: Code
    reason: str
    message: str
    violations: tuple[Violation, ...] = ()
    retry_after: float | None = None
    """Seconds after which the call can be retried. None means that a retry does not help."""
    metadata: tuple[tuple[str, str], ...] = ()
    """Machine-readable details, for example ("compactRevision", "812")."""


def encode(refusal: Refusal) -> status_pb2.Status:
    status = status_pb2.Status(code=int(refusal.code), message=refusal.message)
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(reason=refusal.reason, domain=DOMAIN, metadata=dict(refusal.metadata))
    )
    if refusal.violations:
        bad = error_details_pb2.BadRequest()
        for violation in refusal.violations:
            bad.field_violations.add(field=violation.field, description=violation.message, reason=violation.reason)
        status.details.add().Pack(bad)
    if refusal.retry_after is not None:
        delay = Duration()
        delay.FromMilliseconds(round(refusal.retry_after * 1000))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def decode(status: status_pb2.Status) -> Refusal:
    info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    has_retry = False
    for detail in status.details:
        if not detail.Unpack(info) and not detail.Unpack(bad):
            has_retry = detail.Unpack(retry) or has_retry
    return Refusal(
        code=Code(status.code),
        reason=info.reason,
        message=status.message,
        violations=tuple(Violation(v.field, v.description, v.reason) for v in bad.field_violations),
        retry_after=retry.retry_delay.ToMilliseconds() / 1000 if has_retry else None,
        metadata=tuple(sorted(info.metadata.items())),
    )


def conflict_message(conflicts: Sequence[Violation]) -> str:
    """Kubernetes' message about the conflicts of an apply."""
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: {conflicts[0].message}: {conflicts[0].field}"
    lines = list[str]()
    for owner in dict.fromkeys(conflict.message for conflict in conflicts):
        lines.append(f"{owner.replace('conflict', 'conflicts', 1)}:")
        lines += [f"- {conflict.field}" for conflict in conflicts if conflict.message == owner]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def summarize(violations: Iterable[Violation]) -> str:
    return "; ".join(str(violation) for violation in violations)
