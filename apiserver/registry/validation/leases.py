"""Leases: durations that make sense."""

from apiserver.registry.validation.metadata import validate_metadata, validate_metadata_update
from apiserver.registry.validation.violations import NEGATIVE, forbidden, invalid
from pinnace.api.coordination_v1_pb2 import Lease, LeaseSpec
from pinnace.api.status import Violation


def validate_lease(lease: Lease) -> list[Violation]:
    """Everything that is wrong with a new lease."""
    out: list[Violation] = []
    validate_metadata(lease.metadata, out, namespaced=True)
    _validate_spec(lease.spec, out)
    return out


def validate_lease_update(new: Lease, old: Lease) -> list[Violation]:
    """Everything that is wrong with the change, and with the lease as it would be."""
    out: list[Violation] = []
    validate_metadata_update(new.metadata, old.metadata, out, namespaced=True)
    _validate_spec(new.spec, out)
    return out


def _validate_spec(spec: LeaseSpec, out: list[Violation]) -> None:
    if spec.HasField("leaseDurationSeconds") and spec.leaseDurationSeconds <= 0:
        out.append(invalid("spec.leaseDurationSeconds", spec.leaseDurationSeconds, "must be greater than 0"))
    if spec.leaseTransitions < 0:
        out.append(invalid("spec.leaseTransitions", spec.leaseTransitions, NEGATIVE))
    if spec.preferredHolder and not spec.strategy:
        out.append(forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"))
