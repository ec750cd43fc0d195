"""What claims of volumes, and templates of claims, ask for.

Source: pkg/apis/core/validation of Kubernetes 1.36.
"""

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal

from apiserver.registry.validation.labels import validate_selector
from apiserver.registry.validation.resources import validate_amount
from apiserver.registry.validation.storage import (
    STORAGE,
    validate_access_modes,
    validate_class_name,
    validate_size,
    validate_volume_mode,
)
from apiserver.registry.validation.violations import required
from pinnace.api.core_v1_pb2 import PersistentVolumeClaimSpec
from pinnace.api.names import MAX_KEY
from pinnace.api.quantity import QuantityError, parse
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.status import Violation


def validate_claim_spec(spec: PersistentVolumeClaimSpec, path: str, out: list[Violation]) -> None:
    if not spec.accessModes:
        out.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    if spec.HasField("selector"):
        validate_selector(spec.selector, f"{path}.selector", out)
    validate_access_modes(spec.accessModes, f"{path}.accessModes", out)
    requests = spec.resources.requests
    if STORAGE in requests:
        validate_size(requests[STORAGE].string, f"{path}.resources[{STORAGE}]", out)
    else:
        out.append(required(f"{path}.resources[{STORAGE}]"))
    for name in requests.keys() - {STORAGE}:
        validate_amount(name, requests[name].string, f"{path}.resources.requests[{name[:MAX_KEY]}]", out)
    validate_class_name(spec.storageClassName, f"{path}.storageClassName", out)
    validate_class_name(spec.volumeAttributesClassName, f"{path}.volumeAttributesClassName", out)
    validate_volume_mode(spec.volumeMode, f"{path}.volumeMode", out)


def size_of(amounts: Mapping[str, Quantity]) -> Decimal:
    """What is asked for, or there; 0 when that is unknown or unreadable."""
    with suppress(QuantityError):
        return parse(amounts[STORAGE].string) if STORAGE in amounts else Decimal(0)
    return Decimal(0)
