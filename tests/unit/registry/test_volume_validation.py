"""Volumes, and the mounts that refer to them."""

import pytest

from pinnace.api.resources import PODS
from tests.unit.registry.objects import Data, created, pod

C = "spec.containers[0]"
NO_NULL = "must not contain null characters"
V: Data = {"name": "v", "emptyDir": {}}


@pytest.mark.parametrize(
    ("volumes", "expected"),
    [
        ([V, {"name": "w", "configMap": {"name": "c"}}], []),
        ([{"emptyDir": {}}], ["spec.volumes[0].name: Required value"]),
        ([{"name": "a.b"}], ['spec.volumes[0].name: Invalid value: "a.b": must not contain dots']),
        ([V, V], ['spec.volumes[1].name: Duplicate value: "v"']),
        ([V | {"hostPath": {"path": "/"}}], ["spec.volumes[0].emptyDir: Forbidden: may not specify more than 1 volume type"]),
        ([{"name": "v", "hostPath": {}}], ["spec.volumes[0].hostPath.path: Required value"]),
        (
            [{"name": "v", "hostPath": {"path": "/a/../b", "type": "x"}}],
            [
                "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
                'spec.volumes[0].hostPath.type: Unsupported value: "x": supported values: "", "BlockDevice", "CharDevice", '
                '"Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"',
            ],
        ),
        (
            [{"name": "v", "hostPath": {"path": "/a\0b"}}],
            [f'spec.volumes[0].hostPath.path: Invalid value: "/a\\u0000b": {NO_NULL}'],
        ),
        ([{"name": "v", "secret": {}}], ["spec.volumes[0].secret.secretName: Required value"]),
        ([{"name": "v", "configMap": {}}], ["spec.volumes[0].configMap.name: Required value"]),
        ([{"name": "v", "nfs": {"server": "s"}}], ["spec.volumes[0].nfs.path: Required value"]),
        ([{"name": "v", "persistentVolumeClaim": {}}], ["spec.volumes[0].persistentVolumeClaim.claimName: Required value"]),
        ([{"name": "v", "csi": {}}], ["spec.volumes[0].csi.driver: Required value"]),
        ([{"name": "v", "gcePersistentDisk": {}}], ["spec.volumes[0].gcePersistentDisk.pdName: Required value"]),
        (
            [{"name": "v", "awsElasticBlockStore": {"volumeID": "a", "partition": -1}}],
            ["spec.volumes[0].awsElasticBlockStore.partition: Invalid value: -1: must be between 0 and 255, inclusive"],
        ),
        (
            [{"name": "v", "iscsi": {"iqn": "x", "lun": 256}}],
            [
                "spec.volumes[0].iscsi.targetPortal: Required value",
                'spec.volumes[0].iscsi.iqn: Invalid value: "x": must be valid format starting with iqn, eui, or naa',
                "spec.volumes[0].iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
            ],
        ),
        ([{"name": "v", "iscsi": {"targetPortal": "p", "iqn": "iqn.2026-11.com.example:a", "lun": 0}}], []),
        (
            [{"name": "v", "rbd": {}}],
            ["spec.volumes[0].rbd.monitors: Required value", "spec.volumes[0].rbd.image: Required value"],
        ),
        ([{"name": "v", "ephemeral": {}}], ["spec.volumes[0].ephemeral.volumeClaimTemplate: Required value"]),
        (
            [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}],
            [
                "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes: Required value: at least 1 access mode is "
                "required",
                "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value",
            ],
        ),
        (
            [{"name": "v", "emptyDir": {"sizeLimit": "-1"}}],
            ['spec.volumes[0].emptyDir.sizeLimit: Invalid value: "-1": must be greater than or equal to 0'],
        ),
    ],
)
def test_volumes(volumes: list[Data], expected: list[str]) -> None:
    assert created(PODS, pod(volumes=volumes)) == expected


def ephemeral(name: str, metadata: Data | None = None) -> Data:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"name": name, "ephemeral": {"volumeClaimTemplate": {"metadata": metadata or {}, "spec": spec}}}


