"""The service account of a pod, and the volume with its credentials."""

import asyncio
from collections.abc import Callable

import pytest

from pinnace.api.codec import to_dict
from pinnace.api.core_v1_pb2 import Namespace, Pod, ServiceAccount
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import SERVICE_ACCOUNTS
from pinnace.api.status import Code
from pinnace.apiserver.admission.accounts import MOUNT_PATH, ServiceAccountAdmission
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.strategies.pods import PodStrategy
from pinnace.apiserver.services import pods
from pinnace.apiserver.storage.interface import KeyValue
from pinnace.client.errors import Forbidden
from tests.accounts import with_accounts
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage
from tests.unit.gateway.serving import gateway

NAMESPACE_FIELD = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
Admit = Callable[[Pod], Pod]


def admitting(*accounts: ServiceAccount) -> Admit:
    """A function that admits a pod of the namespace default in a cluster with these accounts."""
    cacher = Cacher(MemoryStorage())
    for account in accounts:
        account.metadata.namespace = "default"
    keys = [SERVICE_ACCOUNTS.key_of(account) for account in accounts]
    values = [account.SerializeToString() for account in accounts]
    cacher.install_state(5, [KeyValue(key, value, 5, 5, 1) for key, value in zip(keys, values, strict=True)])
    strategy = PodStrategy(accounts=ServiceAccountAdmission(cacher.cache_of(SERVICE_ACCOUNTS)))

    def admit(pod: Pod) -> Pod:
        strategy.prepare_create(pod)
        return pod

    return admit


def account(name: str = "default") -> ServiceAccount:
    return ServiceAccount(metadata=ObjectMeta(name=name))


def pod_of(account_name: str = "") -> Pod:
    pod = make_pod("a").req(cpu="1").new()
    pod.spec.serviceAccountName = account_name
    return pod


def volumes(pod: Pod) -> list[str]:
    return [volume.name for volume in pod.spec.volumes]


def test_pod_without_account_gets_the_default_one_and_its_credentials() -> None:
    pod = admitting(account())(pod_of())
    assert (pod.spec.serviceAccountName, pod.spec.serviceAccount) == ("default", "default")
    (volume,) = pod.spec.volumes
    assert volume.name.startswith("kube-api-access-") and len(volume.name) == len("kube-api-access-") + 5
    assert to_dict(volume) == {
        "name": volume.name,
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": NAMESPACE_FIELD}]}},
            ],
        },
    }  # fmt: skip
    (mount,) = pod.spec.containers[0].volumeMounts
    assert to_dict(mount) == {"name": volume.name, "readOnly": True, "mountPath": MOUNT_PATH}


def test_admission_is_idempotent() -> None:
    admit = admitting(account())
    pod = admit(pod_of())
    first = pod.SerializeToString()
    assert admit(pod).SerializeToString() == first


def test_deprecated_field_names_the_account_and_is_kept_equal() -> None:
    pod = pod_of()
    pod.spec.serviceAccount = "bot"
    admitting(account("bot"))(pod)
    assert (pod.spec.serviceAccountName, pod.spec.serviceAccount) == ("bot", "bot")


def test_unknown_account_is_forbidden() -> None:
    with pytest.raises(Rejected) as caught:
        admitting(account())(pod_of("ghost"))
    refusal = caught.value.refusal
    assert (refusal.code, refusal.reason) == (Code.PERMISSION_DENIED, "Forbidden")
    why = 'error looking up service account default/ghost: serviceaccount "ghost" not found'
    assert refusal.message == f'pods "a" is forbidden: {why}'


@pytest.mark.parametrize(
    ("of_pod", "of_account", "mounted"),
    [(None, None, True), (None, False, False), (None, True, True), (True, False, True), (False, True, False)],
)
def test_pod_decides_about_its_credentials_before_its_account(
    of_pod: bool | None, of_account: bool | None, mounted: bool
) -> None:
    owner, pod = account(), pod_of()
    if of_account is not None:
        owner.automountServiceAccountToken = of_account
    if of_pod is not None:
        pod.spec.automountServiceAccountToken = of_pod
    assert bool(volumes(admitting(owner)(pod))) == mounted


def test_container_keeps_its_own_mount() -> None:
    pod = pod_of()
    pod.spec.containers.add(name="own").volumeMounts.add(name="mine", mountPath=MOUNT_PATH)
    pod.spec.initContainers.add(name="init")
    pod.spec.volumes.add(name="mine").volumeSource.emptyDir.SetInParent()
    admitting(account())(pod)
    assert [mount.name for mount in pod.spec.containers[1].volumeMounts] == ["mine"]
    assert len(pod.spec.initContainers[0].volumeMounts) == 1 and len(volumes(pod)) == 2


