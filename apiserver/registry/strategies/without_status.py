"""Resources whose status nobody writes by itself: half of a Strategy."""

from apiserver.registry.validation.violations import forbidden
from pinnace.api.resources import Object
from pinnace.api.status import Violation


class WithoutStatus:
    def prepare_status_update(self, obj: Object, old: Object) -> None:
        """Nothing to carry over: the update is refused."""

    def validate_status_update(self, obj: Object, old: Object) -> list[Violation]:
        return [forbidden("status", "this resource has no status to update")]
