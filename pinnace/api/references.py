"""The objects that a pod refers to: what a kubelet reads for it, and may therefore read.

Source: pkg/api/v1/pod/util.go and plugin/pkg/auth/authorizer/node of Kubernetes
"""

from collections.abc import Iterator
from typing import NamedTuple

from pinnace.api.core_v1_pb2 import Container, Pod
from pinnace.api.pods import all_containers

CONFIG_MAP, SECRET, CLAIM = "configmap", "secret", "persistentvolumeclaim"
"""The kinds of references. They are the words of Kubernetes' messages."""


class Reference(NamedTuple):
    """An object in the namespace of the pod."""

    kind: str
    name: str


def pod_references(pod: Pod) -> Iterator[Reference]:
    """Yield the references of volumes and of variables. An object may appear several times."""
    for volume in pod.spec.volumes:
        source = volume.volumeSource
        if source.HasField("configMap"):
            yield Reference(CONFIG_MAP, source.configMap.localObjectReference.name)
        elif source.HasField("secret"):
            yield Reference(SECRET, source.secret.secretName)
        elif source.HasField("persistentVolumeClaim"):
            yield Reference(CLAIM, source.persistentVolumeClaim.claimName)
        elif source.HasField("projected"):
            for part in source.projected.sources:
                if part.HasField("configMap"):
                    yield Reference(CONFIG_MAP, part.configMap.localObjectReference.name)
                elif part.HasField("secret"):
                    yield Reference(SECRET, part.secret.localObjectReference.name)
    for container in all_containers(pod.spec):
        yield from container_references(container)


def container_references(container: Container) -> Iterator[Reference]:
    """Yield the references of the variables of a container."""
    for source in container.envFrom:
        if source.HasField("configMapRef"):
            yield Reference(CONFIG_MAP, source.configMapRef.localObjectReference.name)
        elif source.HasField("secretRef"):
            yield Reference(SECRET, source.secretRef.localObjectReference.name)
    for variable in container.env:
        if variable.HasField("valueFrom"):
            if variable.valueFrom.HasField("configMapKeyRef"):
                yield Reference(CONFIG_MAP, variable.valueFrom.configMapKeyRef.localObjectReference.name)
            elif variable.valueFrom.HasField("secretKeyRef"):
                yield Reference(SECRET, variable.valueFrom.secretKeyRef.localObjectReference.name)
