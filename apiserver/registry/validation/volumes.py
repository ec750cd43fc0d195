"""Volumes of a pod, and where containers mount them."""

from collections.abc import Sequence

from apiserver.registry.validation.resources import validate_amount
from apiserver.registry.validation.violations import duplicate, forbidden, invalid, not_found, required, unsupported
from pinnace.api import names
from pinnace.api.core_v1_pb2 import Volume, VolumeDevice, VolumeMount, VolumeSource
from pinnace.api.status import Violation

_REQUIRED_IN_SOURCE = {
    "hostPath": ("path",),
    "secret": ("secretName",),
    "nfs": ("server", "path"),
    "persistentVolumeClaim": ("claimName",),
    "csi": ("driver",),
}
"""Fields without which a source means nothing."""
_PROPAGATION = ("Bidirectional", "HostToContainer", "None")
_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")


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
        _validate_source(volume.volumeSource, where, out)
    return frozenset(seen)


def _validate_source(source: VolumeSource, path: str, out: list[Violation]) -> None:
    given = [field.name for field, _ in source.ListFields()]
    if not given:
        return  # a kind that is not modelled: defaults have seen to the rest
    first, *more = given
    out.extend(forbidden(f"{path}.{name}", "may not specify more than 1 volume type") for name in more)
    details = getattr(source, first)
    missing = [field for field in _REQUIRED_IN_SOURCE.get(first, ()) if not getattr(details, field)]
    out.extend(required(f"{path}.{first}.{field}") for field in missing)
    match first:
        case "hostPath":
            host = source.hostPath
            _validate_no_backsteps(host.path, f"{path}.hostPath.path", out)
            if host.type not in _HOST_PATH_TYPES:
                out.append(unsupported(f"{path}.hostPath.type", host.type, _HOST_PATH_TYPES))
        case "configMap" if not source.configMap.localObjectReference.name:
            out.append(required(f"{path}.configMap.name"))
        case "emptyDir" if source.emptyDir.HasField("sizeLimit"):
            validate_amount("memory", source.emptyDir.sizeLimit.string, f"{path}.emptyDir.sizeLimit", out)


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
            _validate_no_backsteps(value, f"{where}.{field}", out)
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


def _validate_no_backsteps(target: str, path: str, out: list[Violation]) -> None:
    if ".." in target.split("/"):
        out.append(invalid(path, target, "must not contain '..'"))
