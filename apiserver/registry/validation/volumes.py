"""Validation of volumes: sources, mounts, projected files, claims, and templates of claims.

Source: pkg/apis/core/validation of Kubernetes 1.36.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from pinnace.api import names, quantity
from pinnace.api.core_v1_pb2 import (
    DownwardAPIVolumeFile,
    EphemeralVolumeSource,
    KeyToPath,
    ObjectFieldSelector,
    PersistentVolumeClaimSpec,
    PersistentVolumeSource,
    ResourceFieldSelector,
    ServiceAccountTokenProjection,
    Volume,
    VolumeDevice,
    VolumeMount,
    VolumeProjection,
    VolumeSource,
)
from pinnace.api.names import MAX_KEY
from pinnace.api.quantity import QuantityError, parse
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.status import Violation
from pinnace.apiserver.registry.validation.fields import (
    MAX_SHOWN,
    NOT_POSITIVE,
    duplicate,
    forbidden,
    invalid,
    not_found,
    range_message,
    required,
    unsupported,
    validate_amount,
    validate_annotations,
    validate_labels,
    validate_no_null,
    validate_selector,
)

_MOUNT_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE_READ_ONLY_MODES = ("Disabled", "Enabled", "IfPossible")

MAX_DRIVER_NAME = 63
_REQUIRED_SOURCE_FIELDS: Mapping[str, tuple[str, ...]] = {
    "HostPathVolumeSource": ("path",),
    "GCEPersistentDiskVolumeSource": ("pdName",),
    "AWSElasticBlockStoreVolumeSource": ("volumeID",),
    "SecretVolumeSource": ("secretName",),
    "NFSVolumeSource": ("server", "path"),
    "ISCSIVolumeSource": ("targetPortal", "iqn"),
    "ISCSIPersistentVolumeSource": ("targetPortal", "iqn"),
    "PersistentVolumeClaimVolumeSource": ("claimName",),
    "RBDVolumeSource": ("monitors", "image"),
    "RBDPersistentVolumeSource": ("monitors", "image"),
    "CSIVolumeSource": ("driver",),
    "CSIPersistentVolumeSource": ("driver", "volumeHandle"),
    "LocalVolumeSource": ("path",),
}
"""Required fields by message."""
_FILE_VOLUME_SOURCES = ("secret", "configMap", "downwardAPI", "projected")
_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_match_iqn = re.compile(
    r"iqn\.\d{4}-\d{2}\.([a-zA-Z0-9.-]+)(:[^,;*&$|\s]+)?|eui\.[a-zA-Z0-9]{16}|naa\.[a-zA-Z0-9]{32}"
).fullmatch

MAX_FILE_MODE = 0o777
MIN_TOKEN_SECONDS, MAX_TOKEN_SECONDS = 600, 2**32
_DOWNWARD_API_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")

_MAP_KEY_PREFIXES = ("metadata.annotations['", "metadata.labels['")
_DOWNWARD_API_RESOURCES = tuple(
    f"{kind}.{resource}" for kind in ("limits", "requests") for resource in ("cpu", "ephemeral-storage", "memory")
)
_CPU_UNITS = ("1m", "1")
_BYTE_UNITS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")

STORAGE_RESOURCE = "storage"
"""The resource of volumes and claims."""
_SINGLE_POD_ACCESS_MODE = "ReadWriteOncePod"
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", _SINGLE_POD_ACCESS_MODE)
_VOLUME_MODES = ("Block", "Filesystem")


def validate_volumes(volumes: Sequence[Volume], path: str, out: list[Violation]) -> Mapping[str, bool]:
    """Validate volumes and return, by name, whether each can be a block device because it is a claim."""
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
    """Validate the names of the claims that are created for ephemeral volumes of the pod `pod`."""
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
    """Validate the mounts of the container at `path`. `volumes`: the result of `validate_volumes`."""
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        where = f"{path}.volumeMounts[{index}]"
        _validate_reference(mount.name, volumes, f"{where}.name", out)
        _validate_mount_target(mount.mountPath, paths, f"{where}.mountPath", out)
        for field, value in (("subPath", mount.subPath), ("subPathExpr", mount.subPathExpr)):
            if value.startswith("/"):
                out.append(invalid(f"{where}.{field}", value, "must be a relative path"))
            validate_no_parent_references(value, f"{where}.{field}", out)
            validate_no_null(value, f"{where}.{field}", out)
        if mount.subPath and mount.subPathExpr:
            detail = "subPathExpr and subPath are mutually exclusive"
            out.append(invalid(f"{where}.subPathExpr", mount.subPathExpr, detail))
        if mount.HasField("mountPropagation"):
            if mount.mountPropagation not in _MOUNT_PROPAGATIONS:
                out.append(unsupported(f"{where}.mountPropagation", mount.mountPropagation, _MOUNT_PROPAGATIONS))
            elif mount.mountPropagation == "Bidirectional" and not privileged:
                detail = "Bidirectional mount propagation is available only to privileged containers"
                out.append(forbidden(f"{where}.mountPropagation", detail))
        if mount.HasField("recursiveReadOnly"):
            _validate_recursive(mount, f"{where}.recursiveReadOnly", out)
    mounted = {mount.name for mount in mounts}
    for index, device in enumerate(devices):
        where = f"{path}.volumeDevices[{index}]"
        _validate_reference(device.name, volumes, f"{where}.name", out)
        _validate_mount_target(device.devicePath, paths, f"{where}.devicePath", out)
        if not volumes.get(device.name, True):
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            out.append(invalid(f"{where}.name", device.name, detail))
        if device.name in mounted:
            out.append(invalid(f"{where}.name", device.name, "must not already exist in volumeMounts"))


def _validate_recursive(mount: VolumeMount, path: str, out: list[Violation]) -> None:
    if mount.recursiveReadOnly not in _RECURSIVE_READ_ONLY_MODES:
        out.append(unsupported(path, mount.recursiveReadOnly, _RECURSIVE_READ_ONLY_MODES))
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


def _validate_mount_target(target: str, taken: set[str], path: str, out: list[Violation]) -> None:
    if not target:
        out.append(required(path))
    elif target in taken:
        out.append(invalid(path, target, "must be unique"))
    validate_no_null(target, path, out)
    taken.add(target)


def validate_source(source: VolumeSource | PersistentVolumeSource, path: str, out: list[Violation]) -> None:
    """Validate the first source that is set. A source of a kind that is not modelled is not validated."""
    given = [field.name for field, _ in source.ListFields()]
    if not given:
        return
    first, *more = given
    out.extend(forbidden(f"{path}.{name}", "may not specify more than 1 volume type") for name in more)
    details = getattr(source, first)
    missing = [field for field in _REQUIRED_SOURCE_FIELDS.get(details.DESCRIPTOR.name, ()) if not getattr(details, field)]
    out.extend(required(f"{path}.{first}.{field}") for field in missing)
    if first in _FILE_VOLUME_SOURCES:
        validate_files(first, details, f"{path}.{first}", out)
    _validate_source_fields(first, details, f"{path}.{first}", out)


def validate_no_parent_references(target: str, path: str, out: list[Violation]) -> None:
    if ".." in target.split("/"):
        out.append(invalid(path, target, "must not contain '..'"))


def validate_driver(driver: str, path: str, out: list[Violation]) -> None:
    """Validate the name of a CSI driver. An empty name is valid."""
    if len(driver) > MAX_DRIVER_NAME:
        out.append(invalid(path, driver, f"must be no more than {MAX_DRIVER_NAME} characters"))
    elif driver:
        out.extend(invalid(path, driver, problem) for problem in names.dns_subdomain(driver.lower()))


def _validate_source_fields(name: str, details: Any, path: str, out: list[Violation]) -> None:
    match name:
        case "hostPath":
            validate_no_parent_references(details.path, f"{path}.path", out)
            validate_no_null(details.path, f"{path}.path", out)
            if details.type not in _HOST_PATH_TYPES:
                out.append(unsupported(f"{path}.type", details.type, _HOST_PATH_TYPES))
        case "local":
            validate_no_parent_references(details.path, f"{path}.path", out)
            validate_no_null(details.path, f"{path}.path", out)
        case "configMap" if not details.localObjectReference.name:
            out.append(required(f"{path}.name"))
        case "nfs" if details.path and not details.path.startswith("/"):
            out.append(invalid(f"{path}.path", details.path, "must be an absolute path"))
        case "emptyDir" if details.HasField("sizeLimit"):
            validate_amount("memory", details.sizeLimit.string, f"{path}.sizeLimit", out)
        case "gcePersistentDisk" | "awsElasticBlockStore":
            _validate_byte(details.partition, f"{path}.partition", out)
        case "iscsi":
            if details.iqn and not _match_iqn(details.iqn):
                out.append(invalid(f"{path}.iqn", details.iqn, "must be valid format starting with iqn, eui, or naa"))
            _validate_byte(details.lun, f"{path}.lun", out)
        case "csi":
            validate_driver(details.driver, f"{path}.driver", out)
        case "ephemeral":
            _validate_ephemeral(details, path, out)


def _validate_byte(value: int, path: str, out: list[Violation]) -> None:
    if not 0 <= value <= 255:
        out.append(invalid(path, value, range_message(0, 255)))


def _validate_ephemeral(source: EphemeralVolumeSource, path: str, out: list[Violation]) -> None:
    if source.HasField("volumeClaimTemplate"):
        metadata = source.volumeClaimTemplate.metadata
        validate_labels(metadata.labels, f"{path}.volumeClaimTemplate.metadata.labels", out)
        validate_annotations(metadata.annotations, f"{path}.volumeClaimTemplate.metadata.annotations", out)
        validate_claim_spec(source.volumeClaimTemplate.spec, f"{path}.volumeClaimTemplate.spec", out)
    else:
        out.append(required(f"{path}.volumeClaimTemplate"))


def validate_files(kind: str, source: Any, path: str, out: list[Violation]) -> None:
    """Validate a secret, configMap, downwardAPI or projected source, after defaults."""
    _validate_mode(source.defaultMode, f"{path}.defaultMode", out)
    if kind == "projected":
        _validate_projected(source.sources, f"{path}.sources", out)
    else:
        _validate_items(source.items, f"{path}.items", out)


def _validate_projected(sources: Sequence[VolumeProjection], path: str, out: list[Violation]) -> None:
    """Validate the sources of a projected volume. No two may contain a file at the same path."""
    taken: set[str] = set()
    for index, projection in enumerate(sources):
        given = [field.name for field, _ in projection.ListFields()]
        detail = "may not specify more than 1 volume type per source"
        out.extend(forbidden(f"{path}[{index}].{kind}", detail) for kind in given[1:])
        for kind in given[:1]:
            where, source = f"{path}[{index}].{kind}", getattr(projection, kind)
            if kind == "serviceAccountToken":
                _validate_token(source, where, out)
                places = [source.path]
            else:
                if kind != "downwardAPI" and not source.localObjectReference.name:
                    out.append(required(f"{where}.name"))
                _validate_items(source.items, f"{where}.items", out)
                places = [item.path for item in source.items]
            _validate_unique_paths(places, taken, where, out)


def _validate_unique_paths(places: Iterable[str], taken: set[str], path: str, out: list[Violation]) -> None:
    for place in filter(None, places):
        if place in taken:
            out.append(invalid(path, place, "conflicting duplicate paths"))
        taken.add(place)


def _validate_token(token: ServiceAccountTokenProjection, path: str, out: list[Violation]) -> None:
    if not MIN_TOKEN_SECONDS <= token.expirationSeconds <= MAX_TOKEN_SECONDS:
        out.append(
            invalid(f"{path}.expirationSeconds", token.expirationSeconds, range_message(MIN_TOKEN_SECONDS, MAX_TOKEN_SECONDS))
        )
    _validate_volume_path(token.path, f"{path}.path", out)


def _validate_items(items: Iterable[KeyToPath | DownwardAPIVolumeFile], path: str, out: list[Violation]) -> None:
    for index, item in enumerate(items):
        where = f"{path}[{index}]"
        _validate_volume_path(item.path, f"{where}.path", out)
        if item.HasField("mode"):
            _validate_mode(item.mode, f"{where}.mode", out)
        if isinstance(item, DownwardAPIVolumeFile):
            _validate_pod_field(item, where, out)
        elif not item.key:
            out.append(required(f"{where}.key"))


def _validate_pod_field(item: DownwardAPIVolumeFile, path: str, out: list[Violation]) -> None:
    if item.HasField("fieldRef"):
        validate_field_selector(item.fieldRef, _DOWNWARD_API_FIELDS, f"{path}.fieldRef", out)
        if item.HasField("resourceFieldRef"):
            out.append(invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
    elif item.HasField("resourceFieldRef"):
        if not item.resourceFieldRef.containerName:
            out.append(required(f"{path}.resourceFieldRef.containerName"))
        validate_amount_selector(item.resourceFieldRef, f"{path}.resourceFieldRef", out)
    else:
        out.append(required(path, "one of fieldRef and resourceFieldRef is required"))


def _validate_mode(mode: int, path: str, out: list[Violation]) -> None:
    if not 0 <= mode <= MAX_FILE_MODE:
        out.append(invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive"))


def _validate_volume_path(place: str, path: str, out: list[Violation]) -> None:
    """Validate the path of a file, which is relative to the volume. Names that start with ".." are reserved for the kubelet."""
    if not place:
        out.append(required(path))
    elif place.startswith("/"):
        out.append(invalid(path, place, "must be a relative path"))
    elif ".." in place.split("/"):
        out.append(invalid(path, place, "must not contain '..'"))
    elif place.startswith(".."):
        out.append(invalid(path, place, "must not start with '..'"))


def validate_field_selector(selector: ObjectFieldSelector, fields: Iterable[str], path: str, out: list[Violation]) -> None:
    """Validate a reference to a field of the pod: one of `fields`, or an entry of its labels or annotations."""
    field, path = selector.fieldPath, f"{path}.fieldPath"
    if not field:
        out.append(required(path))
    elif selector.apiVersion not in ("", "v1"):
        detail = f"error converting fieldPath: unsupported pod version: {selector.apiVersion[:MAX_SHOWN]}"
        out.append(invalid(path, field, detail))
    elif field.startswith(_MAP_KEY_PREFIXES) and field.endswith("']"):
        key = field.partition("['")[2].removesuffix("']")
        lowered = key.lower() if field.startswith(_MAP_KEY_PREFIXES[0]) else key
        out.extend(invalid(path, key, problem) for problem in names.label_key(lowered))
    elif field not in fields:
        out.append(unsupported(path, field, fields))


def validate_amount_selector(selector: ResourceFieldSelector, path: str, out: list[Violation]) -> None:
    """Validate a reference to a container's request or limit, and its divisor."""
    resource = selector.resource
    if not resource:
        out.append(required(f"{path}.resource"))
    elif resource not in _DOWNWARD_API_RESOURCES and not resource.startswith(_HUGE_PAGES):
        out.append(unsupported(f"{path}.resource", resource, _DOWNWARD_API_RESOURCES))
    elif selector.divisor.string:
        units = _CPU_UNITS if resource.endswith(".cpu") else _BYTE_UNITS
        if not _is_one_of(selector.divisor.string, units):
            detail = f"only divisor's values {', '.join(units)} are supported with the {resource.partition('.')[2]} resource"
            out.append(invalid(f"{path}.divisor", selector.divisor.string, detail))