def test_claim_of_an_ephemeral_volume_can_be_made() -> None:
    """Of its name, which the pod and the volume give it, and of its template's labels."""
    name, volume = "p" * 200, "v" * 60
    assert created(PODS, pod(metadata={"name": name}, volumes=[ephemeral("v" * 52, {"labels": {"a": "b"}})])) == []
    assert created(PODS, pod(metadata={"name": name}, volumes=[ephemeral(volume)])) == [
        f'spec.volumes[0].name: Invalid value: "{volume}": PVC name "{name}-{volume}": must be no more than 253 characters'
    ]
    (violation,) = created(PODS, pod(volumes=[ephemeral("v", {"labels": {"a": "-"}})]))
    assert violation.startswith('spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.labels: Invalid value: "-"')


def test_claim_that_is_made_for_a_volume_is_no_other_volume() -> None:
    volumes = [{"name": "w", "persistentVolumeClaim": {"claimName": "a-v"}}, ephemeral("v")]
    assert created(PODS, pod(volumes=volumes)) == [
        'spec.volumes[0].persistentVolumeClaim.claimName: Invalid value: "a-v": must not reference a PVC that gets created for '
        "an ephemeral volume"
    ]


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b", "subPath": "c/d"}]}, []),
        (
            {"volumeMounts": [{}]},
            [f"{C}.volumeMounts[0].name: Required value", f"{C}.volumeMounts[0].mountPath: Required value"],
        ),
        ({"volumeMounts": [{"name": "x", "mountPath": "/a"}]}, [f'{C}.volumeMounts[0].name: Not found: "x"']),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]},
            [f'{C}.volumeMounts[1].mountPath: Invalid value: "/a": must be unique'],
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "/b", "subPathExpr": "../c"}]},
            [
                f'{C}.volumeMounts[0].subPath: Invalid value: "/b": must be a relative path',
                f"{C}.volumeMounts[0].subPathExpr: Invalid value: \"../c\": must not contain '..'",
                f'{C}.volumeMounts[0].subPathExpr: Invalid value: "../c": subPathExpr and subPath are mutually exclusive',
            ],
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/a\0b", "subPath": "c\0"}]},
            [
                f'{C}.volumeMounts[0].mountPath: Invalid value: "/a\\u0000b": {NO_NULL}',
                f'{C}.volumeMounts[0].subPath: Invalid value: "c\\u0000": {NO_NULL}',
            ],
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/a", "mountPropagation": "x"}]},
            [
                f'{C}.volumeMounts[0].mountPropagation: Unsupported value: "x": supported values: "Bidirectional", '
                '"HostToContainer", "None"'
            ],
        ),
        (
            {
                "volumeMounts": [
                    {"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional", "recursiveReadOnly": "Enabled"},
                    {"name": "v", "mountPath": "/b", "readOnly": True, "recursiveReadOnly": "IfPossible"},
                    {"name": "v", "mountPath": "/c", "recursiveReadOnly": "x"},
                ]
            },
            [
                f"{C}.volumeMounts[0].mountPropagation: Forbidden: Bidirectional mount propagation is available only to "
                "privileged containers",
                f"{C}.volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
                f"{C}.volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not "
                "specified",
                f'{C}.volumeMounts[2].recursiveReadOnly: Unsupported value: "x": supported values: "Disabled", "Enabled", '
                '"IfPossible"',
            ],
        ),
        (
            {
                "securityContext": {"privileged": True},
                "volumeMounts": [{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}],
            },
            [],
        ),
        (
            {
                "volumeMounts": [{"name": "v", "mountPath": "/a"}],
                "volumeDevices": [{"name": "v", "devicePath": "/a"}, {"devicePath": "/b"}],
            },
            [
                f'{C}.volumeDevices[0].devicePath: Invalid value: "/a": must be unique',
                f'{C}.volumeDevices[0].name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or '
                "Ephemeral for block mode",
                f'{C}.volumeDevices[0].name: Invalid value: "v": must not already exist in volumeMounts',
                f"{C}.volumeDevices[1].name: Required value",
            ],
        ),
    ],
)
def test_mounts(container: Data, expected: list[str]) -> None:
    assert created(PODS, pod(container, volumes=[V])) == expected
