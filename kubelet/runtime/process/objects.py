"""What a pod gets from ConfigMaps, Secrets and tokens: variables and files; and the path of its claims.

    objects (read by pod_volumes) --> variables of a container    environment_from, object_value
                                  --> files of a volume           volume_files
                                  --> the path of a claim         claim_path

Messages are those of Kubernetes. As in Kubernetes 1.36, all keys of an `envFrom` become variables, whatever their form; earlier
versions skipped some of them and recorded the event InvalidEnvironmentVariableNames.

Source: pkg/kubelet/kubelet_pods.go, pkg/volume/{configmap,secret,projected,downwardapi} of Kubernetes 1.36
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from google.protobuf.message import Message

from pinnace.api.core_v1_pb2 import (
    ConfigMap,
    Container,
    DownwardAPIVolumeFile,
    EnvVarSource,
    HostPathVolumeSource,
    KeyToPath,
    PersistentVolume,
    Pod,
    Secret,
    Volume,
    VolumeProjection,
)
from pinnace.api.references import CLAIM, CONFIG_MAP, SECRET, Reference
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.runtime.downward import field_value, resource_value
from pinnace.kubelet.runtime.interface import UnsupportedPod
from pinnace.kubelet.runtime.process.atomic_writer import ProjectedFile
from pinnace.kubelet.runtime.process.tokens import IssuedToken, TokenKey, Tokens

Objects = Mapping[Reference, Message | None]
"""The objects of a pod. None: the object does not exist. A missing entry has not been read yet."""
NO_OBJECTS: Objects = MappingProxyType({})
NO_TOKENS: Tokens = MappingProxyType({})
FILE_MODE = 0o644
NO_ADDRESSES = PodAddresses("", "")
"""Files cannot have the addresses of the pod: the API rejects their fields."""
MAX_VOLUME = 64 << 20
"""Maximum bytes of the files of one volume. One ConfigMap or Secret has at most 1 MiB."""


class MissingObject(Exception):
    """A container or a volume waits for an object, or for a key of it. The message is Kubernetes'."""


def _find_object(objects: Objects, reference: Reference, *, optional: bool) -> Message | None:
    """None: an optional object that does not exist. Raises MissingObject."""
    obj = objects.get(reference)
    if obj is None and not optional:
        raise MissingObject(f'{reference.kind} "{reference.name}" not found')
    return obj


def _text_values(found: Message | None) -> dict[str, str]:
    """The values of a ConfigMap or Secret that can be variables."""
    if isinstance(found, ConfigMap):
        return dict(found.data)
    if isinstance(found, Secret):
        return {key: value.decode(errors="surrogateescape") for key, value in found.data.items()}
    return {}


def variables_of_env_from(container: Container, objects: Objects) -> dict[str, str]:
    """The variables of `envFrom`. Later sources replace earlier ones. Raises MissingObject."""
    variables: dict[str, str] = {}
    for source in container.envFrom:
        is_map = source.HasField("configMapRef")
        wanted = source.configMapRef if is_map else source.secretRef
        reference = Reference(CONFIG_MAP if is_map else SECRET, wanted.localObjectReference.name)
        message = _find_object(objects, reference, optional=wanted.optional)
        variables.update((f"{source.prefix}{key}", text) for key, text in sorted(_text_values(message).items()))
    return variables


def object_value(source: EnvVarSource, objects: Objects, namespace: str) -> str | None:
    """The value of a configMapKeyRef or secretKeyRef. None: it is optional and does not exist. Raises MissingObject."""
    is_map = source.HasField("configMapKeyRef")
    selector = source.configMapKeyRef if is_map else source.secretKeyRef
    name = selector.localObjectReference.name
    message = _find_object(objects, Reference(CONFIG_MAP if is_map else SECRET, name), optional=selector.optional)
    texts = _text_values(message)
    if selector.key not in texts:
        if selector.optional:
            return None
        kind = "ConfigMap" if is_map else "Secret"
        raise MissingObject(f"couldn't find key {selector.key} in {kind} {namespace}/{name}")
    return texts[selector.key]


def config_error(pod: Pod, container: Container, objects: Objects) -> str:
    """Why the container cannot be created: an object or a key of its variables is missing. Empty: nothing is."""
    try:
        variables_of_env_from(container, objects)
        for variable in container.env:
            if variable.HasField("valueFrom") and any(
                variable.valueFrom.HasField(field) for field in ("configMapKeyRef", "secretKeyRef")
            ):
                object_value(variable.valueFrom, objects, pod.metadata.namespace)
    except MissingObject as error:
        return str(error)
    return ""


def is_written_by_volume_files(volume: Volume) -> bool:
    """Whether `volume_files` makes the files of the volume."""
    source = volume.volumeSource
    return any(source.HasField(kind) for kind in ("configMap", "secret", "projected", "downwardAPI"))


