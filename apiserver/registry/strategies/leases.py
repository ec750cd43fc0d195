"""Leases: durations that make sense."""

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.violations import NEGATIVE, forbidden, invalid
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.status import Violation


class LeaseStrategy(Strategy[Lease]):
    allow_unconditional_update = False

    def check(self, obj: Lease, out: list[Violation]) -> None:
        spec = obj.spec
        if spec.HasField("leaseDurationSeconds") and spec.leaseDurationSeconds <= 0:
            out.append(invalid("spec.leaseDurationSeconds", spec.leaseDurationSeconds, "must be greater than 0"))
        if spec.leaseTransitions < 0:
            out.append(invalid("spec.leaseTransitions", spec.leaseTransitions, NEGATIVE))
        if spec.preferredHolder and not spec.strategy:
            out.append(forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"))
