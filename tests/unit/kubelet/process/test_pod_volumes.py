"""ConfigMaps, Secrets and claims of process pods: variables, files and their updates."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pinnace.api.authentication_v1_pb2 import TokenRequest
from pinnace.api.core_v1_pb2 import ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret
from pinnace.api.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, SECRETS, Resource
from pinnace.api.status import Code, Refusal
from pinnace.client.errors import NotFound, unavailable_error
from pinnace.kubelet.runtime.interface import UnsupportedPod, VolumeProgress, read_clocks
from pinnace.kubelet.runtime.process import pod_volumes
from pinnace.kubelet.runtime.process.plan import credentials_kubeconfig, make_sub_path
from pinnace.kubelet.runtime.process.pod_volumes import ProcessVolumeManager
from pinnace.kubelet.runtime.process.runtime import ProcessRuntime
from pinnace.kubelet.runtime.process.tokens import IssuedToken, is_due
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.unit.kubelet.process.scene import ADDRESSES, UID, Scene, eventually, shell


class Cluster(Scene):
    """A process runtime whose volumes read from `stored`: objects by kind and name."""

    def __init__(self, folder: Path) -> None:
        self.stored: dict[tuple[Resource[Any], str], Any] = {}
        self.down = False
        self.progress = VolumeProgress(False, {})
        self.events: list[tuple[str, str]] = []
        self.accounts = {"bot"}
        self.requests: list[TokenRequest] = []
        self.seconds_left = 3600.0
        """The rest of the lifetime of the tokens that are issued."""
        super().__init__(folder)

    def _open_runtime(self) -> None:
        self.volumes = ProcessVolumeManager(self.root, self._get, self._request_token)
        self.volumes.set_listener(lambda uid, progress: setattr(self, "progress", progress), self._event)
        self.runtime = ProcessRuntime(self.root, objects=self.volumes.objects)
        self.runtime.set_listener(lambda uid: self._changed.set())

    def _event(self, pod: Pod, type_: str, reason: str, message: str) -> None:
        self.events.append((reason, message))

    async def _get(self, resource: Resource[Any], name: str, namespace: str) -> Any:
        if self.down:
            raise unavailable_error("no server")
        if (result := self.stored.get((resource, name))) is None:
            raise NotFound(Refusal(Code.NOT_FOUND, "NotFound", "not found"))
        return result

    async def _request_token(self, namespace: str, account: str, request: TokenRequest) -> TokenRequest:
        if account not in self.accounts:
            raise NotFound(Refusal(Code.NOT_FOUND, "NotFound", f'serviceaccounts "{account}" not found'))
        self.requests.append(request)
        answer = TokenRequest(spec=request.spec)
        answer.status.token = f"token {len(self.requests)}"
        answer.status.expirationTimestamp.seconds = int(SYSTEM_CLOCK.time() + self.seconds_left)
        return answer

    def admit(self, pod: Pod) -> None:
        self.volumes.publish_volumes(pod, read_clocks(SYSTEM_CLOCK))
        self.runtime.prepare_pod(pod, ADDRESSES)

    async def lines(self, pod: Pod) -> list[str]:
        """The output of the pod, which ends."""
        self.admit(pod)
        await eventually(lambda: self.progress == VolumeProgress(True, {}))
        self.start("c0", 0)
        await self.exited()
        return [line.removeprefix("stdout F ") for line in self.log()]


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(pod_volumes, "SYNC_PERIOD", 0.05)
    scene = Cluster(tmp_path / "root")
    running = asyncio.create_task(scene.volumes.run())
    yield scene
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await scene.close()


def config_map(**data: str) -> ConfigMap:
    return ConfigMap(data=data)


def mounting(pod: Pod, name: str) -> Any:
    """The source of a new volume, which c0 mounts at /NAME."""
    pod.spec.containers[0].volumeMounts.add(name=name, mountPath=f"/{name}")
    return pod.spec.volumes.add(name=name).volumeSource


@pytest.mark.processes
async def test_variables_from_config_maps_and_secrets(scene: Cluster) -> None:
    scene.stored[CONFIG_MAPS, "conf"] = config_map(LEVEL="debug", **{"odd.key": "1"})
    scene.stored[SECRETS, "cred"] = Secret(data={"LEVEL": b"secret", "password": "pä".encode()})
    pod = shell("")
    container = pod.spec.containers[0]
    container.command[:] = ["env"]  # a shell drops variables with dots
    container.envFrom.add(prefix="CFG_").configMapRef.localObjectReference.name = "conf"
    container.envFrom.add().secretRef.localObjectReference.name = "cred"
    absent = container.envFrom.add().configMapRef
    absent.localObjectReference.name, absent.optional = "absent", True
    key = container.env.add(name="PASS").valueFrom.secretKeyRef
    key.localObjectReference.name, key.key = "cred", "password"
    none = container.env.add(name="NONE").valueFrom.configMapKeyRef
    none.localObjectReference.name, none.key, none.optional = "conf", "absent", True
    container.env.add(name="LINE", value="$(CFG_LEVEL)")
    names = ("CFG_", "LEVEL", "LINE", "PASS", "NONE")
    assert sorted(line for line in await scene.lines(pod) if line.startswith(names)) == [
        "CFG_LEVEL=debug",
        "CFG_odd.key=1",
        "LEVEL=secret",
        "LINE=debug",
        "PASS=pä",
    ]


@pytest.mark.processes
async def test_container_is_held_until_its_object_exists(scene: Cluster) -> None:
    pod = shell("echo $A; exit 0", "exit 0")
    key = pod.spec.containers[0].env.add(name="A").valueFrom.configMapKeyRef
    key.localObjectReference.name, key.key = "late", "k"
    scene.admit(pod)
    await eventually(lambda: scene.progress == VolumeProgress(True, {"c0": 'configmap "late" not found'}))
    scene.stored[CONFIG_MAPS, "late"] = config_map(other="1")
    await eventually(lambda: scene.progress.held == {"c0": "couldn't find key k in ConfigMap default/late"})
    scene.stored[CONFIG_MAPS, "late"] = config_map(k="now")
    await eventually(lambda: scene.progress == VolumeProgress(True, {}))
    assert scene.events == [
        ("Failed", 'Error: configmap "late" not found'),
        ("Failed", "Error: couldn't find key k in ConfigMap default/late"),
    ]
    scene.start("c0", 0)
    await scene.exited()
    assert scene.log() == ["stdout F now"]


async def test_files_follow_their_object_and_the_pod(scene: Cluster) -> None:
    scene.stored[CONFIG_MAPS, "page"] = config_map(a="1", b="1")
    pod = shell("exit 0")
    pod.metadata.labels["app"] = "web"
    parts = mounting(pod, "all").projected.sources
    parts.add().configMap.localObjectReference.name = "page"
    parts.add().downwardAPI.items.add(path="meta/labels").fieldRef.fieldPath = "metadata.labels"
    scene.admit(pod)
    folder = scene.root.pod_directory(UID) / "volumes/all"
    await eventually(lambda: scene.progress.mounted)
    assert {name: (folder / name).read_text() for name in ("a", "b", "meta/labels")} == {
        "a": "1", "b": "1", "meta/labels": 'app="web"',
    }  # fmt: skip
    scene.stored[CONFIG_MAPS, "page"] = config_map(a="2")
    pod.metadata.labels["app"] = 'a "b"'
    scene.volumes.update(pod)
    await eventually(lambda: (folder / "a").read_text() == "2" and not (folder / "b").exists())
    await eventually(lambda: (folder / "meta/labels").read_text() == 'app="a \\"b\\""')
    del scene.stored[CONFIG_MAPS, "page"]
    failure = 'MountVolume.SetUp failed for volume "all" : configmap "page" not found'
    await eventually(lambda: scene.events == [("FailedMount", failure)])
    assert (folder / "a").read_text() == "2", "the files of a deleted object stay"


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (lambda source: setattr(source.secret, "secretName", "absent"), 'secret "absent" not found'),
        (
            lambda source: setattr(source.persistentVolumeClaim, "claimName", "absent"),
            'persistentvolumeclaim "absent" not found',
        ),
        (lambda source: setattr(source.nfs, "path", "/"), "the process runtime does not support nfs"),
        (
            lambda source: source.projected.sources.add().serviceAccountToken.SetInParent(),
            'failed to fetch token: serviceaccounts "ghost" not found',
        ),
    ],
    ids=["secret", "claim", "nfs", "token"],
)
async def test_missing_volume_keeps_the_pod_waiting(scene: Cluster, fill: Any, message: str) -> None:
    pod = shell("exit 0")
    pod.spec.serviceAccountName = "ghost"
    fill(mounting(pod, "v"))
    scene.admit(pod)
    await eventually(lambda: bool(scene.events))
    assert scene.events == [("FailedMount", f'MountVolume.SetUp failed for volume "v" : {message}')]
    assert not scene.progress.mounted


@pytest.mark.processes
async def test_token_volume_has_a_token_of_the_pod(scene: Cluster) -> None:
    pod = _with_token("cat v/token; exit 0", audience="vault")
    assert await scene.lines(pod) == ["stdout P token 1"]
    (request,) = scene.requests
    assert list(request.spec.audiences) == ["vault"] and request.spec.expirationSeconds == 3600
    bound = request.spec.boundObjectRef
    assert (bound.apiVersion, bound.kind, bound.name, bound.uID) == ("v1", "Pod", pod.metadata.name, pod.metadata.uid)


@pytest.mark.processes
async def test_token_is_replaced_before_it_expires(scene: Cluster) -> None:
    scene.seconds_left = 600.0  # of 3600: it is due
    pod = _with_token("exit 0")
    scene.admit(pod)
    folder = scene.root.pod_directory(UID) / "volumes/v"
    await eventually(lambda: scene.progress.mounted and (folder / "token").read_text() == "token 2")
    scene.accounts.clear()
    await eventually(lambda: len(scene.requests) >= 2)
    assert not scene.events, "a token that cannot be replaced is used until it expires"


def _with_token(command: str, audience: str = "") -> Pod:
    pod = shell(command)
    pod.spec.serviceAccountName = "bot"
    source = mounting(pod, "v").projected.sources.add().serviceAccountToken
    source.path, source.audience, source.expirationSeconds = "token", audience, 3600
    return pod


@pytest.mark.processes
async def test_unreadable_object_is_read_again(scene: Cluster) -> None:
    scene.down = True
    scene.stored[SECRETS, "s"] = Secret(data={"k": b"x" * (1 << 20)})
    pod = shell("wc -c < v/k; exit 0")
    mounting(pod, "v").secret.secretName = "s"
    scene.admit(pod)
    await eventually(lambda: bool(scene.events))
    assert scene.events == [("FailedMount", 'secret "s": no server')]
    scene.down = False
    await eventually(lambda: scene.progress.mounted)
    scene.start("c0", 0)
    await scene.exited()
    assert scene.log() == [f"stdout F {1 << 20}"]


async def test_huge_value_cannot_be_a_variable(scene: Cluster) -> None:
    scene.stored[CONFIG_MAPS, "huge"] = config_map(BIG="x" * (1 << 20))
    pod = shell("exit 0")
    pod.spec.containers[0].envFrom.add().configMapRef.localObjectReference.name = "huge"
    scene.admit(pod)
    await eventually(lambda: scene.progress.mounted)
    scene.start("c0", 0)
    exit_ = (await scene.exited()).exit
    assert exit_ is not None and exit_.reason == "StartError"
    assert exit_.message == 'container "c0": the variable "BIG" of envFrom exceeds 131072 characters, the limit of Linux'


@pytest.mark.processes
async def test_claim_is_the_path_of_its_volume(scene: Cluster, tmp_path: Path) -> None:
    volume, claim = PersistentVolume(), PersistentVolumeClaim()
    volume.spec.persistentVolumeSource.hostPath.path = str(tmp_path / "disk")
    volume.spec.persistentVolumeSource.hostPath.type = "DirectoryOrCreate"
    scene.stored[PERSISTENT_VOLUMES, "disk"] = volume
    scene.stored[PERSISTENT_VOLUME_CLAIMS, "data"] = claim
    pod = shell("echo kept > $PINNACE_VOLUME_DATA/file; cat data/file; exit 0")
    mounting(pod, "data").persistentVolumeClaim.claimName = "data"
    scene.admit(pod)
    await eventually(lambda: bool(scene.events))
    assert scene.events[0][1].endswith('persistentvolumeclaim "data" is not bound to a volume')
    claim.spec.volumeName, claim.status.phase = "disk", "Bound"
    await eventually(lambda: scene.progress.mounted)
    scene.start("c0", 0)
    await scene.exited()
    assert scene.log() == ["stdout F kept"] and (tmp_path / "disk/file").read_text() == "kept\n"


def test_sub_path_stays_inside_its_volume(tmp_path: Path) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    volume.mkdir()
    outside.mkdir()
    assert make_sub_path(volume, "a/b", "c", "v").is_dir()
    (volume / "in").symlink_to("a")
    (volume / "out").symlink_to(outside)
    (volume / "dangling").symlink_to("../made")
    assert make_sub_path(volume, "in/b", "c", "v").is_dir()
    for part in ("out", "out/new", "dangling", "../outside", "/etc", "a/../../outside"):
        with pytest.raises(UnsupportedPod, match='failed to prepare subPath for volumeMount "v" of container "c"'):
            make_sub_path(volume, part, "c", "v")
    assert list(outside.iterdir()) == [] and not (tmp_path / "made").exists()


def test_kubeconfig_has_the_credentials_of_a_pod() -> None:
    services = {"KUBERNETES_SERVICE_HOST": "127.255.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    config = json.loads(credentials_kubeconfig("/pods/v", services, "team"))
    (cluster,), (user,), (context,) = config["clusters"], config["users"], config["contexts"]
    assert cluster["cluster"] == {"server": "https://127.255.0.1:443", "certificate-authority": "/pods/v/ca.crt"}
    assert user["user"] == {"tokenFile": "/pods/v/token"} and context["context"]["namespace"] == "team"
    assert config["current-context"] == context["name"]
    assert not credentials_kubeconfig("", services, "team"), "the pod has no credentials"
    assert not credentials_kubeconfig("/pods/v", {}, "team"), "the service kubernetes does not exist"


@pytest.mark.parametrize(
    ("issued", "expires", "now", "due"),
    [
        (0, 3600, 2800, False),
        (0, 3600, 2881, True),
        (0, 3600, 2875, True),
        (0, 1_000_000, 86_380, False),
        (0, 1_000_000, 86_401, True),
    ],
)
def test_token_is_due_after_80_percent_of_its_lifetime_or_a_day(issued: float, expires: float, now: float, due: bool) -> None:
    assert is_due(IssuedToken("", issued, expires), now, jitter=10.0) == due
