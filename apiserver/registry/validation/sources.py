"""Where the data of a volume is: the source of a pod's volume, or of a persistent volume."""

import re
from collections.abc import Mapping
from typing import Any

from apiserver.registry.validation.files import validate_files
from apiserver.registry.validation.labels import validate_annotations, validate_labels
from apiserver.registry.validation.persistentvolumeclaims import validate_claim_spec
from apiserver.registry.validation.resources import validate_amount
from apiserver.registry.validation.text import validate_no_null
from apiserver.registry.validation.violations import between, forbidden, invalid, required, unsupported
from pinnace.api import names
from pinnace.api.core_v1_pb2 import EphemeralVolumeSource, PersistentVolumeSource, VolumeSource
from pinnace.api.status import Violation

MAX_DRIVER = 63
_REQUIRED: Mapping[str, tuple[str, ...]] = {
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
"""By message: the fields without which a source means nothing."""
_OF_FILES = ("secret", "configMap", "downwardAPI", "projected")
_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_match_iqn = re.compile(
    r"iqn\.\d{4}-\d{2}\.([a-zA-Z0-9.-]+)(:[^,;*&$|\s]+)?|eui\.[a-zA-Z0-9]{16}|naa\.[a-zA-Z0-9]{32}"
).fullmatch


def validate_source(source: VolumeSource | PersistentVolumeSource, path: str, out: list[Violation]) -> None:
    """Of the sources that are given the first is looked at. None: a kind that is not modelled; defaults have seen to the
    rest."""
    given = [field.name for field, _ in source.ListFields()]
    if not given:
        return
    first, *more = given
    out.extend(forbidden(f"{path}.{name}", "may not specify more than 1 volume type") for name in more)
    details = getattr(source, first)
    missing = [field for field in _REQUIRED.get(details.DESCRIPTOR.name, ()) if not getattr(details, field)]
    out.extend(required(f"{path}.{first}.{field}") for field in missing)
    if first in _OF_FILES:
        validate_files(first, details, f"{path}.{first}", out)
    _validate_details(first, details, f"{path}.{first}", out)


def validate_no_backsteps(target: str, path: str, out: list[Violation]) -> None:
    if ".." in target.split("/"):
        out.append(invalid(path, target, "must not contain '..'"))


def validate_driver(driver: str, path: str, out: list[Violation]) -> None:
    """The name of a CSI driver, if there is one."""
    if len(driver) > MAX_DRIVER:
        out.append(invalid(path, driver, f"must be no more than {MAX_DRIVER} characters"))
    elif driver:
        out.extend(invalid(path, driver, problem) for problem in names.dns_subdomain(driver.lower()))


def _validate_details(name: str, details: Any, path: str, out: list[Violation]) -> None:
    match name:
        case "hostPath":
            validate_no_backsteps(details.path, f"{path}.path", out)
            validate_no_null(details.path, f"{path}.path", out)
            if details.type not in _HOST_PATH_TYPES:
                out.append(unsupported(f"{path}.type", details.type, _HOST_PATH_TYPES))
        case "local":
            validate_no_backsteps(details.path, f"{path}.path", out)
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
        out.append(invalid(path, value, between(0, 255)))


def _validate_ephemeral(source: EphemeralVolumeSource, path: str, out: list[Violation]) -> None:
    if source.HasField("volumeClaimTemplate"):
        metadata = source.volumeClaimTemplate.metadata
        validate_labels(metadata.labels, f"{path}.volumeClaimTemplate.metadata.labels", out)
        validate_annotations(metadata.annotations, f"{path}.volumeClaimTemplate.metadata.annotations", out)
        validate_claim_spec(source.volumeClaimTemplate.spec, f"{path}.volumeClaimTemplate.spec", out)
    else:
        out.append(required(f"{path}.volumeClaimTemplate"))
