"""Events: about which object, why, and whether it matters. One that does not say otherwise is normal, and happened once."""

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.violations import IMMUTABLE, NEGATIVE, invalid, required, too_long, unsupported
from pinnace.api.core_v1_pb2 import Event
from pinnace.api.resources import DEFAULT_NAMESPACE
from pinnace.api.status import Violation

TYPES = ("Normal", "Warning")
MAX_REASON, MAX_MESSAGE = 128, 1024


class EventStrategy(Strategy[Event]):
    def set_defaults(self, obj: Event) -> None:
        if not obj.type:
            obj.type = "Normal"
        if not obj.count and not obj.HasField("series"):
            obj.count = 1

    def check(self, obj: Event, out: list[Violation]) -> None:
        """Events about objects without a namespace are in the default one."""
        about, reason, kind, namespace = obj.involvedObject, obj.reason, obj.type, obj.metadata.namespace
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
        if len(obj.message) > MAX_MESSAGE:
            out.append(too_long("message", MAX_MESSAGE))
        if kind not in TYPES:
            out.append(unsupported("type", kind, TYPES))
        if obj.count < 0:
            out.append(invalid("count", obj.count, NEGATIVE))

    def check_change(self, new: Event, old: Event, out: list[Violation]) -> None:
        if new.involvedObject != old.involvedObject:
            out.append(invalid("involvedObject", new.involvedObject.name, IMMUTABLE))