def _is_one_of(text: str, units: Iterable[str]) -> bool:
    """Return whether the quantity equals one of these units, or is 0, which means the default."""
    try:
        value = parse(text)
    except QuantityError:
        return False
    return not value or value in map(parse, units)


def validate_claim_spec(spec: PersistentVolumeClaimSpec, path: str, out: list[Violation]) -> None:
    if not spec.accessModes:
        out.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    if spec.HasField("selector"):
        validate_selector(spec.selector, f"{path}.selector", out)
    validate_access_modes(spec.accessModes, f"{path}.accessModes", out)
    requests = spec.resources.requests
    if STORAGE_RESOURCE in requests:
        validate_size(requests[STORAGE_RESOURCE].string, f"{path}.resources[{STORAGE_RESOURCE}]", out)
    else:
        out.append(required(f"{path}.resources[{STORAGE_RESOURCE}]"))
    for name in requests.keys() - {STORAGE_RESOURCE}:
        validate_amount(name, requests[name].string, f"{path}.resources.requests[{name[:MAX_KEY]}]", out)
    validate_class_name(spec.storageClassName, f"{path}.storageClassName", out)
    validate_volume_mode(spec.volumeMode, f"{path}.volumeMode", out)
    validate_class_name(spec.volumeAttributesClassName, f"{path}.volumeAttributesClassName", out)


