"""Strategies of stateful sets and controller revisions.

Source: pkg/apis/apps/validation and pkg/apis/apps/v1/defaults.go of Kubernetes 1.36.
"""

from pinnace.api.apps_v1_pb2 import ControllerRevision
from pinnace.api.scalars import SCALARS
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategy import Strategy
from pinnace.apiserver.registry.validation.fields import IMMUTABLE, NEGATIVE, invalid, required


class ControllerRevisionStrategy(Strategy[ControllerRevision]):
    def check_fields(self, obj: ControllerRevision, out: list[Violation]) -> None:
        if not obj.HasField("data"):
            out.append(required("data", "data is mandatory"))
        if obj.revision < 0:
            out.append(invalid("revision", obj.revision, NEGATIVE))

    def check_change(self, new: ControllerRevision, old: ControllerRevision, out: list[Violation]) -> None:
        if new.data != old.data:
            shown = SCALARS[new.data.DESCRIPTOR.full_name].write(new.data)
            out.append(invalid("data", shown, IMMUTABLE))
