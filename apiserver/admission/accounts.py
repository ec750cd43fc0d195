"""The admission plugin ServiceAccount: the account of a pod, and its credentials.

    serviceAccountName: ""  --> default --unknown--> 403
    automountServiceAccountToken of the pod, else of the account: true, or not set
        --> a volume kube-api-access-* with token, CA and namespace, mounted in each container at MOUNT_PATH
    imagePullSecrets: [] --> those of the account

The volume is the same for all pods except for its name, so it is copied.

Source: plugin/pkg/admission/serviceaccount of Kubernetes 1.36.
"""

import random

from pinnace.api.core_v1_pb2 import Container, Pod, ServiceAccount, Volume, VolumeMount
from pinnace.api.resources import PODS, SERVICE_ACCOUNTS
from pinnace.api.wellknown import DEFAULT_ACCOUNT, ROOT_CA_CONFIG_MAP
from pinnace.apiserver import errors
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import WriteRequest

MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME_PREFIX = "kube-api-access-"
TOKEN_SECONDS = 3607
"""The lifetime of the token in seconds. Only tokens with this lifetime are extended (apiserver.services.tokens)."""
FILE_MODE = 0o644
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""On a pod that a kubelet runs from a file."""
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def _token_volume() -> Volume:
    volume = Volume()
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


_TOKEN_VOLUME = _token_volume()


class ServiceAccountAdmission:
    resources = (PODS,)

    def __init__(self, accounts: ResourceCache[ServiceAccount], rng: random.Random) -> None:
        self._accounts = accounts
        self._rng = rng

    def admit(self, request: WriteRequest, obj: Pod) -> None:
        spec = obj.spec
        if MIRROR_ANNOTATION in obj.metadata.annotations:
            if spec.serviceAccountName:
                raise _forbidden(obj, "a mirror pod may not reference service accounts")
            return
        if not spec.serviceAccountName:
            spec.serviceAccountName = spec.serviceAccount or DEFAULT_ACCOUNT
        spec.serviceAccount = spec.serviceAccountName
        account = self._account_of(obj)
        if mounts_token(obj, account):
            self._mount_token(obj)
        if account.imagePullSecrets and not spec.imagePullSecrets:
            spec.imagePullSecrets.extend(account.imagePullSecrets)

    def _account_of(self, pod: Pod) -> ServiceAccount:
        """Return the service account of a pod. Raises Rejected."""
        namespace, name = pod.metadata.namespace, pod.spec.serviceAccountName
        entry = self._accounts.get(SERVICE_ACCOUNTS.key(namespace, name))
        if entry is None:
            why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
            raise _forbidden(pod, why)
        return entry.obj

    def _mount_token(self, pod: Pod) -> None:
        """Add the volume, and mount it in the containers that have nothing at MOUNT_PATH."""
        spec = pod.spec
        name = next((volume.name for volume in spec.volumes if volume.name.startswith(VOLUME_PREFIX)), "")
        present = bool(name)
        name = name or VOLUME_PREFIX + "".join(self._rng.choices(_NAME_ALPHABET, k=5))
        lacking = [container for container in (*spec.initContainers, *spec.containers) if not _has_mount(container)]
        if not lacking:
            return
        mount = VolumeMount(name=name, readOnly=True, mountPath=MOUNT_PATH)
        for container in lacking:
            container.volumeMounts.append(mount)
        if not present:
            volume = spec.volumes.add()
            volume.CopyFrom(_TOKEN_VOLUME)
            volume.name = name


def mounts_token(pod: Pod, account: ServiceAccount) -> bool:
    """Report whether the pod gets the credentials of its account."""
    if pod.spec.HasField("automountServiceAccountToken"):
        return pod.spec.automountServiceAccountToken
    return not account.HasField("automountServiceAccountToken") or account.automountServiceAccountToken


def _has_mount(container: Container) -> bool:
    return any(mount.mountPath == MOUNT_PATH for mount in container.volumeMounts)


def _forbidden(pod: Pod, why: str) -> Rejected:
    return Rejected(errors.forbidden(f'{PODS.plural} "{pod.metadata.name}" is forbidden: {why}'))