def test_pod_whose_containers_all_have_a_mount_gets_no_volume() -> None:
    pod = pod_of()
    pod.spec.containers[0].volumeMounts.add(name="mine", mountPath=MOUNT_PATH)
    assert volumes(admitting(account())(pod)) == []


def test_pull_secrets_of_the_account_are_used_if_the_pod_has_none() -> None:
    owner = account()
    owner.imagePullSecrets.add(name="registry")
    admit = admitting(owner)
    assert [secret.name for secret in admit(pod_of()).spec.imagePullSecrets] == ["registry"]
    pod = pod_of()
    pod.spec.imagePullSecrets.add(name="own")
    assert [secret.name for secret in admit(pod).spec.imagePullSecrets] == ["own"]


def test_mirror_pod_has_no_account() -> None:
    admit, pod = admitting(), pod_of()
    pod.metadata.annotations["kubernetes.io/config.mirror"] = "x"
    assert not admit(pod).spec.serviceAccountName
    pod.spec.serviceAccountName = "default"
    with pytest.raises(Rejected, match="a mirror pod may not reference service accounts"):
        admit(pod)


async def test_pod_of_a_new_namespace_waits_for_its_account() -> None:
    async with gateway(with_accounts()) as served:
        await served.client.namespaces.create(Namespace(metadata=ObjectMeta(name="new")))
        creating = asyncio.create_task(served.client.pods.create(make_pod("a", namespace="new").req(cpu="1").new()))
        await asyncio.sleep(0)
        await served.client.of(SERVICE_ACCOUNTS).create(ServiceAccount(metadata=ObjectMeta(namespace="new", name="default")))
        assert (await creating).spec.serviceAccountName == "default"


async def test_pod_is_forbidden_if_its_account_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "ACCOUNT_TIMEOUT", 0.1)
    async with gateway(with_accounts()) as served:
        await served.client.namespaces.create(Namespace(metadata=ObjectMeta(name="new")))
        with pytest.raises(Forbidden, match="error looking up service account new/default"):
            await served.client.pods.create(make_pod("a", namespace="new").req(cpu="1").new())
        created = await served.client.pods.create(make_pod("a").req(cpu="1").new())
        assert created.spec.volumes, "the API server creates the accounts of permanent namespaces"


def limited(**lists: list[str]) -> ServiceAccount:
    """An account whose pods may refer only to the secrets that it lists."""
    limiting = account()
    limiting.metadata.annotations["kubernetes.io/enforce-mountable-secrets"] = "true"
    for name in lists.get("secrets", []):
        limiting.secrets.add(name=name)
    for name in lists.get("pull_secrets", []):
        limiting.imagePullSecrets.add(name=name)
    return limiting


def with_secret_volume(pod: Pod, name: str) -> None:
    pod.spec.volumes.add(name="v").volumeSource.secret.secretName = name


def with_secret_variable(pod: Pod, name: str) -> None:
    pod.spec.containers[0].env.add(name="KEY").valueFrom.secretKeyRef.localObjectReference.name = name


def with_secret_environment(pod: Pod, name: str) -> None:
    pod.spec.initContainers.add(name="first").envFrom.add().secretRef.localObjectReference.name = name


def with_pull_secret(pod: Pod, name: str) -> None:
    pod.spec.imagePullSecrets.add(name=name)


@pytest.mark.parametrize(
    ("refer", "message"),
    [
        (with_secret_volume, 'volume with secret.secretName="other" is not allowed because service account default does not'),
        (with_secret_variable, 'container c0 with envVar KEY referencing secret.secretName="other" is not allowed because'),
        (with_secret_environment, 'init container first with envFrom referencing secret.secretName="other" is not allowed'),
        (with_pull_secret, 'imagePullSecrets[0].name="other" is not allowed because service account default does not'),
    ],
)
def test_annotated_account_limits_the_secrets_of_its_pods(refer: Callable[[Pod, str], None], message: str) -> None:
    """Kubernetes has an annotation for it: kubernetes.io/enforce-mountable-secrets."""
    admit = admitting(limited(secrets=["own"], pull_secrets=["own"]))
    allowed, refused = pod_of(), pod_of()
    refer(allowed, "own")
    admit(allowed)
    refer(refused, "other")
    with pytest.raises(Rejected) as failure:
        admit(refused)
    assert failure.value.refusal.code is Code.PERMISSION_DENIED
    assert f'pods "a" is forbidden: {message}' in failure.value.refusal.message
    refer(elsewhere := pod_of(), "other")
    admitting(account())(elsewhere)
