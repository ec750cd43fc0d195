"""A fleet may get the objects to which its own pods refer, one by one, and nothing else."""

from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import PersistentVolume, Pod
from tests.builders import make_pod
from tests.unit.auth.matrix import OTHER, OTHER_NODE, OWN, OWN_NODE, PEOPLE, may, serving
from tests.unit.registry.test_creating import asked, call

FLEET = PEOPLE["fleet"]


def referring(namespace: str, node: str) -> Pod:
    """A pod with the claim "data", and with the ConfigMap and the Secret "conf" in variables and files."""
    pod = make_pod("refers", namespace=namespace).req(cpu="1").node(node).new()
    key = pod.spec.containers[0].env.add(name="A").valueFrom.configMapKeyRef
    key.localObjectReference.name, key.key = "conf", "k"
    projected = pod.spec.volumes.add(name="p").volumeSource.projected
    projected.sources.add().secret.localObjectReference.name = "conf"
    pod.spec.volumes.add(name="d").volumeSource.persistentVolumeClaim.claimName = "data"
    return pod


@pytest.mark.parametrize(("namespace", "node", "allowed"), [(OWN, OWN_NODE, True), (OTHER, OTHER_NODE, False)])
async def test_fleet_gets_the_objects_of_its_pods_only(namespace: str, node: str, allowed: bool) -> None:
    async with serving() as assembly:

        async def gets(kind: str, name: str, space: str = namespace, verb: str = "Get") -> bool:
            method = assembly.methods[f"/pinnace.v1.{kind}/{verb}"]
            request: Any = method.parse(b"")
            request.namespace = space
            if verb == "Get":
                request.name = name
            else:
                request.options.fieldSelector = f"metadata.name={name}"
            return await may(method, FLEET, request)

        volume = PersistentVolume()
        volume.metadata.name = "disk"
        volume.spec.capacity["storage"].string, volume.spec.accessModes[:] = "1Gi", ["ReadWriteOnce"]
        volume.spec.persistentVolumeSource.hostPath.path = "/disk"
        volume.spec.claimRef.namespace, volume.spec.claimRef.name = namespace, "data"
        await call(assembly, "PersistentVolumes/Create", asked(assembly, "PersistentVolumes/Create", volume))
        assert not await gets("Secrets", "conf")
        await call(assembly, "Pods/Create", asked(assembly, "Pods/Create", referring(namespace, node)))
        for kind in ("ConfigMaps", "Secrets"):
            assert await gets(kind, "conf") is allowed, kind
            assert not await gets(kind, "con") and not await gets(kind, "data")
            assert not await gets(kind, "conf", OTHER if namespace == OWN else OWN)
            assert not await gets(kind, "conf", verb="List") and not await gets(kind, "conf", verb="Watch")
        assert await gets("PersistentVolumeClaims", "data") is allowed
        assert await gets("PersistentVolumes", "disk", "") is allowed
        assert not await gets("PersistentVolumes", "other", "")
