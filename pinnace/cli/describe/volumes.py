"""All about volumes, of a pod, of a template of pods, or persistent: what kind each is, and where it comes from.

Source: kubectl, pkg/describe, describeVolumes. Kinds without a form of their own here show their fields as they are.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from google.protobuf.message import Message

from pinnace.api.core_v1_pb2 import (
    ConfigMapVolumeSource,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    EphemeralVolumeSource,
    HostPathVolumeSource,
    PersistentVolumeClaimVolumeSource,
    ProjectedVolumeSource,
    SecretVolumeSource,
    Volume,
)
from pinnace.cli.describe import generic
from pinnace.cli.describe.text import Fields
from pinnace.printers.storage import UNSET_FIELD, access_modes, size

KINDS = {
    "hostPath": "HostPath (bare host directory volume)",
    "emptyDir": "EmptyDir (a temporary directory that shares a pod's lifetime)",
    "gcePersistentDisk": "GCEPersistentDisk (a Persistent Disk resource in Google Compute Engine)",
    "awsElasticBlockStore": "AWSElasticBlockStore (a Persistent Disk resource in AWS)",
    "secret": "Secret (a volume populated by a Secret)",
    "local": "LocalVolume (a persistent volume backed by local storage on a node)",
    "nfs": "NFS (an NFS mount that lasts the lifetime of a pod)",
    "iscsi": "ISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod)",
    "persistentVolumeClaim": "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
    "rbd": "RBD (a Rados Block Device mount on the host that shares a pod's lifetime)",
    "downwardAPI": "DownwardAPI (a volume populated by information about the pod)",
    "configMap": "ConfigMap (a volume populated by a ConfigMap)",
    "projected": "Projected (a volume that contains injected data from multiple sources)",
    "csi": "CSI (a Container Storage Interface (CSI) volume source)",
    "ephemeral": "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)",
}


def volumes(described: Iterable[Volume]) -> Fields:
    return {volume.name: source(volume.volumeSource, FORMS, otherwise="emptyDir") for volume in described}


def source(described: Message, forms: Mapping[str, Callable[[Any], Fields]], otherwise: str = "") -> Fields:
    """`forms`: of some kinds, by the field that holds it. `otherwise`: the kind of a source that says none. Of a source that is
    not modelled only that it is there is known."""
    kind = next((field.name for field, _ in described.ListFields()), "" if described.ByteSize() else otherwise)
    return {"Type": KINDS[kind], **forms.get(kind, generic.fields)(getattr(described, kind))} if kind else {"Type": "<unknown>"}


def _host_path(source: HostPathVolumeSource) -> Fields:
    return {"Path": source.path, "HostPathType": source.type}


def _empty_dir(source: EmptyDirVolumeSource) -> Fields:
    return {"Medium": source.medium, "SizeLimit": source.sizeLimit.string or UNSET_FIELD}


def _secret(source: SecretVolumeSource) -> Fields:
    return {"SecretName": source.secretName, "Optional": _boolean(source.optional)}


def _config_map(source: ConfigMapVolumeSource) -> Fields:
    return {"Name": source.localObjectReference.name, "Optional": _boolean(source.optional)}


def _claim(source: PersistentVolumeClaimVolumeSource) -> Fields:
    return {"ClaimName": source.claimName, "ReadOnly": _boolean(source.readOnly)}


def _ephemeral(source: EphemeralVolumeSource) -> Fields:
    """What the claim is to be."""
    spec = source.volumeClaimTemplate.spec
    return {
        "StorageClass": spec.storageClassName,
        "Capacity": size(spec.resources.requests),
        "Access Modes": access_modes(spec.accessModes),
        "VolumeMode": spec.volumeMode or "Filesystem",
    }


def _downward(source: DownwardAPIVolumeSource) -> Fields:
    items = [f"{item.fieldRef.fieldPath or item.resourceFieldRef.resource} -> {item.path}" for item in source.items]
    return {"Items": items}


def _projected(source: ProjectedVolumeSource) -> Fields:
    return {"Sources": {str(index): generic.fields(each) for index, each in enumerate(source.sources)}}


def _boolean(value: bool) -> str:
    return str(value).lower()


FORMS: Mapping[str, Callable[[Any], Fields]] = {
    "hostPath": _host_path,
    "emptyDir": _empty_dir,
    "secret": _secret,
    "configMap": _config_map,
    "persistentVolumeClaim": _claim,
    "ephemeral": _ephemeral,
    "downwardAPI": _downward,
    "projected": _projected,
}
"""Of the sources that a pod may have, by their fields; others show their own fields as they are."""
