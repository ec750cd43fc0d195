"""How the API server refuses: one exception that carries a `Refusal`, and the usual refusals by name.

The wording is Kubernetes', so that what people have learnt to read stays readable.
"""

from collections.abc import Sequence
from typing import Any

from apiserver.storage.interface import OutcomeUnknown, OutOfSpace, StorageError, TooLarge
from pinnace.api.resources import Resource
from pinnace.api.status import Code, Refusal, Violation, summarize

RETRY_AFTER = 0.1
"""Seconds that we ask a client to wait before it tries again what failed for lack of etcd."""


MAX_VIOLATIONS = 4000
"""Bytes of violations that a refusal tells: many peers refuse trailers of more than 8 KiB, and these may be there in base64."""


UNREADABLE = "StorageReadError"


class Rejected(Exception):
    """The request is refused; nothing was written."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def not_found(resource: Resource[Any], name: str) -> Refusal:
    return Refusal(Code.NOT_FOUND, "NotFound", f'{resource.plural} "{name}" not found')


def unreadable(resource: Resource[Any], name: str) -> Refusal:
    """It is no such message, or nested too deep. The reason is Kubernetes'."""
    message = f'{resource.plural} "{name}" cannot be read as it is in etcd: it is left out of lists and watches'
    hint = f"if it is of no use to anybody, delete its key in etcd: it is below {resource.prefix}"
    return Refusal(Code.INTERNAL, UNREADABLE, message, metadata=(("hint", hint),))


def already_exists(resource: Resource[Any], name: str) -> Refusal:
    return Refusal(Code.ALREADY_EXISTS, "AlreadyExists", f'{resource.plural} "{name}" already exists')


def stale(resource: Resource[Any], name: str, given: str, now: int) -> Refusal:
    message = f'{resource.plural} "{name}": resourceVersion {given} is stale, now {now}'
    return Refusal(Code.ABORTED, "Conflict", message, metadata=(("resourceVersion", str(now)),))


def uid_mismatch(resource: Resource[Any], name: str, given: str, now: str) -> Refusal:
    message = f'{resource.plural} "{name}": uid {given} is not that of the object, which is {now}: it is a namesake'
    return Refusal(Code.ABORTED, "UIDMismatch", message)


def contended(resource: Resource[Any], name: str) -> Refusal:
    message = f'{resource.plural} "{name}": too many others are writing it; try again'
    return Refusal(Code.ABORTED, "Contended", message, retry_after=RETRY_AFTER)


def invalid(resource: Resource[Any], name: str, violations: Sequence[Violation]) -> Refusal:
    """Tells as many of the violations as there is room for, and how many there are besides. An object may have thousands, and a
    batch may be of a thousand such objects; Kubernetes tells them all."""
    told, room = list[Violation](), MAX_VIOLATIONS
    for violation in violations:
        room -= len(violation.field.encode()) + len(violation.message.encode()) + 16
        if room < 0:
            told.append(Violation("", f"... and {len(violations) - len(told):,} more"))
            break
        told.append(violation)
    message = f'{resource.kind} "{name}" is invalid: {summarize(told)}'
    return Refusal(Code.INVALID_ARGUMENT, "Invalid", message, violations=tuple(told))


def too_much(resource: Resource[Any], name: str, most: int) -> Refusal:
    message = f'{resource.plural} "{name}": more than {most:,} items in its lists and maps'
    return Refusal(Code.INVALID_ARGUMENT, "TooLarge", message)


def bad_request(message: str, hint: str = "") -> Refusal:
    """`hint`: the way out, where it is not to correct the request."""
    return Refusal(Code.INVALID_ARGUMENT, "BadRequest", message, metadata=(("hint", hint),) if hint else ())


def forbidden(message: str) -> Refusal:
    return Refusal(Code.PERMISSION_DENIED, "Forbidden", message)


def fenced(election: str, token: int) -> Refusal:
    message = f'token {token} does not lead election "{election}" any more: stand down'
    return Refusal(Code.FAILED_PRECONDITION, "Fenced", message)


OVERTAKEN = Refusal(
    Code.ABORTED, "Overtaken", "what the write was admitted for has changed meanwhile; try again", retry_after=RETRY_AFTER
)
"""A guard that admission had asked for did not hold (apiserver.registry.admission)."""


def caller_left() -> Refusal:
    """For the record: nobody is there any more to be told."""
    return Refusal(Code.UNAVAILABLE, "OutcomeUnknown", "the caller left before there was an answer: it may have happened")


def from_storage(error: StorageError) -> Refusal:
    """The refusal of a request that the storage could not carry out."""
    match error:
        case OutcomeUnknown():
            message = f"the outcome is unknown, it may have happened: {error}; read before you repeat it"
            return Refusal(Code.UNAVAILABLE, "OutcomeUnknown", message)
        case OutOfSpace():
            message = "etcd is out of space: reads and deletes work; compact, defragment and disarm the alarm"
            return Refusal(Code.RESOURCE_EXHAUSTED, "OutOfSpace", message)
        case TooLarge():
            return Refusal(Code.INVALID_ARGUMENT, "TooLarge", f"the object is too large to store: {error}")
        case _:
            return Refusal(Code.UNAVAILABLE, "StorageUnavailable", f"etcd: {error}", retry_after=RETRY_AFTER)
