"""The admission plugin ServiceAccount: the account of a pod, and its credentials.

    serviceAccountName: ""  --> default --unknown--> 403
    automountServiceAccountToken of the pod, else of the account: true, or not set
        --> a volume kube-api-access-* with token, CA and namespace, mounted in each container at MOUNT_PATH
    imagePullSecrets: [] --> those of the account
    annotation ENFORCE_MOUNTABLE_SECRETS of the account: true --a secret that the account does not list--> 403

The random part of the volume's name is that of the account, and not of the pod as in Kubernetes. So all pods of a template have
equal specs, and what the plugin adds is cached, as are defaults and validation (PodStrategy).

Source: plugin/pkg/admission/serviceaccount of Kubernetes 1.36.
"""

import random
from collections.abc import Iterator

from pinnace.api.core_v1_pb2 import Container, Pod, PodSpec, ServiceAccount, Volume
from pinnace.api.names import NAME_ALPHABET
from pinnace.api.resources import PODS, SERVICE_ACCOUNTS
from pinnace.api.wellknown import DEFAULT_ACCOUNT, ROOT_CA_CONFIG_MAP
from pinnace.apiserver import errors
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.cacher.store import CacheEntry
from pinnace.apiserver.errors import Rejected

MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3607
"""The lifetime of the token in seconds. Only tokens with this lifetime are extended (apiserver.services.tokens)."""
FILE_MODE = 0o644
TOKEN_VOLUME_PREFIX = "kube-api-access-"
ENFORCE_MOUNTABLE_SECRETS = "kubernetes.io/enforce-mountable-secrets"
_TRUE_WORDS = ("1", "t", "T", "true", "TRUE", "True")
"""What Go's ParseBool accepts as true."""
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""On a pod that a kubelet runs from a file."""


class ServiceAccountAdmission:
    """Called by PodStrategy before it sets defaults."""

    def __init__(self, accounts: ResourceCache[ServiceAccount]) -> None:
        self._accounts = accounts

    def find_account(self, pod: Pod) -> CacheEntry[ServiceAccount] | None:
        """Return the account of a new pod; None for a mirror pod. Raises Rejected."""
        spec, metadata = pod.spec, pod.metadata
        if MIRROR_ANNOTATION in metadata.annotations:
            if spec.serviceAccountName:
                raise _pod_forbidden(metadata.name, "a mirror pod may not reference service accounts")
            return None
        name = spec.serviceAccountName or spec.serviceAccount or DEFAULT_ACCOUNT
        entry = self._accounts.get(SERVICE_ACCOUNTS.key(metadata.namespace, name))
        if entry is None:
            where = f"{metadata.namespace}/{name}"
            raise _pod_forbidden(metadata.name, f'error looking up service account {where}: serviceaccount "{name}" not found')
        return entry

    def admit_spec(self, spec: PodSpec, account: CacheEntry[ServiceAccount], name: str) -> None:
        """Complete a spec with the account, and check the secrets that it refers to. Raises Rejected."""
        add_account_to_spec(spec, account.obj)
        if enforces_mountable_secrets(account.obj) and (problem := find_forbidden_secret(spec, account.obj)):
            raise _pod_forbidden(name, problem)


def add_account_to_spec(spec: PodSpec, account: ServiceAccount) -> None:
    """Set the account in the spec of a pod, and add its credentials."""
    spec.serviceAccountName = spec.serviceAccount = account.metadata.name
    if should_mount_token(spec, account):
        _mount_token(spec, account.metadata.uid)
    if account.imagePullSecrets and not spec.imagePullSecrets:
        spec.imagePullSecrets.extend(account.imagePullSecrets)


def should_mount_token(spec: PodSpec, account: ServiceAccount) -> bool:
    """Report whether the pod gets the credentials of its account."""
    if spec.HasField("automountServiceAccountToken"):
        return spec.automountServiceAccountToken
    return not account.HasField("automountServiceAccountToken") or account.automountServiceAccountToken


def enforces_mountable_secrets(account: ServiceAccount) -> bool:
    """Report whether pods of the account may refer only to the secrets that the account lists."""
    return account.metadata.annotations.get(ENFORCE_MOUNTABLE_SECRETS) in _TRUE_WORDS


def find_forbidden_secret(spec: PodSpec, account: ServiceAccount) -> str:
    """Return a message about the first secret that the account does not list; "" if it lists all."""
    mountable = {reference.name for reference in account.secrets}
    pullable = {reference.name for reference in account.imagePullSecrets}
    reason = f"is not allowed because service account {account.metadata.name} does not reference that"
    for volume in spec.volumes:
        source = volume.volumeSource
        if source.HasField("secret") and source.secret.secretName not in mountable:
            return f'volume with secret.secretName="{source.secret.secretName}" {reason} secret'
    for kind, containers in (("init container", spec.initContainers), ("container", spec.containers)):
        for container in containers:
            for user, secret in _environment_secret_references(container):
                if secret not in mountable:
                    return f'{kind} {container.name} with {user} referencing secret.secretName="{secret}" {reason} secret'
    for index, reference in enumerate(spec.imagePullSecrets):
        if reference.name not in pullable:
            return f'imagePullSecrets[{index}].name="{reference.name}" {reason} imagePullSecret'
    return ""


def _environment_secret_references(container: Container) -> Iterator[tuple[str, str]]:
    """Yield what refers to a secret, and the name of the secret."""
    for variable in container.env:
        if variable.HasField("valueFrom") and variable.valueFrom.HasField("secretKeyRef"):
            yield f"envVar {variable.name}", variable.valueFrom.secretKeyRef.localObjectReference.name
    for source in container.envFrom:
        if source.HasField("secretRef"):
            yield "envFrom", source.secretRef.localObjectReference.name


def _mount_token(spec: PodSpec, uid: str) -> None:
    """Add the volume, and mount it in the containers that have nothing at MOUNT_PATH. A volume with the prefix that the pod
    has already is mounted instead. `uid`: of the account."""
    lacking = [container for container in (*spec.initContainers, *spec.containers) if not _has_token_mount(container)]
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


def _has_token_mount(container: Container) -> bool:
    mounts = container.volumeMounts
    return bool(mounts) and any(mount.mountPath == MOUNT_PATH for mount in mounts)


def _pod_forbidden(pod: str, why: str) -> Rejected:
    return Rejected(errors.forbidden(f'{PODS.plural} "{pod}" is forbidden: {why}'))
