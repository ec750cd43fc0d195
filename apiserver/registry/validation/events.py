"""Events: about which object, why, and whether it matters."""

from apiserver.registry.validation.metadata import validate_metadata, validate_metadata_update
from apiserver.registry.validation.violations import IMMUTABLE, NEGATIVE, invalid, required, too_long, unsupported
from pinnace.api.core_v1_pb2 import Event
from pinnace.api.status import Violation

TYPES = ("Normal", "Warning")
MAX_REASON, MAX_MESSAGE = 128, 1024
DEFAULT_NAMESPACE = "default"
"""Where events about cluster-scoped objects are."""


def validate_event(event: Event) -> list[Violation]:
    """Everything that is wrong with a new event."""
    out: list[Violation] = []
    validate_metadata(event.metadata, out, namespaced=True)
    _validate_content(event, out)
    return out


def validate_event_update(new: Event, old: Event) -> list[Violation]:
    """Everything that is wrong with the change, and with the event as it would be."""
    out: list[Violation] = []
    validate_metadata_update(new.metadata, old.metadata, out, namespaced=True)
    if new.involvedObject != old.involvedObject:
        out.append(invalid("involvedObject", new.involvedObject.name, IMMUTABLE))
    _validate_content(new, out)
    return out


def _validate_content(event: Event, out: list[Violation]) -> None:
    about, reason, kind, namespace = event.involvedObject, event.reason, event.type, event.metadata.namespace
    if not about.kind:
        out.append(required("involvedObject.kind"))
    if not about.name:
        out.append(required("involvedObject.name"))
    if namespace != (about.namespace or DEFAULT_NAMESPACE):
        out.append(invalid("involvedObject.namespace", about.namespace, "does not match event.namespace"))
    if not reason:
        out.append(required("reason"))
    elif len(reason) > MAX_REASON:
        out.append(too_long("reason", MAX_REASON))
    if len(event.message) > MAX_MESSAGE:
        out.append(too_long("message", MAX_MESSAGE))
    if kind not in TYPES:
        out.append(unsupported("type", kind, TYPES))
    if event.count < 0:
        out.append(invalid("count", event.count, NEGATIVE))
