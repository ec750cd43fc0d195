"""Volumes of a pod, and where containers mount them."""

from collections.abc import Mapping, Sequence

from apiserver.registry.validation.sources import validate_no_backsteps, validate_source
from apiserver.registry.validation.text import validate_no_null
from apiserver.registry.validation.violations import duplicate, forbidden, invalid, not_found, required, unsupported
from pinnace.api import names
from pinnace.api.core_v1_pb2 import Volume, VolumeDevice, VolumeMount
from pinnace.api.status import Violation

_PROPAGATION = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE = ("Disabled", "Enabled", "IfPossible")


def validate_volumes(volumes: Sequence[Volume], path: str, out: list[Violation]) -> Mapping[str, bool]:
    """The names of the volumes, for their mounts; and whether each is of a claim, and may be a block device."""
    seen: dict[str, bool] = {}
    for index, volume in enumerate(volumes):
        where = f"{path}[{index}]"
        name = volume.name
        if not name:
            out.append(required(f"{where}.name"))
        elif problems := names.dns_label(name):
            out.extend(invalid(f"{where}.name", name, problem) for problem in problems)
        elif name in seen:
            out.append(duplicate(f"{where}.name", name))
        source = volume.volumeSource
        seen[name] = source.HasField("persistentVolumeClaim") or source.HasField("ephemeral")
        validate_source(source, where, out)
    return seen


def validate_generated_claims(pod: str, volumes: Sequence[Volume], path: str, out: list[Violation]) -> None:
    """Of the pod of this name: the claims that are made for its ephemeral volumes are named after both."""
    generated = {volume.name: f"{pod}-{volume.name}" for volume in volumes if volume.volumeSource.HasField("ephemeral")}
    if not generated:
        return
    made = set(generated.values())
    for index, volume in enumerate(volumes):
        claim = volume.volumeSource.persistentVolumeClaim.claimName
        if claim in made:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            out.append(invalid(f"{path}[{index}].persistentVolumeClaim.claimName", claim, detail))
        elif name := generated.get(volume.name):
            where, shown = f"{path}[{index}].name", name[: names.MAX_KEY]
            problems = names.dns_subdomain(name)
            out.extend(invalid(where, volume.name, f'PVC name "{shown}": {problem}') for problem in problems)


def validate_mounts(
    mounts: Sequence[VolumeMount],
    devices: Sequence[VolumeDevice],
    volumes: Mapping[str, bool],
    privileged: bool,
    path: str,
    out: list[Violation],
) -> None:
    """Of one container; `path` is the container's, `volumes` as of `validate_volumes`."""
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        where = f"{path}.volumeMounts[{index}]"
        _validate_reference(mount.name, volumes, f"{where}.name", out)
        _validate_target(mount.mountPath, paths, f"{where}.mountPath", out)
        for field, value in (("subPath", mount.subPath), ("subPathExpr", mount.subPathExpr)):
            if value.startswith("/"):
                out.append(invalid(f"{where}.{field}", value, "must be a relative path"))
            validate_no_backsteps(value, f"{where}.{field}", out)
            validate_no_null(value, f"{where}.{field}", out)
        if mount.subPath and mount.subPathExpr:
            detail = "subPathExpr and subPath are mutually exclusive"
            out.append(invalid(f"{where}.subPathExpr", mount.subPathExpr, detail))
        if mount.HasField("mountPropagation"):
            if mount.mountPropagation not in _PROPAGATION:
                out.append(unsupported(f"{where}.mountPropagation", mount.mountPropagation, _PROPAGATION))
            elif mount.mountPropagation == "Bidirectional" and not privileged:
                detail = "Bidirectional mount propagation is available only to privileged containers"
                out.append(forbidden(f"{where}.mountPropagation", detail))
        if mount.HasField("recursiveReadOnly"):
            _validate_recursive(mount, f"{where}.recursiveReadOnly", out)
    mounted = {mount.name for mount in mounts}
    for index, device in enumerate(devices):
        where = f"{path}.volumeDevices[{index}]"
        _validate_reference(device.name, volumes, f"{where}.name", out)
        _validate_target(device.devicePath, paths, f"{where}.devicePath", out)
        if not volumes.get(device.name, True):
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            out.append(invalid(f"{where}.name", device.name, detail))
        if device.name in mounted:
            out.append(invalid(f"{where}.name", device.name, "must not already exist in volumeMounts"))


def _validate_recursive(mount: VolumeMount, path: str, out: list[Violation]) -> None:
    if mount.recursiveReadOnly not in _RECURSIVE:
        out.append(unsupported(path, mount.recursiveReadOnly, _RECURSIVE))
    elif mount.recursiveReadOnly != "Disabled":
        if not mount.readOnly:
            out.append(forbidden(path, "may only be specified when readOnly is true"))
        if mount.HasField("mountPropagation") and mount.mountPropagation != "None":
            out.append(forbidden(path, "may only be specified when mountPropagation is None or not specified"))


def _validate_reference(name: str, volumes: Mapping[str, bool], path: str, out: list[Violation]) -> None:
    if not name:
        out.append(required(path))
    elif name not in volumes:
        out.append(not_found(path, name))


def _validate_target(target: str, taken: set[str], path: str, out: list[Violation]) -> None:
    if not target:
        out.append(required(path))
    elif target in taken:
        out.append(invalid(path, target, "must be unique"))
    validate_no_null(target, path, out)
    taken.add(target)