def storage_size(amounts: Mapping[str, Quantity]) -> Decimal:
    """Return the amount of storage; 0 if it is absent or invalid."""
    with suppress(QuantityError):
        return parse(amounts[STORAGE_RESOURCE].string) if STORAGE_RESOURCE in amounts else Decimal(0)
    return Decimal(0)


def validate_access_modes(modes: Sequence[str], path: str, out: list[Violation]) -> None:
    out.extend(unsupported(path, mode, _ACCESS_MODES) for mode in modes if mode not in _ACCESS_MODES)
    if _SINGLE_POD_ACCESS_MODE in modes and any(mode != _SINGLE_POD_ACCESS_MODE for mode in modes):
        out.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))


def validate_volume_mode(mode: str, path: str, out: list[Violation]) -> None:
    if mode not in _VOLUME_MODES:
        out.append(unsupported(path, mode, _VOLUME_MODES))


def validate_class_name(name: str, path: str, out: list[Violation]) -> None:
    if name:
        out.extend(invalid(path, name, problem) for problem in names.dns_subdomain(name))


def validate_size(text: str, path: str, out: list[Violation]) -> None:
    """Check that an amount of storage is positive."""
    try:
        if quantity.parse(text) <= 0:
            out.append(invalid(path, text, NOT_POSITIVE))
    except quantity.QuantityError as error:
        out.append(invalid(path, text, str(error)))
