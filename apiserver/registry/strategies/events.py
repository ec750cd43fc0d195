"""Events: one that does not say otherwise is normal, and happened once."""

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.events import validate_event, validate_event_update
from pinnace.api.core_v1_pb2 import Event
from pinnace.api.status import Violation


class EventStrategy(Strategy[Event]):
    def prepare_create(self, obj: Event) -> None:
        self._set_defaults(obj)

    def validate(self, obj: Event) -> list[Violation]:
        return validate_event(obj)

    def prepare_update(self, obj: Event, old: Event) -> None:
        self._set_defaults(obj)

    def validate_update(self, obj: Event, old: Event) -> list[Violation]:
        return validate_event_update(obj, old)

    @staticmethod
    def _set_defaults(event: Event) -> None:
        if not event.type:
            event.type = "Normal"
        if not event.count and not event.HasField("series"):
            event.count = 1
