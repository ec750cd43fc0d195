"""The admission plugin ServiceAccount: the account of a pod, and its credentials.

    serviceAccountName: ""  --> default --unknown--> 403
    automountServiceAccountToken of the pod, else of the account: true, or not set
        --> a volume kube-api-access-* with token, CA and namespace, mounted in each container at MOUNT_PATH
    imagePullSecrets: [] --> those of the account

The random part of the volume's name is that of the account, and not of the pod as in Kubernetes. So all pods of a template have
equal specs, and what the plugin adds is cached, as are defaults and validation (PodStrategy).

Source: plugin/pkg/admission/serviceaccount of Kubernetes 1.36.
"""

import random

from pinnace.api.core_v1_pb2 import Container, Pod, PodSpec, ServiceAccount, Volume
from pinnace.api.names import NAME_ALPHABET
from pinnace.api.resources import PODS, SERVICE_ACCOUNTS
from pinnace.api.wellknown import DEFAULT_ACCOUNT, ROOT_CA_CONFIG_MAP
from pinnace.apiserver import errors
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import WriteRequest
from pinnace.apiserver.registry.strategies.pods import MAX_CACHED_SPEC_SIZE, MAX_CACHED_SPECS

MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3607
"""The lifetime of the token in seconds. Only tokens with this lifetime are extended (apiserver.services.tokens)."""
FILE_MODE = 0o644
TOKEN_VOLUME_PREFIX = "kube-api-access-"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""On a pod that a kubelet runs from a file."""


class ServiceAccountAdmission:
    resources = (PODS,)

    def __init__(self, accounts: ResourceCache[ServiceAccount]) -> None:
        self._accounts = accounts
        self._completed: dict[tuple[str, int, bytes], bytes] = {}
        """Encoded specs with their credentials, by the key and revision of the account and the encoded spec before. Most new
        pods have the spec of another pod."""

    def admit(self, request: WriteRequest, obj: Pod) -> None:
        spec = obj.spec
        if MIRROR_ANNOTATION in obj.metadata.annotations:
            if spec.serviceAccountName:
                raise _pod_forbidden(obj, "a mirror pod may not reference service accounts")
            return
        name = spec.serviceAccountName or spec.serviceAccount or DEFAULT_ACCOUNT
        entry = self._accounts.get(SERVICE_ACCOUNTS.key(obj.metadata.namespace, name))
        if entry is None:
            where = f"{obj.metadata.namespace}/{name}"
            raise _pod_forbidden(obj, f'error looking up service account {where}: serviceaccount "{name}" not found')
        encoded = spec.SerializeToString()
        key = entry.key, entry.mod_revision, encoded
        completed = self._completed.get(key)
        if completed is not None:
            spec.ParseFromString(completed)
            return
        complete_spec(spec, name, entry.obj)
        if len(encoded) <= MAX_CACHED_SPEC_SIZE:
            if len(self._completed) >= MAX_CACHED_SPECS:
                del self._completed[next(iter(self._completed))]
            self._completed[key] = spec.SerializeToString()


def complete_spec(spec: PodSpec, name: str, account: ServiceAccount) -> None:
    """Set the account with this name in the spec of a pod, and add its credentials."""
    spec.serviceAccountName = spec.serviceAccount = name
    if mounts_token(spec, account):
        _mount_token(spec, account.metadata.uid)
    if account.imagePullSecrets and not spec.imagePullSecrets:
        spec.imagePullSecrets.extend(account.imagePullSecrets)


def mounts_token(spec: PodSpec, account: ServiceAccount) -> bool:
    """Report whether the pod gets the credentials of its account."""
    if spec.HasField("automountServiceAccountToken"):
        return spec.automountServiceAccountToken
    return not account.HasField("automountServiceAccountToken") or account.automountServiceAccountToken


def _mount_token(spec: PodSpec, uid: str) -> None:
    """Add the volume, and mount it in the containers that have nothing at MOUNT_PATH. A volume with the prefix that the pod
    has already is mounted instead. `uid`: of the account."""
    lacking = [container for container in (*spec.initContainers, *spec.containers) if not _has_mount(container)]
    if not lacking:
        return
    name = next((volume.name for volume in spec.volumes if volume.name.startswith(TOKEN_VOLUME_PREFIX)), "")
    if not name:
        name = TOKEN_VOLUME_PREFIX + "".join(random.Random(uid).choices(NAME_ALPHABET, k=5))
        spec.volumes.append(token_volume(name))
    for container in lacking:
        container.volumeMounts.add(name=name, readOnly=True, mountPath=MOUNT_PATH)


def token_volume(name: str) -> Volume:
    """Return the volume with the credentials of a pod."""
    volume = Volume(name=name)
    projected = volume.volumeSource.projected
    projected.defaultMode = FILE_MODE
    token = projected.sources.add().serviceAccountToken
    token.path, token.expirationSeconds = "token", TOKEN_SECONDS
    authority = projected.sources.add().configMap
    authority.localObjectReference.name = ROOT_CA_CONFIG_MAP
    authority.items.add(key="ca.crt", path="ca.crt")
    namespace = projected.sources.add().downwardAPI.items.add(path="namespace")
    namespace.fieldRef.apiVersion, namespace.fieldRef.fieldPath = "v1", "metadata.namespace"
    return volume


def _has_mount(container: Container) -> bool:
    mounts = container.volumeMounts
    return bool(mounts) and any(mount.mountPath == MOUNT_PATH for mount in mounts)


def _pod_forbidden(pod: Pod, why: str) -> Rejected:
    return Rejected(errors.forbidden(f'{PODS.plural} "{pod.metadata.name}" is forbidden: {why}'))
