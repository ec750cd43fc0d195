"""Volumes of a pod, and where containers mount them."""

from collections.abc import Sequence

from apiserver.registry.validation.sources import validate_no_backsteps, validate_source
from apiserver.registry.validation.violations import duplicate, invalid, not_found, required, unsupported
from pinnace.api import names
from pinnace.api.core_v1_pb2 import Volume, VolumeDevice, VolumeMount
from pinnace.api.status import Violation

_PROPAGATION = ("Bidirectional", "HostToContainer", "None")


def validate_volumes(volumes: Sequence[Volume], path: str, out: list[Violation]) -> frozenset[str]:
    """The names of the volumes, for their mounts."""
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        where = f"{path}[{index}]"
        name = volume.name
        if not name:
            out.append(required(f"{where}.name"))
        elif problems := names.dns_label(name):
            out.extend(invalid(f"{where}.name", name, problem) for problem in problems)
        elif name in seen:
            out.append(duplicate(f"{where}.name", name))
        seen.add(name)
        validate_source(volume.volumeSource, where, out)
    return frozenset(seen)


def validate_mounts(
    mounts: Sequence[VolumeMount], devices: Sequence[VolumeDevice], volumes: frozenset[str], path: str, out: list[Violation]
) -> None:
    """Of one container; `path` is the container's."""
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        where = f"{path}.volumeMounts[{index}]"
        _validate_reference(mount.name, volumes, f"{where}.name", out)
        _validate_target(mount.mountPath, paths, f"{where}.mountPath", out)
        for field, value in (("subPath", mount.subPath), ("subPathExpr", mount.subPathExpr)):
            if value.startswith("/"):
                out.append(invalid(f"{where}.{field}", value, "must be a relative path"))
            validate_no_backsteps(value, f"{where}.{field}", out)
        if mount.subPath and mount.subPathExpr:
            detail = "subPathExpr and subPath are mutually exclusive"
            out.append(invalid(f"{where}.subPathExpr", mount.subPathExpr, detail))
        if mount.HasField("mountPropagation") and mount.mountPropagation not in _PROPAGATION:
            out.append(unsupported(f"{where}.mountPropagation", mount.mountPropagation, _PROPAGATION))
    mounted = {mount.name for mount in mounts}
    for index, device in enumerate(devices):
        where = f"{path}.volumeDevices[{index}]"
        _validate_reference(device.name, volumes, f"{where}.name", out)
        _validate_target(device.devicePath, paths, f"{where}.devicePath", out)
        if device.name in mounted:
            out.append(invalid(f"{where}.name", device.name, "must not already exist in volumeMounts"))


def _validate_reference(name: str, volumes: frozenset[str], path: str, out: list[Violation]) -> None:
    if not name:
        out.append(required(path))
    elif name not in volumes:
        out.append(not_found(path, name))


def _validate_target(target: str, taken: set[str], path: str, out: list[Violation]) -> None:
    if not target:
        out.append(required(path))
    elif target in taken:
        out.append(invalid(path, target, "must be unique"))
    taken.add(target)