def volume_files(pod: Pod, volume: Volume, objects: Objects, tokens: Tokens = NO_TOKENS) -> dict[str, ProjectedFile]:
    """The files of a volume by relative path. `tokens`: of the pod. Raises MissingObject."""
    source = volume.volumeSource
    files: dict[str, ProjectedFile] = {}
    if source.HasField("configMap"):
        mode = source.configMap.defaultMode if source.configMap.HasField("defaultMode") else FILE_MODE
        reference = Reference(CONFIG_MAP, source.configMap.localObjectReference.name)
        message = _find_object(objects, reference, optional=source.configMap.optional)
        files.update(_key_files(message, source.configMap.items, mode, optional=source.configMap.optional))
    elif source.HasField("secret"):
        mode = source.secret.defaultMode if source.secret.HasField("defaultMode") else FILE_MODE
        message = _find_object(objects, Reference(SECRET, source.secret.secretName), optional=source.secret.optional)
        files.update(_key_files(message, source.secret.items, mode, optional=source.secret.optional))
    elif source.HasField("downwardAPI"):
        mode = source.downwardAPI.defaultMode if source.downwardAPI.HasField("defaultMode") else FILE_MODE
        files.update(_downward_files(pod, source.downwardAPI.items, mode))
    elif source.HasField("projected"):
        mode = source.projected.defaultMode if source.projected.HasField("defaultMode") else FILE_MODE
        for part in source.projected.sources:
            files.update(_projected_files(pod, part, objects, tokens, mode))
    if sum(len(file.content) for file in files.values()) > MAX_VOLUME:
        raise MissingObject(f"the files of the volume exceed {MAX_VOLUME >> 20} MiB")
    return files


def _projected_files(
    pod: Pod, part: VolumeProjection, objects: Objects, tokens: Tokens, mode: int
) -> Iterator[tuple[str, ProjectedFile]]:
    if part.HasField("downwardAPI"):
        yield from _downward_files(pod, part.downwardAPI.items, mode)
    elif part.HasField("configMap") or part.HasField("secret"):
        is_map = part.HasField("configMap")
        wanted = part.configMap if is_map else part.secret
        reference = Reference(CONFIG_MAP if is_map else SECRET, wanted.localObjectReference.name)
        message = _find_object(objects, reference, optional=wanted.optional)
        yield from _key_files(message, wanted.items, mode, optional=wanted.optional)
    else:
        token = tokens.get(TokenKey.of(part.serviceAccountToken))
        if not isinstance(token, IssuedToken):
            raise MissingObject(f"failed to fetch token: {token.message if token is not None else 'not requested yet'}")
        yield part.serviceAccountToken.path, ProjectedFile(token.text.encode(), mode)


def _key_files(
    found: Message | None, items: Sequence[KeyToPath], mode: int, *, optional: bool
) -> Iterator[tuple[str, ProjectedFile]]:
    data: dict[str, bytes] = {}
    if isinstance(found, ConfigMap):
        data = {key: text.encode() for key, text in found.data.items()} | dict(found.binaryData)
    elif isinstance(found, Secret):
        data = dict(found.data)
    if not items:
        yield from ((key, ProjectedFile(content, mode)) for key, content in data.items())
        return
    for item in items:
        if item.key in data:
            yield item.path, ProjectedFile(data[item.key], item.mode if item.HasField("mode") else mode)
        elif not optional:
            kind = "secret" if isinstance(found, Secret) else "config"
            object_kind = "references" if kind == "secret" else "configmap references"
            raise MissingObject(f"{object_kind} non-existent {kind} key: {item.key}")


def _downward_files(pod: Pod, items: Sequence[DownwardAPIVolumeFile], mode: int) -> Iterator[tuple[str, ProjectedFile]]:
    for item in items:
        where = f'file "{item.path}"'
        try:
            if item.HasField("fieldRef"):
                path = item.fieldRef.fieldPath
                if path in ("metadata.labels", "metadata.annotations"):
                    text = _format_pairs(getattr(pod.metadata, path.removeprefix("metadata.")))
                else:
                    text = field_value(pod, item.fieldRef, NO_ADDRESSES, where)
            else:
                text = resource_value(pod, item.resourceFieldRef.containerName, item.resourceFieldRef, where)
        except UnsupportedPod as error:
            raise MissingObject(str(error)) from None
        yield item.path, ProjectedFile(text.encode(), item.mode if item.HasField("mode") else mode)


def _format_pairs(pairs: Mapping[str, str]) -> str:
    """Kubernetes' format of labels and annotations."""
    return "\n".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(pairs.items()))


def claim_path(objects: Objects, claim: str) -> HostPathVolumeSource:
    """The path of the volume that is bound to a claim. Raises MissingObject. `objects` has the volume of a bound claim, and
    otherwise the claim.
    """
    obj = objects.get(Reference(CLAIM, claim))
    if obj is None:
        raise MissingObject(f'persistentvolumeclaim "{claim}" not found')
    if not isinstance(obj, PersistentVolume):
        raise MissingObject(f'persistentvolumeclaim "{claim}" is not bound to a volume')
    source = obj.spec.persistentVolumeSource
    if source.HasField("hostPath"):
        return source.hostPath
    if source.HasField("local"):
        return HostPathVolumeSource(path=source.local.path)
    kind = next((field.name for field, _ in source.ListFields()), "nothing")
    raise MissingObject(f'the process runtime cannot mount volume "{obj.metadata.name}": {kind} is not supported, but hostPath')
