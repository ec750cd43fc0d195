"""What volumes and claims have in common: access modes, volume modes, classes, amounts of storage."""

from collections.abc import Sequence

from apiserver.registry.validation.violations import NOT_POSITIVE, forbidden, invalid, unsupported
from pinnace.api import names, quantity
from pinnace.api.status import Violation

STORAGE = "storage"
"""The resource that volumes have and claims ask for."""
_ALONE = "ReadWriteOncePod"
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", _ALONE)
_VOLUME_MODES = ("Block", "Filesystem")


def validate_access_modes(modes: Sequence[str], path: str, out: list[Violation]) -> None:
    out.extend(unsupported(path, mode, _ACCESS_MODES) for mode in modes if mode not in _ACCESS_MODES)
    if _ALONE in modes and any(mode != _ALONE for mode in modes):
        out.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))


def validate_volume_mode(mode: str, path: str, out: list[Violation]) -> None:
    if mode not in _VOLUME_MODES:
        out.append(unsupported(path, mode, _VOLUME_MODES))


def validate_class_name(name: str, path: str, out: list[Violation]) -> None:
    if name:
        out.extend(invalid(path, name, problem) for problem in names.dns_subdomain(name))


def validate_size(text: str, path: str, out: list[Violation]) -> None:
    """An amount of storage, more than none."""
    try:
        if quantity.parse(text) <= 0:
            out.append(invalid(path, text, NOT_POSITIVE))
    except quantity.QuantityError as error:
        out.append(invalid(path, text, str(error)))
